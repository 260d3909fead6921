// SPDX-License-Identifier: Apache-2.0
//
// StallWatch decides, from what the kernel says of a connection, whether a lane with work in flight is dead, only slow,
// or should be asked. Time in, verdict out; no I/O.
//
// Dead: bytes that are on their way have not been acknowledged for the stall timeout (or for a few round trips, where a
// shaper's queue makes those longer). So are unsent bytes that the own
// interface refuses while the window is open. A closed window (the other process is stopped) is not: its kernel answers, and
// the deadlines of the transfers decide. Nothing on its way and nothing received for half of the timeout: a ping makes
// the kernels exchange bytes, so that a dead link shows also while the lane only waits for an answer.
#pragma once

#include "base/clock.h"
#include "transport/tcp/socket.h"

namespace tidewire::transport::tcp {

class StallWatch {
 public:
  enum class Verdict { kFine, kAsk, kDead };
  explicit StallWatch(Nanos timeout) : timeout_(timeout) {}

  // The lane has (again) work in flight.
  void restart(Nanos now);
  Verdict check(const LinkProgress& progress, Nanos now);

 private:
  const Nanos timeout_;
  uint64_t acked_ = 0;
  uint64_t received_ = 0;
  Nanos moved_ = 0;  // when bytes were last acknowledged or received, or nothing was on its way
  Nanos heard_ = 0;  // the same, or when the lane last asked
};

}  // namespace tidewire::transport::tcp
