// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_common.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>

#include "cli/bench_cuda.h"

namespace tidewire::cli::bench {

void check(tw_code code, const char* what) {
  if (code == TW_OK) return;
  throw BenchError(fmt::format("{}: {} ({})", what, tw_last_error(), tw_code_name(code)));
}

void add_options(CLI::App* command, Options* options) {
  command->add_option("--target", options->targets,
                      "host:port of a waiting target (`tidewire bench target` or `tidewire serve`), several separated by commas; "
                      "without it a target process is started on this host")
      ->delimiter(',');
  command->add_option("--protocol", options->protocol, "auto, tcp (with the same-host path off), shm, or what the engine knows")
      ->capture_default_str();
  command->add_option("--local", options->local, "this engine's own host or host:port (default: the address that reaches the target)");
  command->add_option("--metadata", options->metadata, "P2PHANDSHAKE (default) or http://host:port");
  command->add_option("--devices", options->devices, "interfaces to use, separated by commas");
  command->add_option("--set", options->settings, "a setting as name=value; may be repeated");
  command->add_option("--memory", options->memory, "pool: memory of the engine; foreign: memory got elsewhere; cuda: memory of CUDA device 0")
      ->check(CLI::IsMember({"pool", "foreign", "cuda"}))
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "how long to measure each figure")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--json", options->json_file, "write the figures to this file; - is standard output");
}

void run_bench(const char* name, const std::function<void()>& body) {
  try {
    body();
  } catch (const CLI::Error&) {
    throw;
  } catch (const std::exception& error) {
    std::cerr << "tidewire bench " << name << ": " << error.what() << "\n";
    throw CLI::RuntimeError(1);
  }
}

uint64_t parse_bytes(const std::string& text) {
  size_t end = 0;
  double value = 0;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
    throw BenchError(fmt::format("'{}' is not a number of bytes; it takes e.g. 64, 4KiB, 1MB", text));
  }
  std::string unit = text.substr(end);
  std::transform(unit.begin(), unit.end(), unit.begin(), [](unsigned char letter) { return std::toupper(letter); });
  static const std::pair<const char*, double> kUnits[] = {{"", 1},          {"B", 1},           {"K", 1e3},          {"KB", 1e3},
                                                          {"M", 1e6},       {"MB", 1e6},        {"G", 1e9},          {"GB", 1e9},
                                                          {"KIB", 1 << 10}, {"MIB", 1 << 20},   {"GIB", 1 << 30}};
  for (const auto& [name, factor] : kUnits) {
    if (unit == name && value >= 0 && value * factor < 9e18) return static_cast<uint64_t>(std::llround(value * factor));
  }
  throw BenchError(fmt::format("'{}' is not a number of bytes; it takes e.g. 64, 4KiB, 1MB", text));
}

std::vector<uint64_t> parse_bytes_list(const std::vector<std::string>& texts) {
  std::vector<uint64_t> values;
  for (const std::string& text : texts) values.push_back(parse_bytes(text));
  return values;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Engine::Engine(const Options& options, const std::string& local) {
  std::vector<std::string> settings = options.settings;
  const bool says_same_host =
      std::any_of(settings.begin(), settings.end(), [](const std::string& text) { return text.starts_with("same_host="); });
  if (options.protocol == "tcp" && !says_same_host) settings.push_back("same_host=false");
  std::vector<const char*> pointers;
  for (const std::string& setting : settings) pointers.push_back(setting.c_str());
  pointers.push_back(nullptr);

  tw_engine_options engine{};
  engine.struct_size = sizeof(engine);
  engine.local_name = local.c_str();
  engine.metadata = options.metadata.empty() ? nullptr : options.metadata.c_str();
  engine.protocol = options.protocol.c_str();
  engine.devices = options.devices.empty() ? nullptr : options.devices.c_str();
  engine.settings = pointers.data();
  check(tw_engine_create(&engine, &handle_), "creating the engine");
}

Engine::~Engine() { tw_engine_destroy(handle_); }

std::string Engine::address() const {
  char text[512];
  check(tw_engine_address(handle_, text, sizeof(text)), "the engine's address");
  return text;
}

tw_peer_t Engine::open(const std::string& name) const {
  tw_peer_t peer = 0;
  check(tw_peer_open(handle_, name.c_str(), &peer), ("opening " + name).c_str());
  return peer;
}

Buffer::Buffer(const Engine& engine, const std::string& kind, uint64_t length)
    : engine_(engine), length_(length), pool_(kind == "pool"), cuda_(kind == "cuda") {
  if (cuda_) {
    address_ = allocate_cuda(length);
    check(tw_register(engine.handle(), address_, length, "*", TW_REMOTE_READ_WRITE), "registering device memory");
    return;
  }
  if (pool_) {
    check(tw_allocate(engine.handle(), length, "*", &address_), "allocating pool memory");
  } else {
    address_ = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address_ == MAP_FAILED) throw BenchError(fmt::format("mmap of {} bytes: {}", length, std::strerror(errno)));
    check(tw_register(engine.handle(), address_, length, "*", TW_REMOTE_READ_WRITE), "registering memory");
  }
  // Every page is there before anything is timed; the bytes differ from page to page.
  auto* bytes = static_cast<uint8_t*>(address_);
  for (uint64_t i = 0; i < length; i += 4096) bytes[i] = static_cast<uint8_t>(i >> 12 | 1);
}

Buffer::~Buffer() {
  if (pool_) {
    tw_free(engine_.handle(), address_);
  } else {
    tw_unregister(engine_.handle(), address_);
    if (!cuda_) munmap(address_, length_);
  }
}

tw_batch_t submit(const Engine& engine, tw_peer_t peer, tw_opcode opcode, const uint64_t* local, const uint64_t* remote,
                  const uint64_t* lengths, size_t count, double deadline_seconds) {
  tw_submit_options options{};
  options.struct_size = sizeof(options);
  options.deadline_ns = static_cast<uint64_t>(deadline_seconds * 1e9);
  tw_batch_t batch = 0;
  check(tw_submit_lists(engine.handle(), peer, opcode, local, remote, lengths, count, &options, &batch), "submitting");
  return batch;
}

void finish(tw_batch_t batch) {
  const tw_code code = tw_batch_wait(batch, UINT64_MAX, nullptr);
  if (code == TW_OK) {
    tw_batch_release(batch);
    return;
  }
  char text[1024] = "";
  tw_batch_error(batch, text, sizeof(text));
  tw_batch_release(batch);
  throw BenchError(fmt::format("a transfer failed: {} ({})", text, tw_code_name(code)));
}

void transfer(const Engine& engine, tw_peer_t peer, tw_opcode opcode, const std::vector<uint64_t>& local,
              const std::vector<uint64_t>& remote, const std::vector<uint64_t>& lengths, double deadline_seconds) {
  finish(submit(engine, peer, opcode, local.data(), remote.data(), lengths.data(), lengths.size(), deadline_seconds));
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto index = std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(index), values.end());
  return values[index];
}

double median(const std::vector<double>& values) { return percentile(values, 0.5); }

std::string route_source(const std::string& target) {
  std::string host = target.substr(0, target.rfind(':'));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(host.c_str(), "9", &hints, &list) || !list) return "127.0.0.1";
  // Connecting a datagram socket sends nothing; it only asks the routing table.
  std::string source = "127.0.0.1";
  const int fd = socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  char text[NI_MAXHOST];
  if (fd >= 0 && connect(fd, list->ai_addr, list->ai_addrlen) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
      getnameinfo(reinterpret_cast<sockaddr*>(&address), length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0) {
    source = list->ai_family == AF_INET6 ? fmt::format("[{}]:0", text) : text;
  }
  if (fd >= 0) close(fd);
  freeaddrinfo(list);
  return source;
}

void write_json(const Options& options, const nlohmann::json& figures) {
  if (options.json_file.empty()) return;
  if (options.json_file == "-") {
    std::cout << figures.dump(1) << std::endl;
    return;
  }
  std::ofstream file(options.json_file);
  file << figures.dump(1) << "\n";
  file.close();
  if (!file) throw BenchError(fmt::format("{}: can't be written: {}", options.json_file, std::strerror(errno)));
}

}  // namespace tidewire::cli::bench
