// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "topology/machine_text.h"

namespace tidewire::cli {

void add_topology(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("topology", "Shows network interfaces, NUMA nodes and accelerators of this machine");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print JSON");
  command->callback([json] {
    const topology::Machine machine = topology::discover();
    fmt::print("{}", *json ? topology::machine_json(machine) + "\n" : topology::machine_table(machine));
  });
}

}  // namespace tidewire::cli
