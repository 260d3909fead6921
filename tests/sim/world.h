// SPDX-License-Identifier: Apache-2.0
//
// World: virtual time, the queue of events, the trace, and the first broken rule. Everything in the simulator runs on it, in one thread;
// equal seeds give equal runs.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <queue>
#include <string>
#include <vector>

#include "base/clock.h"
#include "sim/random.h"

namespace tidewire::sim {

class World {
 public:
  World(uint64_t seed, bool tracing) : random(seed), tracing_(tracing) {}

  Nanos now() const { return now_; }
  void at(Nanos when, std::function<void()> task) { events_.push({std::max(when, now_), next_++, std::move(task)}); }
  void after(Nanos delay, std::function<void()> task) { at(now_ + delay, std::move(task)); }

  // Runs events until `until`, the first broken rule, or too many events.
  void run(Nanos until) {
    while (!failed() && !events_.empty() && events_.top().when <= until) {
      Event event = std::move(const_cast<Event&>(events_.top()));
      events_.pop();
      now_ = event.when;
      if (++count_ > kMaxEvents) return fail("livelock: more than {} events", kMaxEvents);
      event.task();
    }
    now_ = std::max(now_, until);
  }

  template <typename... Args>
  void trace(fmt::format_string<Args...> format, Args&&... args) {
    if (tracing_) fmt::print(stderr, "{:>12.6f}  {}\n", seconds(), fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) {
    if (failed()) return;
    violation_ = fmt::format("at {:.6f} s: {}", seconds(), fmt::format(format, std::forward<Args>(args)...));
    trace("BROKEN {}", violation_);
  }
  bool failed() const { return !violation_.empty(); }
  const std::string& violation() const { return violation_; }
  uint64_t events() const { return count_; }
  // Tasks refer to what else is in the simulation; they go first.
  void clear() { events_ = {}; }

  Random random;

 private:
  static constexpr uint64_t kMaxEvents = 1'000'000;
  struct Event {
    Nanos when;
    uint64_t number;
    std::function<void()> task;
    bool operator<(const Event& other) const { return when != other.when ? when > other.when : number > other.number; }
  };
  double seconds() const { return static_cast<double>(now_) / kSecond - 1000; }

  const bool tracing_;
  Nanos now_ = 1000 * kSecond;  // so that nobody takes 0 for a time
  uint64_t next_ = 0, count_ = 0;
  std::priority_queue<Event> events_;
  std::string violation_;
};

}  // namespace tidewire::sim
