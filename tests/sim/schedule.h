// SPDX-License-Identifier: Apache-2.0
//
// Schedules: what happens in one run. random_schedule draws everything from a seed: the world's speed, engines, jobs and faults; the helpers
// below build jobs for tests with a plot of their own.
#pragma once

#include <string>

#include "sim/cluster.h"

namespace tidewire::sim {

struct JobShape {
  uint32_t owner = 0, target = 1;
  transport::Opcode opcode = transport::Opcode::kWrite;
  uint64_t count = 1;
  uint64_t length = 4096;         // of each transfer, unless `random` is set: then up to it
  bool random = false;
  Nanos deadline = 30 * kSecond;  // from now
  uint64_t bad = 0;               // transfers to ranges that are refused
  bool notify = false;
};
// Null when the owner is down or the target's memory is used up.
SimJobPtr make_job(Cluster& cluster, const JobShape& shape, uint32_t number);

struct Outcome {
  std::string violation;  // empty: all rules held
  uint64_t events = 0, completed = 0, failed = 0, revocations = 0, retries = 0;
};
Outcome random_schedule(uint64_t seed, const Mutations& mutations = {}, bool tracing = false);

}  // namespace tidewire::sim
