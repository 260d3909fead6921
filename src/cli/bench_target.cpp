// SPDX-License-Identifier: Apache-2.0
//
// `tidewire bench target`: the waiting side of a measurement. It prints one JSON line (address, buffer, length, sink_port) and ends when
// its standard input closes. Beside the engine it takes plain bytes on a port of its own, so that the initiator can measure what bare
// sockets carry over the same path.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <iostream>
#include <memory>
#include <thread>

#include "cli/bench_commands.h"

namespace tidewire::cli::bench {
namespace {

// Reads and forgets, until the initiator closes; then answers one byte, so that "sent" means "arrived".
void drain(int fd) {
  std::vector<uint8_t> bytes(4 << 20);
  while (recv(fd, bytes.data(), bytes.size(), 0) > 0) {
  }
  send(fd, "k", 1, MSG_NOSIGNAL);
  close(fd);
}

uint16_t start_sink() {
  const int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int off = 0;
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  socklen_t length = sizeof(address);
  if (listener < 0) return 0;
  setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) || listen(listener, 64) ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length)) {
    close(listener);
    return 0;
  }
  std::thread([listener] {
    for (;;) {
      const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      std::thread(drain, fd).detach();
    }
  }).detach();
  return ntohs(address.sin6_port);
}

void serve(const Options& options, uint64_t bytes) {
  Engine engine(options, options.local.empty() ? "127.0.0.1" : options.local);
  Buffer buffer(engine, options.memory, bytes);
  const nlohmann::json ready = {{"address", engine.address()},
                                {"buffer", buffer.address()},
                                {"length", buffer.length()},
                                {"pid", getpid()},
                                {"sink_port", start_sink()}};
  std::cout << ready.dump() << std::endl;
  char byte;
  while (read(0, &byte, 1) > 0) {
  }
}

}  // namespace

void add_target(CLI::App* bench) {
  auto* command = bench->add_subcommand("target", "Wait as the target of measurements; prints its address as JSON, ends when its input closes");
  struct Arguments {
    Options options;
    std::string bytes = "2GiB";
  };
  auto arguments = std::make_shared<Arguments>();
  add_options(command, &arguments->options);
  command->add_option("--bytes", arguments->bytes, "length of the buffer")->capture_default_str();
  command->callback([arguments] { run_bench("target", [&] { serve(arguments->options, parse_bytes(arguments->bytes)); }); });
}

}  // namespace tidewire::cli::bench
