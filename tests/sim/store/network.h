// SPDX-License-Identifier: Apache-2.0
//
// Processes that may stop for a while or die, each with a monotonic clock of its own rate, and what lies between them: links between hosts that are cut
// and heal, and ordered connections between clients and masters.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "sim/world.h"
#include "store/messages.h"

namespace tidewire::store::simulation {

using tidewire::sim::World;

class Process : public std::enable_shared_from_this<Process> {
 public:
  Process(World& world, std::string name, uint32_t host)
      : name(std::move(name)),
        host(host),
        world(world),
        born_(world.now()),
        offset_(world.random.between(kSecond, 100'000 * kSecond)),
        per_million_(world.random.between(-5000, 5000)) {}
  virtual ~Process() = default;

  // Its monotonic clock, within half a percent of the world's rate. Wall clocks are not modelled: nothing under test reads one.
  Nanos clock() const {
    const Nanos passed = world.now() - born_;
    return offset_ + passed + passed * per_million_ / 1'000'000;
  }
  // When its clock will have shown `clock`.
  Nanos world_time(Nanos local) const {
    const double passed = static_cast<double>(local - offset_);
    return born_ + static_cast<Nanos>(passed * 1e6 / static_cast<double>(1'000'000 + per_million_)) + kMicrosecond;
  }

  // What happens to it: at once, or in order after its pause.
  void deliver(std::function<void()> task) {
    if (!alive) return;
    if (paused() || !inbox_.empty()) return inbox_.push_back(std::move(task));
    task();
  }
  // A task of its own after a time.
  void after(Nanos delay, std::function<void()> task) {
    world.after(delay, [self = shared_from_this(), task = std::move(task)]() mutable { self->deliver(std::move(task)); });
  }
  void pause(Nanos time) {
    paused_until_ = std::max(paused_until_, world.now() + time);
    world.trace("{} pauses for {} ms", name, time / kMillisecond);
    world.at(paused_until_, [self = shared_from_this()] { self->wake(); });
  }
  void wake_now() {
    paused_until_ = 0;
    wake();
  }
  bool paused() const { return world.now() < paused_until_; }
  // What waits refers to what else is in the simulation; it goes when the process does.
  void forget_inbox() { inbox_.clear(); }

  const std::string name;
  const uint32_t host;
  World& world;
  bool alive = true;

 private:
  void wake() {
    while (alive && !paused() && !inbox_.empty()) {
      const std::function<void()> task = std::move(inbox_.front());
      // Those that arrive meanwhile queue behind.
      task();
      if (!inbox_.empty()) inbox_.pop_front();
    }
  }

  const Nanos born_, offset_;
  const int64_t per_million_;
  Nanos paused_until_ = 0;
  std::deque<std::function<void()>> inbox_;
};

// How fast messages are, and which pairs of hosts can't reach each other.
class Network {
 public:
  explicit Network(World& world) : world_(world), slowest_(world.random.skewed(2 * kMillisecond, 300 * kMillisecond)) {}

  Nanos delay() { return world_.random.skewed(20 * kMicrosecond, slowest_); }
  void cut(uint32_t a, uint32_t b, Nanos time) {
    Nanos& until = cut_until_[std::minmax(a, b)];
    until = std::max(until, world_.now() + time);
    world_.trace("hosts {} and {} are parted for {} ms", a, b, time / kMillisecond);
  }
  bool reachable(uint32_t a, uint32_t b) const { return heals_at(a, b) <= world_.now(); }
  // From when on what is sent gets through.
  Nanos heals_at(uint32_t a, uint32_t b) const {
    const auto found = cut_until_.find(std::minmax(a, b));
    return found == cut_until_.end() ? 0 : found->second;
  }
  void heal() { cut_until_.clear(); }

 private:
  World& world_;
  const Nanos slowest_;
  std::map<std::pair<uint32_t, uint32_t>, Nanos> cut_until_;
};

}  // namespace tidewire::store::simulation
