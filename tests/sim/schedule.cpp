// SPDX-License-Identifier: Apache-2.0
#include "sim/schedule.h"

#include "sim/driver.h"
#include "sim/far_transport.h"
#include "sim/near_transport.h"

namespace tidewire::sim {
namespace {

constexpr Nanos kFaultsBegin = 6 * kSecond;    // at the latest
constexpr Nanos kFaultsEnd = 10 * kSecond;     // at the latest; from then on everything is well
constexpr Nanos kLastJobs = 23 * kSecond;
constexpr Nanos kEnd = 50 * kSecond;

Settings draw_settings(Random& random) {
  Settings settings;
  settings.session.least_slice = 512;
  settings.lanes_per_pair = static_cast<uint32_t>(random.between(1, 2));
  settings.reorder_actions = random.chance(0.5);
  settings.connection_loss = random.chance(0.6) ? 0 : 0.05 * static_cast<double>(random.between(1, 100)) / 100;
  settings.fetch_faults = random.chance(0.75) ? 0 : 0.2 * static_cast<double>(random.between(1, 100)) / 100;
  settings.no_route = random.chance(0.2);
  settings.near_unsupported = random.chance(0.7) ? 0 : 0.5 * static_cast<double>(random.between(1, 100)) / 100;
  settings.processing = random.skewed(10 * kMicrosecond, 3 * kMillisecond);
  settings.linger = 0.2 * static_cast<double>(random.between(0, 5));
  return settings;
}

class Schedule {
 public:
  Schedule(World& world, Cluster& cluster) : world_(world), cluster_(cluster), random_(world.random), start_(world.now()) {}

  void draw() {
    const uint64_t jobs = static_cast<uint64_t>(random_.skewed(4, 60));
    for (uint64_t i = 0; i < jobs; ++i)
      world_.at(start_ + random_.between(0, 8 * kSecond), [this] { submit(); });
    if (random_.chance(0.9)) {
      const int64_t faults = random_.skewed(1, 12);
      for (int64_t i = 0; i < faults; ++i)
        world_.at(start_ + random_.between(0, kFaultsBegin), [this] { fault(); });
    }
    // After the last heal, back-off ends within a probe's interval and a connect timeout.
    const engine::SessionOptions& options = cluster_.settings.session;
    world_.at(start_ + kFaultsEnd + options.probe_interval + options.connect_timeout + 200 * kMillisecond, [this] { check_backoff(); });
    world_.at(start_ + kLastJobs, [this] {
      for (uint32_t a = 0; a < cluster_.slots.size(); ++a)
        for (uint32_t b = 0; b < cluster_.slots.size(); ++b)
          if (a != b) submit_last(a, b);
    });
  }

 private:
  uint32_t any() { return static_cast<uint32_t>(random_.between(0, static_cast<int64_t>(cluster_.slots.size()) - 1)); }

  void submit() {
    JobShape shape;
    shape.owner = any();
    do shape.target = any(); while (shape.target == shape.owner);
    shape.opcode = random_.chance(0.6) ? transport::Opcode::kWrite : transport::Opcode::kRead;
    shape.count = static_cast<uint64_t>(random_.skewed(1, 30));
    shape.length = static_cast<uint64_t>(random_.skewed(1, 24 << 10));
    shape.random = true;
    const int kind = static_cast<int>(random_.between(0, 9));
    shape.deadline = kind < 3 ? random_.between(20 * kMillisecond, kSecond) : kind < 8 ? random_.between(kSecond, 6 * kSecond) : random_.between(6 * kSecond, 20 * kSecond);
    shape.bad = random_.chance(0.1) ? 1 + static_cast<uint64_t>(random_.between(0, 2)) : 0;
    shape.notify = shape.bad == 0 && random_.chance(0.4);
    const SimJobPtr job = make_job(cluster_, shape, number_);
    if (!job) return;
    ++number_;
    cluster_.submit(job);
    if (random_.chance(0.1)) world_.after(random_.skewed(0, kSecond), [this, job] { cluster_.cancel(job); });
  }

  void submit_last(uint32_t a, uint32_t b) {
    JobShape shape;
    shape.owner = a;
    shape.target = b;
    shape.count = 3;
    shape.length = 2000;
    shape.deadline = 6 * kSecond;
    const SimJobPtr job = make_job(cluster_, shape, number_);
    if (!job) return;
    ++number_;
    cluster_.submit(job);
  }

  void check_backoff() {
    if (cluster_.settings.fetch_faults > 0) return;
    for (const Slot& slot : cluster_.slots)
      if (slot.process)
        for (const auto& [target, driver] : slot.process->drivers)
          if (driver->session().state() == engine::Session::State::kBackoff && cluster_.good_since(slot.process->slot, target, 0) <= start_ + kFaultsEnd)
            world_.fail("session {}→{} is still in back-off after the heal", slot.process->slot, target);
  }

  Nanos until_heal() { return std::min(start_ + kFaultsEnd - world_.now(), random_.skewed(20 * kMillisecond, 8 * kSecond)); }

  void block(uint32_t a, uint32_t b, uint32_t rail, Nanos duration) {
    if (cluster_.slots[a].host == cluster_.slots[b].host) return;
    cluster_.network.block(a, b, rail);
    world_.after(duration, [this, a, b, rail] { cluster_.network.unblock(a, b, rail); });
  }

  void fault() {
    const uint32_t a = any();
    uint32_t b = any();
    if (b == a) b = (a + 1) % static_cast<uint32_t>(cluster_.slots.size());
    const Nanos duration = until_heal();
    const uint32_t rails = cluster_.network.rails();
    switch (random_.between(0, 9)) {
      case 0:
      case 1: {  // a partition of two, in one direction or both
        const bool both = random_.chance(0.6);
        world_.trace("partition {}→{}{} for {} ms", a, b, both ? " both ways" : "", duration / kMillisecond);
        for (uint32_t rail = 0; rail < rails; ++rail) {
          block(a, b, rail, duration);
          if (both) block(b, a, rail, duration);
        }
        break;
      }
      case 2:
      case 3: {  // one rail
        const uint32_t rail = static_cast<uint32_t>(random_.between(0, rails - 1));
        const bool both = random_.chance(0.6);
        world_.trace("rail {} of {}→{}{} cut for {} ms", rail, a, b, both ? " both ways" : "", duration / kMillisecond);
        block(a, b, rail, duration);
        if (both) block(b, a, rail, duration);
        break;
      }
      case 4: {  // an engine cut off from all
        world_.trace("engine {} is cut off for {} ms", a, duration / kMillisecond);
        for (uint32_t other = 0; other < cluster_.slots.size(); ++other) {
          if (other == a) continue;
          for (uint32_t rail = 0; rail < rails; ++rail) {
            block(a, other, rail, duration);
            block(other, a, rail, duration);
          }
        }
        break;
      }
      case 5:
      case 6: {
        cluster_.crash(a, random_.chance(0.3));
        const Nanos outage = std::min(duration, 3 * kSecond);
        const bool same_base = random_.chance(0.5);
        world_.after(random_.chance(0.2) ? 0 : outage, [this, a, same_base] { cluster_.start(a, same_base); });
        break;
      }
      case 7:
        cluster_.pause(a, std::min(duration, 3 * kSecond));
        break;
      case 8:
        cluster_.reset(a, b);
        break;
      case 9:
        cluster_.withdraw_region(a, static_cast<uint64_t>(random_.between(0, 4)));
        break;
    }
  }

  World& world_;
  Cluster& cluster_;
  Random& random_;
  const Nanos start_;
  uint32_t number_ = 0;
};

}  // namespace

SimJobPtr make_job(Cluster& cluster, const JobShape& shape, uint32_t number) {
  Random& random = cluster.world.random;
  const ProcessPtr owner = cluster.slots[shape.owner].process;
  if (!owner) return nullptr;
  ProcessPtr target = cluster.slots[shape.target].process;
  if (!target)
    for (const ProcessPtr& process : cluster.all)
      if (process->slot == shape.target) target = process;
  auto job = std::make_shared<SimJob>();
  job->number = number;
  job->owner = owner;
  job->target = shape.target;
  job->submitted_to = target;
  job->notify = shape.notify;
  const Nanos now = cluster.world.now();
  job->job = std::make_shared<engine::Job>(shape.opcode, shape.count, now, now + shape.deadline);
  job->expect.assign(shape.count, Expect::kGood);
  job->verified.assign(shape.count, false);
  uint64_t& remote = cluster.slots[shape.target].next_offset;
  uint64_t& local = cluster.slots[shape.owner].next_local;
  const bool scattered = random.chance(0.5);
  for (uint64_t i = 0; i < shape.count; ++i) {
    engine::Transfer& transfer = job->job->transfers[i];
    const uint64_t gap = scattered ? static_cast<uint64_t>(random.between(1, 64)) : 0;
    transfer.length = shape.random ? static_cast<uint64_t>(random.skewed(0, static_cast<int64_t>(shape.length))) : shape.length;
    transfer.local = owner->base + kLocalOffset + local;
    transfer.remote = target->base + remote;
    if (i < shape.bad && transfer.length > 0) {
      const bool denied = shape.opcode == transport::Opcode::kWrite && random.chance(0.4) && transfer.length + 64 * (i + 1) <= kRegionBytes;
      transfer.remote = target->base + (denied ? kReadOnlyOffset : kNowhereOffset) + 64 * i;
      job->expect[i] = denied ? Expect::kPermissionDenied : Expect::kNotRegistered;
    } else {
      remote += transfer.length + gap;
    }
    local += transfer.length + gap;
    job->job->bytes += transfer.length;
  }
  remote += 64;
  local += 64;
  return remote > 60 * kRegionBytes ? nullptr : job;
}

Outcome random_schedule(uint64_t seed, const Mutations& mutations, bool tracing) {
  World world(seed, tracing);
  Random& random = world.random;
  const uint32_t engines = static_cast<uint32_t>(random.between(2, 5));
  const uint32_t rails = static_cast<uint32_t>(random.between(1, 3));
  const Settings settings = draw_settings(random);
  Cluster cluster(world, engines, rails, settings, mutations);
  cluster.network.base_latency = random.skewed(20 * kMicrosecond, 20 * kMillisecond);
  cluster.network.jitter = random.skewed(10 * kMicrosecond, 20 * kMillisecond);
  cluster.network.bytes_per_second = static_cast<uint64_t>(random.skewed(4 << 20, 400 << 20));
  for (uint32_t i = 1; i < engines; ++i)
    if (random.chance(0.35)) cluster.slots[i].host = cluster.slots[i - 1].host;
  world.trace("seed {}: {} engines, {} rails, {} lanes, latency {}+{} µs, {} MB/s, loss {:.3f}, fetch faults {:.2f}, near unsupported {:.2f}", seed, engines,
              rails, settings.lanes_per_pair, cluster.network.base_latency / kMicrosecond, cluster.network.jitter / kMicrosecond,
              cluster.network.bytes_per_second >> 20, settings.connection_loss, settings.fetch_faults, settings.near_unsupported);
  Schedule schedule(world, cluster);
  schedule.draw();
  world.run(world.now() + kEnd);
  if (!world.failed()) cluster.oracle.closing();
  return {world.violation(), world.events(), cluster.oracle.completed, cluster.oracle.failed, cluster.oracle.revocations, cluster.oracle.retries};
}

}  // namespace tidewire::sim
