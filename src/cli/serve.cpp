// SPDX-License-Identifier: Apache-2.0
//
// `tidewire serve`: a target that waits. One engine, one registered buffer that peers may read and write.
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <tidewire/tidewire.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/commands.h"
#include "cli/size.h"

namespace tidewire::cli {
namespace {

struct Options {
  std::string listen = "127.0.0.1";
  std::string metadata;
  std::string protocol = "auto";
  std::string devices;
  std::string buffer = "64M";
  std::string location = "*";
  std::vector<std::string> settings;
};

// The engine is destroyed however the command ends.
struct Engine {
  tw_engine_t handle = 0;
  ~Engine() {
    if (handle) static_cast<void>(tw_engine_destroy(handle));
  }
};

void check(tw_code code, const char* what) {
  if (code != TW_OK) fail(fmt::format("{}: {}: {}", what, tw_code_name(code), tw_last_error()));
}

void serve(const Options& options) {
  const Result<uint64_t> length = parse_size(options.buffer);
  if (!length.ok()) fail("--buffer: " + length.status().message(), 2);

  // Blocked before the engine starts its threads, which inherit this: the signals wait for sigwait below.
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGINT);
  sigaddset(&stop, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);

  std::vector<const char*> settings;
  for (const std::string& setting : options.settings) settings.push_back(setting.c_str());
  settings.push_back(nullptr);
  tw_engine_options engine_options{};
  engine_options.struct_size = sizeof engine_options;
  engine_options.local_name = options.listen.c_str();
  engine_options.metadata = options.metadata.empty() ? nullptr : options.metadata.c_str();
  engine_options.protocol = options.protocol.c_str();
  engine_options.devices = options.devices.c_str();
  engine_options.settings = settings.data();

  Engine engine;
  check(tw_engine_create(&engine_options, &engine.handle), "start the engine");
  void* buffer = nullptr;
  if (*length > 0) check(tw_allocate(engine.handle, *length, options.location.c_str(), &buffer), "allocate the buffer");
  char address[512];
  check(tw_engine_address(engine.handle, address, sizeof address), "address");

  const nlohmann::ordered_json line = {
      {"address", address}, {"buffer", reinterpret_cast<uint64_t>(buffer)}, {"length", *length}, {"pid", ::getpid()}};
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);

  int signal = 0;
  while (sigwait(&stop, &signal) != 0) {
  }
  // A second signal ends the program at once, should the goodbye to peers take too long.
  pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);
}

}  // namespace

void add_serve(CLI::App& app) {
  CLI::App* command = app.add_subcommand("serve", "Waits as the target of transfers until SIGINT or SIGTERM");
  const auto options = std::make_shared<Options>();
  command->add_option("--listen", options->listen, "Address that peers use: host, host:port or [v6]:port")
      ->capture_default_str();
  command->add_option("--metadata", options->metadata, "P2PHANDSHAKE (peers are addresses) or http://host:port[/path]");
  command->add_option("--protocol", options->protocol, "auto, tcp, shm, rdma, efa or fabric:PROVIDER")
      ->capture_default_str();
  command->add_option("--devices", options->devices, "Comma list of interfaces (default: the one with the address)");
  command->add_option("--buffer", options->buffer, "Size of the registered buffer; K, M, G are powers of 1024; 0: none")
      ->capture_default_str();
  command->add_option("--location", options->location, "Where the buffer lies: *, cpu:N")->capture_default_str();
  command->add_option("--set", options->settings, "A setting name=value; repeatable (see tidewire doctor --settings)");
  command->footer(
      "Prints one line of JSON when ready: {\"address\", \"buffer\", \"length\", \"pid\"}; buffer is the address for "
      "remote "
      "transfers.");
  command->callback([options] { serve(*options); });
}

}  // namespace tidewire::cli
