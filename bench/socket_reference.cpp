// SPDX-License-Identifier: Apache-2.0
//
// Bare sockets, as the reference for latency and for single requests.
//   socket_reference serve [--bind 127.0.0.1] [--port 0]         prints {"port": N}, serves until its standard input closes
//   socket_reference pingpong [--connect HOST] [--port N] [--bytes 64] [--count 20000]
//   socket_reference request  [--connect HOST,HOST…] [--port N] [--bytes N] [--gap SECONDS] [--count 20] [--streams 1]
// A ping-pong returns as many bytes as it got. A request sends its bytes, evenly over one connection for each host (times
// streams), and ends when each has answered with one byte: so it includes what a transfer that is confirmed by its target
// must include. Without --port the client starts a server of its own on loopback.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "reference.h"

namespace {

struct Header {  // the first bytes of a connection: what its messages look like
  uint64_t request_bytes;
  uint64_t answer_bytes;
};

constexpr uint64_t kChunk = 1 << 20;

bool read_all(int fd, uint8_t* to, uint64_t bytes) {
  while (bytes > 0) {
    const ssize_t got = recv(fd, to, bytes, 0);
    if (got <= 0) return false;
    to += got, bytes -= static_cast<uint64_t>(got);
  }
  return true;
}

bool write_all(int fd, const uint8_t* from, uint64_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = send(fd, from, std::min(bytes, kChunk), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    from += sent, bytes -= static_cast<uint64_t>(sent);
  }
  return true;
}

void tune(int fd) {
  const int on = 1, buffer = 4 << 20;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
}

void serve_connection(int fd) {
  Header header{};
  tune(fd);
  if (!read_all(fd, reinterpret_cast<uint8_t*>(&header), sizeof(header))) return;
  // The bytes go to memory of their own, walked, as they would in a KV pool.
  const uint64_t size = std::max<uint64_t>(header.request_bytes, 64 * bench::kMiB);
  uint8_t* memory = header.request_bytes > 4096 ? bench::memory(size) : bench::memory(4096);
  uint64_t offset = 0;
  for (;;) {
    if (header.request_bytes > 4096 && offset + header.request_bytes > size) offset = 0;
    if (!read_all(fd, memory + offset, header.request_bytes)) break;
    if (!write_all(fd, memory + offset, header.answer_bytes)) break;
    if (header.request_bytes > 4096) offset += header.request_bytes;
  }
  close(fd);
}

int listen_on(const std::string& host, uint16_t port, uint16_t* bound) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1, buffer = 4 << 20;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) || listen(fd, 64)) bench::fail("listen");
  socklen_t length = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  *bound = ntohs(address.sin_port);
  return fd;
}

void accept_loop(int listener) {
  for (;;) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    std::thread(serve_connection, fd).detach();
  }
}

int connect_to(const std::string& host, uint16_t port, const Header& header) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  tune(fd);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address))) bench::fail(("connect " + host).c_str());
  if (!write_all(fd, reinterpret_cast<const uint8_t*>(&header), sizeof(header))) bench::fail("send");
  return fd;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  size_t start = 0;
  while (start <= list.size()) {
    const size_t comma = std::min(list.find(',', start), list.size());
    parts.push_back(list.substr(start, comma - start));
    start = comma + 1;
  }
  return parts;
}

int pingpong(const std::string& host, uint16_t port, uint64_t bytes, uint64_t count) {
  const int fd = connect_to(host, port, {bytes, bytes});
  std::vector<uint8_t> message(bytes, 1);
  std::vector<double> times;
  for (uint64_t i = 0; i < count + count / 10; ++i) {
    const double start = bench::now();
    if (!write_all(fd, message.data(), bytes) || !read_all(fd, message.data(), bytes)) bench::fail("ping-pong");
    if (i >= count / 10) times.push_back(bench::now() - start);
  }
  std::printf("{\"bytes\": %llu, \"count\": %llu, \"median_s\": %.9f, \"p99_s\": %.9f}\n",
              static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(count), bench::median(times),
              bench::percentile(times, 0.99));
  return 0;
}

int request(const std::vector<std::string>& hosts, uint16_t port, uint64_t bytes, double gap, uint64_t count,
            uint64_t streams) {
  const uint64_t connections = hosts.size() * streams;
  const uint64_t share = bytes / connections;
  std::vector<int> fds;
  for (uint64_t i = 0; i < connections; ++i) fds.push_back(connect_to(hosts[i % hosts.size()], port, {share, 1}));
  const uint8_t* from = bench::memory(std::max<uint64_t>(bytes, 64 * bench::kMiB));
  const uint64_t walk = std::max<uint64_t>(bytes, 64 * bench::kMiB) / bytes;
  std::vector<double> times;
  for (uint64_t i = 0; i < count + 2; ++i) {  // two to warm
    if (gap > 0) std::this_thread::sleep_for(std::chrono::duration<double>(gap));
    const uint8_t* base = from + (i % walk) * bytes;
    const double start = bench::now();
    // One thread drives all connections: that is the fewest switches.
    std::vector<uint64_t> left(connections, share);
    std::vector<pollfd> polls(connections);
    uint64_t waiting = connections;
    for (uint64_t c = 0; c < connections; ++c) polls[c] = {fds[c], POLLOUT, 0};
    while (waiting > 0) {
      if (poll(polls.data(), polls.size(), 10'000) <= 0) bench::fail("poll");
      for (uint64_t c = 0; c < connections; ++c) {
        if (polls[c].fd < 0 || polls[c].revents == 0) continue;
        if (left[c] > 0) {
          const ssize_t sent = send(fds[c], base + c * share + (share - left[c]), std::min(left[c], kChunk),
                                    MSG_NOSIGNAL | MSG_DONTWAIT);
          if (sent < 0 && errno != EAGAIN) bench::fail("send");
          if (sent > 0) left[c] -= static_cast<uint64_t>(sent);
          if (left[c] == 0) polls[c].events = POLLIN;
        } else {
          uint8_t answer;
          if (recv(fds[c], &answer, 1, 0) != 1) bench::fail("the answer did not come");
          polls[c].fd = -1;
          --waiting;
        }
      }
    }
    if (i >= 2) times.push_back(bench::now() - start);
  }
  std::printf("{\"bytes\": %llu, \"connections\": %llu, \"gap_s\": %g, \"count\": %llu, \"median_s\": %.9f, \"p99_s\": %.9f}\n",
              static_cast<unsigned long long>(share * connections), static_cast<unsigned long long>(connections), gap,
              static_cast<unsigned long long>(count), bench::median(times), bench::percentile(times, 0.99));
  return 0;
}

// A server in a process of its own; it ends with this one.
uint16_t start_server() {
  uint16_t port = 0;
  const int listener = listen_on("127.0.0.1", 0, &port);
  const pid_t child = fork();
  if (child < 0) bench::fail("fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    accept_loop(listener);
    _exit(0);
  }
  close(listener);
  return port;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  auto port = static_cast<uint16_t>(bench::number(argc, argv, "--port", 0));
  if (mode == "serve") {
    uint16_t bound = 0;
    const int listener = listen_on(bench::option(argc, argv, "--bind", "127.0.0.1"), port, &bound);
    std::printf("{\"port\": %u}\n", bound);
    std::fflush(stdout);
    std::thread(accept_loop, listener).detach();
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
    _exit(0);
  }
  if (mode != "pingpong" && mode != "request") {
    std::fprintf(stderr, "usage: socket_reference serve|pingpong|request [--connect HOST] [--port N] [--bytes N] [--count N]\n");
    return 2;
  }
  if (port == 0) port = start_server();
  const std::vector<std::string> hosts = split(bench::option(argc, argv, "--connect", "127.0.0.1"));
  const auto bytes = static_cast<uint64_t>(bench::number(argc, argv, "--bytes", 64));
  if (mode == "pingpong") {
    return pingpong(hosts[0], port, bytes, static_cast<uint64_t>(bench::number(argc, argv, "--count", 20'000)));
  }
  return request(hosts, port, bytes, bench::number(argc, argv, "--gap", 0),
                 static_cast<uint64_t>(bench::number(argc, argv, "--count", 20)),
                 static_cast<uint64_t>(bench::number(argc, argv, "--streams", 1)));
}
