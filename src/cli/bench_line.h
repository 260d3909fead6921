// SPDX-License-Identifier: Apache-2.0
//
// The line rate of a path, measured in the same run as the transfers that are held against it.
#pragma once

#include <string>

#include "cli/bench_process.h"

namespace tidewire::cli::bench {

struct LineRate {
  double bytes_per_second = 0;  // 0 = unknown
  std::string source;           // how it was found: "two threads copying", "bare sockets, 2 streams", "eth0 100000 Mb/s", "given"
};

// Same host: the fastest plain copy with two threads. TCP to a process of ours: bare sockets, the best of 1, 2 and 4 streams. Another
// host: the speed of the NICs (--devices, or the one that reaches the target). --line-rate wins over all.
LineRate line_rate(const Options& options, const TargetProcess* target);

}  // namespace tidewire::cli::bench
