// SPDX-License-Identifier: Apache-2.0
//
// The other side of a measurement: a target that already waits somewhere (--target), or one that is started on this host for
// the time of the measurement by running this program again as `bench target`.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench_common.h"

namespace tidewire::cli::bench {

// A process of our own; it ends when the object goes, or when this process dies.
class TargetProcess {
 public:
  // Starts `tidewire bench target` with a buffer of `bytes`. Call it before threads are started.
  TargetProcess(const Options& options, uint64_t bytes);
  ~TargetProcess();
  TargetProcess(const TargetProcess&) = delete;
  TargetProcess& operator=(const TargetProcess&) = delete;

  const std::string& address() const { return address_; }
  uint16_t sink_port() const { return sink_port_; }
  pid_t pid() const { return pid_; }
  // Processor seconds used by it so far; 0 when it is gone.
  double cpu_seconds() const;
  void stop() const;      // SIGSTOP
  void resume() const;    // SIGCONT

 private:
  pid_t pid_ = -1;
  int input_ = -1;  // closing it ends the target
  std::string address_;
  uint16_t sink_port_ = 0;
};

// Processor seconds used by this process so far.
double own_cpu_seconds();

}  // namespace tidewire::cli::bench
