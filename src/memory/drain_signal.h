// SPDX-License-Identifier: Apache-2.0
//
// DrainSignal: where removers of regions sleep until the last use or pin of a region is given back. One for the
// process, because uses end in places that know the region only; it is touched only while a removal is under way. Never
// destroyed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/clock.h"

namespace tidewire {

class DrainSignal {
 public:
  static DrainSignal& get();

  void notify() {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

  // Waits until done() is true or the deadline (kNever: without end) has passed; returns done(). `done` reads atomics
  // only.
  template <typename Done>
  bool wait(Nanos deadline, Done&& done) {
    std::unique_lock lock(mutex_);
    if (deadline == kNever) {
      changed_.wait(lock, done);
      return true;
    }
    const Nanos left = deadline - monotonic_now();
    return left > 0 ? changed_.wait_for(lock, std::chrono::nanoseconds(left), done) : done();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace tidewire
