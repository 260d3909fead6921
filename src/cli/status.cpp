// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/settings.h"
#include "base/status_socket.h"
#include "cli/commands.h"
#include "cli/http_get.h"
#include "cli/master_text.h"
#include "cli/status_text.h"

namespace tidewire::cli {
namespace {

struct Options {
  pid_t pid = 0;
  bool json = false;
  std::string master;
  bool watch = false;
};

void list_processes(bool json) {
  std::ifstream file("/proc/net/unix");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::vector<pid_t> processes = engine_processes(text);
  if (json) {
    fmt::print("{}\n", nlohmann::json({{"processes", processes}}).dump());
    return;
  }
  if (processes.empty()) fail("no process here has a Tidewire engine");
  fmt::print("processes with Tidewire engines (tidewire status PID shows one):\n");
  for (const pid_t process : processes) {
    std::ifstream name("/proc/" + std::to_string(process) + "/comm");
    std::string command;
    std::getline(name, command);
    fmt::print("{:>8}  {}\n", process, command);
  }
}

void show(const Options& options) {
  const Result<std::vector<std::string>> texts = read_status(options.pid);
  if (!texts.ok()) fail(texts.status().message());
  if (options.json) {
    nlohmann::json engines = nlohmann::json::array();
    for (const std::string& text : *texts) {
      nlohmann::json engine = nlohmann::json::parse(text, nullptr, false);
      if (engine.is_discarded()) fail("the engine's answer is no JSON; it may be another version");
      engines.push_back(std::move(engine));
    }
    const nlohmann::json root = {{"pid", options.pid}, {"engines", engines}};
    fmt::print("{}\n", root.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  for (size_t index = 0; index < texts->size(); ++index) {
    const Result<std::string> text = status_text((*texts)[index]);
    if (!text.ok()) fail(text.status().message());
    fmt::print("{}{}", index ? "\n" : "", *text);
  }
}

std::string ask_master(const std::string& address) {
  const Result<Settings> settings = Settings::load({});
  if (!settings.ok()) fail(settings.status().message());
  const Result<std::string> secret = load_secret(settings->secret_file);
  if (!secret.ok()) fail(secret.status().message());
  Result<std::string> text = http_get(address, "/status", *secret, 5 * kSecond);
  if (!text.ok()) fail(text.status().message());
  return *text;
}

void show_master(const Options& options) {
  std::string before;
  for (Nanos asked = 0;;) {
    const Nanos last = asked;
    asked = monotonic_now();
    std::string now = ask_master(options.master);
    const Result<std::string> tables =
        options.json ? Result(now) : master_text(now, before, static_cast<double>(asked - last) / kSecond);
    if (!tables.ok()) fail(tables.status().message());
    // On a terminal each turn takes the place of the one before.
    fmt::print("{}{}",
               options.watch && ::isatty(STDOUT_FILENO) ? "\x1b[H\x1b[2J"
               : before.empty()                         ? ""
                                                        : "\n",
               *tables);
    std::fflush(stdout);
    if (!options.watch) return;
    before = std::move(now);
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

}  // namespace

void add_status(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "status", "Shows the engines of a process, or a store's master: peers, use, rates, last errors");
  const auto options = std::make_shared<Options>();
  command->add_option("pid", options->pid, "Process id; without it: the processes that have engines")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", options->json, "Print JSON");
  command->add_option("--master", options->master, "A store's master instead: host:port of its pages (9003)");
  command->add_flag("--watch", options->watch, "With --master: again every second, with rates");
  command->footer("Works for processes of the same user (root: of any) in the same network namespace.");
  command->callback([options] {
    if (options->watch && options->master.empty()) fail("--watch needs --master", 2);
    if (!options->master.empty()) return show_master(*options);
    options->pid ? show(*options) : list_processes(options->json);
  });
}

}  // namespace tidewire::cli
