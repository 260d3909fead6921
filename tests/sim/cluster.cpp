// SPDX-License-Identifier: Apache-2.0
#include "sim/cluster.h"

#include <cstring>

#include "sim/driver.h"
#include "sim/far_transport.h"
#include "sim/near_transport.h"

namespace tidewire::sim {
namespace {
constexpr Nanos kKeepAlive = 10 * kSecond;
}

Process::Process(Cluster& cluster, uint32_t slot, InstanceId instance, uint64_t base)
    : cluster(cluster), slot(slot), instance(instance), base(base), withdrawn(64),
      far(std::make_unique<FarTransport>(*this)), near(std::make_unique<NearTransport>(*this)) {}

Process::~Process() = default;

Status Process::check(uint64_t address, uint64_t length, bool write) const {
  const uint64_t offset = address - base;
  if (offset >= kReadOnlyOffset && offset + length <= kReadOnlyOffset + kRegionBytes)
    return write ? Status(Code::kPermissionDenied, "read-only region") : Status();
  if (offset + length < offset || offset + length > withdrawn.size() * kRegionBytes) return Status(Code::kNotRegistered, "no such region");
  for (uint64_t region = offset / kRegionBytes; region <= (offset + length - 1) / kRegionBytes; ++region)
    if (withdrawn[region]) return Status(Code::kNotRegistered, "region was withdrawn");
  return {};
}

uint8_t* Process::at(uint64_t address) {
  uint64_t offset = address - base;
  const bool local = offset >= kLocalOffset;
  std::vector<uint8_t>& bytes = local ? local_memory : memory;
  if (local) offset -= kLocalOffset;
  // Enough for any access from here; filled so that no two instances look alike.
  constexpr uint64_t kStep = 64 << 10;
  if (offset + kStep > bytes.size()) {
    const size_t old = bytes.size();
    bytes.resize((offset + 2 * kStep) / kStep * kStep);
    uint64_t x = (instance[0] + 256 * instance[1] + 65536 * (local ? 1 : 2)) * 0x9e3779b97f4a7c15 + old;
    for (size_t i = old; i + 8 <= bytes.size(); i += 8) {
      x = x * 6364136223846793005 + 1442695040888963407;
      std::memcpy(&bytes[i], &x, 8);
    }
  }
  return bytes.data() + offset;
}

PeerRecord Process::record() const {
  PeerRecord record;
  record.instance = instance;
  record.name = "engine" + std::to_string(slot);
  record.rails.resize(cluster.network.rails());
  return record;
}

Driver& Process::driver(uint32_t target) {
  std::unique_ptr<Driver>& driver = drivers[target];
  if (!driver) driver = std::make_unique<Driver>(*this, target);
  return *driver;
}

Cluster::Cluster(World& world, uint32_t engines, uint32_t rails, const Settings& settings, const Mutations& mutations)
    : world(world), settings(settings), mutations(mutations), network(world, engines, rails), oracle(world, network, *this), slots(engines) {
  for (uint32_t i = 0; i < engines; ++i) {
    slots[i].host = i;
    start(i, true);
    slots[i].steady_since = world.now() - 3600 * kSecond;
  }
}

// Processes, connections and what is under way refer to each other.
Cluster::~Cluster() {
  world.clear();
  for (const std::weak_ptr<Connection>& weak : connections)
    if (const auto connection = weak.lock()) connection->inbox.clear();
  network.clear();
  for (const ProcessPtr& process : all) {
    process->lanes.clear();
    process->far.reset();
    process->near.reset();
    process->drivers.clear();
  }
}

InstanceId Cluster::next_instance() {
  InstanceId id{};
  id[0] = static_cast<uint8_t>(all.size() + 1);
  id[1] = static_cast<uint8_t>((all.size() + 1) >> 8);
  id[2] = 1;
  return id;
}

void Cluster::start(uint32_t slot, bool same_base) {
  Slot& s = slots[slot];
  if (s.process) return;
  uint64_t base = 1ull << 40;
  for (const ProcessPtr& process : all)
    if (process->slot == slot) base = same_base ? process->base : process->base + (1ull << 36);
  s.process = std::make_shared<Process>(*this, slot, next_instance(), base);
  s.process->started = world.now();
  s.host_down = false;
  s.steady_since = world.now();
  s.refusing_since = kNever;
  all.push_back(s.process);
  world.trace("engine {} starts as instance {}", slot, s.process->instance[0]);
}

void Cluster::crash(uint32_t slot, bool host_too) {
  Slot& s = slots[slot];
  if (!s.process) return;
  const ProcessPtr process = std::exchange(s.process, nullptr);
  process->alive = false;
  s.paused_until = 0;
  s.host_down = host_too;
  s.steady_since = world.now();
  s.refusing_since = host_too ? kNever : world.now();
  world.trace("engine {} dies{}", slot, host_too ? " with its host" : "");
  process->far->abandon();
  process->near->abandon();
  for (Slot& other : slots) {
    if (!other.process) continue;
    other.process->near->reset(slot);
    const uint32_t peer = other.process->slot;
    // Keep-alive of the control plane notices a host that is gone for good, or the new process that answers in its place.
    world.after(kKeepAlive, [slot, process = other.process, instance = process->instance] {
      if (process->alive && process->drivers.count(slot)) process->driver(slot).control_broken(instance);
    });
    if (host_too) continue;
    // Its kernel closes the lanes, where that gets through.
    for (auto& [key, connection] : process->lanes) {
      if (connection->initiator != other.process) continue;
      connection->target_closed = true;
      connection->back->send(40, [this, peer, slot, process = other.process, channel = connection->channel] {
        if (process->alive) process->far->reset_lane(channel);
      });
    }
    if (world.random.chance(0.8) && other.process->drivers.count(slot)) {
      world.after(network_latency(*this), [this, slot, peer = other.process, instance = process->instance] {
        if (peer->alive && reachable(slot, peer->slot)) peer->driver(slot).control_broken(instance);
      });
    }
  }
}

void Cluster::pause(uint32_t slot, Nanos for_how_long) {
  Slot& s = slots[slot];
  if (!s.process) return;
  s.paused_until = world.now() + for_how_long;
  s.steady_since = s.paused_until;
  world.trace("engine {} is stopped for {} ms", slot, for_how_long / kMillisecond);
}

void Cluster::reset(uint32_t a, uint32_t b) {
  world.trace("connections {}→{} are reset", a, b);
  last_reset[{a, b}] = world.now();
  const ProcessPtr process = slots[a].process;
  if (!process) return;
  process->far->reset(b);
  const ProcessPtr target = slots[b].process;
  if (!process->drivers.count(b) || !target) return;
  world.after(network_latency(*this), [process, b, instance = target->instance] {
    if (process->alive) process->driver(b).control_broken(instance);
  });
}

void Cluster::withdraw_region(uint32_t slot, uint64_t index) {
  if (!slots[slot].process) return;
  world.trace("engine {} unregisters region {}", slot, index);
  slots[slot].process->withdrawn[index] = true;
}

void Cluster::submit(const SimJobPtr& job) {
  world.trace("job {} {}→{}: {} of {} transfers, {} bytes, deadline {} ms{}", job->number, job->owner->slot, job->target,
              job->write() ? "write" : "read", job->job->count, job->job->bytes, (job->job->deadline - world.now()) / kMillisecond,
              job->notify ? ", notifies" : "");
  job->job->owner = job;
  oracle.submitted(job);
  job->owner->driver(job->target).handle([&](auto& session, Nanos now, auto& actions) { session.submit(job->job, now, actions); });
}

void Cluster::cancel(const SimJobPtr& job) {
  if (job->finished || !job->owner->alive) return;
  world.trace("job {} is canceled", job->number);
  job->canceled = true;
  job->canceled_at = world.now();
  job->owner->driver(job->target).handle([&](auto& session, Nanos now, auto& actions) { session.cancel(job->job, now, actions); });
}

Nanos Cluster::good_since(uint32_t a, uint32_t b, uint32_t rail) const {
  const Nanos link = network.good_since(a, b, rail);
  if (link == kNever || !slots[a].process || !slots[b].process || slots[b].paused_until > world.now()) return kNever;
  return std::max({link, slots[a].steady_since, slots[b].steady_since});
}

}  // namespace tidewire::sim
