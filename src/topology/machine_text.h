// SPDX-License-Identifier: Apache-2.0
//
// A Machine for readers: JSON for programs (tw_topology_json, `tidewire topology --json`), tables for a terminal.
#pragma once

#include <string>

#include "topology/machine.h"

namespace tidewire::topology {

// {"boot_id", "nics": […], "fabric_devices": […], "numa_nodes": […], "accelerators": […]}; unknown numbers are null.
std::string machine_json(const Machine& machine);
std::string machine_table(const Machine& machine);

}  // namespace tidewire::topology
