// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/status_socket.h"
#include "cli/commands.h"
#include "cli/status_text.h"

namespace tidewire::cli {
namespace {

struct Options {
  pid_t pid = 0;
  bool json = false;
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

}  // namespace

void add_status(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("status", "Shows the engines of a process: peers, rails, work in flight, last errors");
  const auto options = std::make_shared<Options>();
  command->add_option("pid", options->pid, "Process id; without it: the processes that have engines")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", options->json, "Print JSON");
  command->footer("Works for processes of the same user (root: of any) in the same network namespace.");
  command->callback([options] { options->pid ? show(*options) : list_processes(options->json); });
}

}  // namespace tidewire::cli
