// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_line.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <atomic>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

namespace tidewire::cli::bench {
namespace {

constexpr uint64_t kWalk = 256 << 20;
constexpr uint64_t kStep = 2 << 20;
constexpr double kSeconds = 0.3;

// ---- same host: how fast can two threads copy?

#if defined(__x86_64__)
__attribute__((target("avx"))) void streaming_copy(uint8_t* to, const uint8_t* from, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i += 64) {
    const __m256i a = _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i));
    const __m256i b = _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i + 32), b);
  }
  _mm_sfence();
}
bool can_stream() { return __builtin_cpu_supports("avx"); }
#else
void streaming_copy(uint8_t* to, const uint8_t* from, uint64_t bytes) { std::memcpy(to, from, bytes); }
bool can_stream() { return false; }
#endif

double copy_rate(bool streaming, uint8_t* to, const uint8_t* from) {
  constexpr uint64_t kShare = kWalk / 2;
  std::atomic<uint64_t> moved{0};
  const double start = now(), end = start + kSeconds;
  const auto work = [&](uint64_t base) {
    uint64_t done = 0;
    for (uint64_t offset = 0; now() < end; offset = (offset + kStep) % kShare, done += kStep) {
      if (streaming) streaming_copy(to + base + offset, from + base + offset, kStep);
      else std::memcpy(to + base + offset, from + base + offset, kStep);
    }
    moved += done;
  };
  std::thread other(work, kShare);
  work(0);
  other.join();
  return static_cast<double>(moved.load()) / (now() - start);
}

LineRate copying() {
  void* memory = mmap(nullptr, 2 * kWalk, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return {};
  auto* to = static_cast<uint8_t*>(memory);
  LineRate best;
  for (const bool streaming : {false, true}) {
    if (streaming && !can_stream()) continue;
    copy_rate(streaming, to, to + kWalk);  // warm
    const double rate = copy_rate(streaming, to, to + kWalk);
    if (rate > best.bytes_per_second) best = {rate, streaming ? "two threads copying (non-temporal)" : "two threads copying (memcpy)"};
  }
  munmap(memory, 2 * kWalk);
  return best;
}

// ---- TCP to a process of ours

int connect_sink(const std::string& host, uint16_t port) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) || !list) return -1;
  const int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected = fd >= 0 && connect(fd, list->ai_addr, list->ai_addrlen) == 0;
  freeaddrinfo(list);
  if (connected) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

double stream_rate(const std::string& host, uint16_t port, unsigned streams, const uint8_t* from) {
  std::atomic<uint64_t> moved{0};
  std::vector<std::thread> threads;
  const double start = now(), end = start + kSeconds;
  for (unsigned i = 0; i < streams; ++i) {
    threads.emplace_back([&, i] {
      const int fd = connect_sink(host, port);
      if (fd < 0) return;
      uint64_t done = 0;
      const uint64_t base = i * (kWalk / streams);
      for (uint64_t offset = 0; now() < end;) {
        const ssize_t sent = send(fd, from + base + offset, 1 << 20, MSG_NOSIGNAL);
        if (sent <= 0) break;
        done += static_cast<uint64_t>(sent);
        offset = (offset + (1 << 20)) % (kWalk / streams);
      }
      shutdown(fd, SHUT_WR);
      char answer;
      if (recv(fd, &answer, 1, 0) == 1) moved += done;
      close(fd);
    });
  }
  for (auto& thread : threads) thread.join();
  return static_cast<double>(moved.load()) / (now() - start);
}

LineRate sockets(const TargetProcess& target) {
  const std::string host = target.address().substr(0, target.address().rfind(':'));
  void* memory = mmap(nullptr, kWalk + kStep, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return {};
  LineRate best;
  for (const unsigned streams : {1u, 2u, 4u}) {
    const double rate = stream_rate(host, target.sink_port(), streams, static_cast<const uint8_t*>(memory));
    if (rate > best.bytes_per_second) best = {rate, fmt::format("bare sockets, {} stream{}", streams, streams == 1 ? "" : "s")};
  }
  munmap(memory, kWalk + kStep);
  return best;
}

// ---- another host: what the NICs say

// The interface that holds an address, or "".
std::string interface_of(const std::string& address) {
  std::string found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list)) return found;
  for (const ifaddrs* entry = list; entry && found.empty(); entry = entry->ifa_next) {
    if (!entry->ifa_addr || (entry->ifa_addr->sa_family != AF_INET && entry->ifa_addr->sa_family != AF_INET6)) continue;
    char text[NI_MAXHOST];
    const socklen_t length = entry->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(entry->ifa_addr, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0 && address == text) {
      found = entry->ifa_name;
    }
  }
  freeifaddrs(list);
  return found;
}

LineRate nics(const Options& options) {
  std::set<std::string> names;
  std::stringstream list(options.devices);
  for (std::string name; std::getline(list, name, ',');) {
    name.erase(0, name.find_first_not_of(' '));
    name.erase(name.find_last_not_of(' ') + 1);
    if (!name.empty()) names.insert(name);
  }
  if (names.empty()) names.insert(interface_of(route_source(options.targets.front())));
  LineRate rate;
  for (const std::string& name : names) {
    long megabits = 0;
    std::ifstream("/sys/class/net/" + name + "/speed") >> megabits;
    if (megabits <= 0) return {0, fmt::format("the speed of '{}' is unknown: give --line-rate", name)};
    rate.bytes_per_second += static_cast<double>(megabits) * 1e6 / 8;
    rate.source += fmt::format("{}{} {} Mb/s", rate.source.empty() ? "" : ", ", name, megabits);
  }
  return rate;
}

}  // namespace

LineRate line_rate(const Options& options, const TargetProcess* target) {
  if (options.line_rate > 0) return {options.line_rate, "given"};
  if (!target) return nics(options);
  return options.protocol == "tcp" ? sockets(*target) : copying();
}

}  // namespace tidewire::cli::bench
