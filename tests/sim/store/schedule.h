// SPDX-License-Identifier: Apache-2.0
//
// Schedules: what happens in one run of the store, drawn from a seed: speeds, leases, clients, operations and faults; then all is healed, and what must
// hold at the end is checked.
#pragma once

#include <string>

#include "sim/store/cluster.h"

namespace tidewire::store::simulation {

struct Outcome {
  std::string violation;  // empty: all rules held
  uint64_t events = 0, reads = 0, acked = 0, removals = 0, evictions = 0, discarded = 0, abandoned = 0, masters = 0, no_space = 0;
};
Outcome random_schedule(uint64_t seed, const Mutations& mutations = {}, bool tracing = false);

}  // namespace tidewire::store::simulation
