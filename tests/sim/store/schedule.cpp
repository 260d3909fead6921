// SPDX-License-Identifier: Apache-2.0
#include "sim/store/schedule.h"

#include <algorithm>

#include "sim/store/actors.h"

namespace tidewire::store::simulation {
namespace {

constexpr Nanos kChaos = 14 * kSecond;  // operations and faults begin within it
constexpr Nanos kSlowReaders = 60 * kSecond;
constexpr Nanos kReadableAgain = 5 * kSecond;  // after a master's restart with all owners alive

MasterOptions draw_options(tidewire::sim::Random& random) {
  MasterOptions options;
  options.lease = random.between(1, 6) * kSecond;
  options.client_ttl = random.between(3, 6) * kSecond;
  options.high_watermark = 0.01 * static_cast<double>(random.between(60, 100));
  options.evict_soft_pinned = random.chance(0.5);
  return options;
}

class Schedule {
 public:
  Schedule(World& world, Cluster& cluster, Oracle& oracle)
      : world_(world), cluster_(cluster), oracle_(oracle), random_(world.random), start_(world.now()) {}

  void run() {
    begin();
    world_.run(start_ + kChaos + 2 * kSecond);
    heal();
    const MasterOptions& options = cluster_.options;
    // Whoever is not heard of is suspect by then, takeovers have ended, and what writers left has been cleaned up.
    world_.run(world_.now() + options.client_ttl + options.lease + 4 * kSecond);
    if (!world_.failed()) oracle_.check_readable("after all was healed");
    restart_at_last();
    world_.run(world_.now() + kReadableAgain);
    if (!world_.failed()) oracle_.check_readable("5 s after the master's restart");
    for (const ClientPtr& client : cluster_.clients)
      for (const std::string& key : keys_) get(client, oracle_, key, {0, 2});
    world_.run(world_.now() + options.lease + 4 * kSecond);
    oracle_.clearing();
    // Not from the one that is just losing its connection.
    cluster_.clients[0]->ask(RemoveMatching{"", true}, [](const Body*) {});
    world_.run(world_.now() + options.lease * 102 / 100 + 5 * kSecond);
    if (!world_.failed()) oracle_.check_empty();
    // A slow reader whose lease ran out begins again, a few times.
    const auto busy = [](const ClientPtr& client) { return client->busy > 0; };
    const Nanos patience = world_.now() + kSlowReaders;
    while (!world_.failed() && world_.now() < patience &&
           std::any_of(cluster_.clients.begin(), cluster_.clients.end(), busy))
      world_.run(world_.now() + kSecond);
    for (const ClientPtr& client : cluster_.clients)
      if (!world_.failed() && client->busy > 0)
        world_.fail("{} operations of {} have not ended", client->busy, client->name);
  }

 private:
  void begin() {
    cluster_.start_master(100, false);
    const auto owners = static_cast<uint32_t>(random_.between(2, 4));
    const auto others = static_cast<uint32_t>(random_.between(1, 2));
    const uint64_t memory = kCell * static_cast<uint64_t>(random_.between(24, 200));
    for (uint32_t slot = 0; slot < owners + others; ++slot)
      cluster_.start_client(slot, slot, slot < owners ? memory : 0);
    const int64_t keys = random_.between(2, 8);
    for (int64_t i = 0; i < keys; ++i) keys_.push_back(fmt::format("key{}", i));
    largest_ = random_.chance(0.3) ? memory / 2 : memory / 8;
    const int64_t operations = random_.skewed(30, 160);
    for (int64_t i = 0; i < operations; ++i) world_.at(start_ + random_.between(0, kChaos), [this] { operate(); });
    const int64_t faults = random_.chance(0.1) ? 0 : random_.between(1, 8);
    for (int64_t i = 0; i < faults; ++i) world_.at(start_ + random_.between(kSecond, kChaos), [this] { fault(); });
  }

  const ClientPtr& any() {
    return cluster_.clients[static_cast<size_t>(random_.between(0, static_cast<int64_t>(cluster_.clients.size()) - 1))];
  }
  const std::string& any_key() {
    return keys_[static_cast<size_t>(random_.between(0, static_cast<int64_t>(keys_.size()) - 1))];
  }

  void operate() {
    const ClientPtr client = any();
    if (!client->alive) return;
    client->deliver([this, client] {
      const int64_t kind = random_.between(0, 99);
      if (kind < 45) return begin_put(client);
      if (kind < 80) {
        GetStyle style;
        style.pace = random_.chance(0.2) ? random_.between(0, cluster_.options.lease) : 0;
        return get(client, oracle_, any_key(), style);
      }
      if (kind < 95) return remove(client, oracle_, {any_key()}, random_.chance(0.5));
      exists(client, {any_key(), any_key()});
    });
  }

  void begin_put(const ClientPtr& client) {
    PutStyle style;
    style.upsert = random_.chance(0.6);
    style.pace = random_.chance(cluster_.mutations.ignore_grants ? 0.7 : 0.15) ? random_.between(0, 2 * kSecond) : 0;
    style.dies = random_.chance(0.08);
    style.confirms = random_.chance(0.5);
    std::vector<PutWish> wishes(static_cast<size_t>(random_.skewed(1, 4)));
    for (PutWish& wish : wishes) {
      // Many keys of one use fill the memory.
      wish.key = random_.chance(0.7) ? any_key() : fmt::format("once{}", ++once_);
      if (wish.key[0] == 'o' && random_.chance(0.3)) keys_.push_back(wish.key);
      wish.size = static_cast<uint64_t>(random_.skewed(1, static_cast<int64_t>(largest_)));
      wish.options.replicas = random_.chance(0.7) ? 1 : 2;
      wish.options.soft_pin = static_cast<PinAction>(random_.between(0, 2));
      wish.options.hard_pin = random_.chance(0.03);
    }
    put(client, oracle_, std::move(wishes), style);
  }

  void fault() {
    const SimMasterPtr master = cluster_.current();
    const ClientPtr client = any();
    switch (random_.between(0, 12)) {
      case 0:
      case 1:
        master->crash();
        return start_another(random_.skewed(10 * kMillisecond, 4 * kSecond), random_.chance(0.7));
      case 2:  // the old one is thought to be dead
        if (random_.chance(0.5)) stop(*master, random_.between(0, 15 * kSecond));
        isolate(*master);
        return start_another(random_.skewed(10 * kMillisecond, 4 * kSecond), random_.chance(0.6));
      case 3:
        return stop(*master, random_.skewed(10 * kMillisecond, 10 * kSecond));
      case 4:
      case 5: {
        const uint32_t slot = client->slot;
        client->crash();
        world_.after(random_.skewed(10 * kMillisecond, 6 * kSecond), [this, slot] {
          if (!cluster_.clients[slot]->alive) cluster_.restart_client(slot);
        });
        return;
      }
      case 6:
      case 7:
        return client->pause(random_.skewed(10 * kMillisecond, 12 * kSecond));
      case 8:
        return part(client, *master, random_.skewed(10 * kMillisecond, 8 * kSecond));
      case 9:
        return cluster_.network.cut(client->host, any()->host, random_.skewed(10 * kMillisecond, 8 * kSecond));
      case 10:
        if (client->connection) cluster_.break_connection(client->connection, true);
        return;
      case 11:
        world_.trace("the disk of {} is full", master->name);
        master->disk->full = true;
        world_.after(random_.between(0, 6 * kSecond), [disk = master->disk, master, this] {
          if (cluster_.is_current(*master)) disk->full = false;
        });
        return;
      case 12:
        if (client->alive && !client->paused() && !client->memory.empty()) change_segments(client);
        return;
    }
  }

  void change_segments(const ClientPtr& client) {
    if (random_.chance(0.5)) return client->lend(kCell * static_cast<uint64_t>(random_.between(24, 100)));
    const uint32_t ordinal = client->memory.begin()->first;
    world_.trace("{} takes back its segment {}", client->name, ordinal);
    client->lost_at = world_.now();
    client->membership.unmount(ordinal, [client, ordinal] { client->memory.erase(ordinal); });
  }

  void stop(SimMaster& master, Nanos time) {
    master.was_paused = true;
    master.pause(time);
  }

  // Some clients stay in contact with it, others lose it.
  void isolate(SimMaster& master) {
    const double share = 0.1 * static_cast<double>(random_.between(0, 10));
    for (const ClientPtr& client : cluster_.clients)
      if (random_.chance(share)) part(client, master, random_.between(0, 10 * kSecond));
  }

  void part(const ClientPtr& client, SimMaster& master, Nanos time) {
    cluster_.network.cut(client->host, master.host, time);
    if (client->connection && client->connection->master.get() == &master && random_.chance(0.5))
      cluster_.break_connection(client->connection, true);
  }

  void start_another(Nanos delay, bool keep_journal) {
    world_.after(delay, [this, keep_journal, before = cluster_.current()] {
      if (cluster_.current() != before || cluster_.healed) return;  // somebody else did
      const uint32_t host = 100 + static_cast<uint32_t>(cluster_.masters.size());
      if (!cluster_.start_master(host, keep_journal)) start_another(100 * kMillisecond, keep_journal);
    });
  }

  void heal() {
    world_.trace("all is healed");
    cluster_.healed = true;
    cluster_.network.heal();
    const SimMasterPtr current = cluster_.current();
    current->disk->full = false;
    for (const SimMasterPtr& master : cluster_.masters)
      if (master != current) master->crash();
    if (!current->alive) cluster_.start_master(100 + static_cast<uint32_t>(cluster_.masters.size()), true);
    current->wake_now();
    for (uint32_t slot = 0; slot < cluster_.clients.size(); ++slot) {
      cluster_.clients[slot]->wake_now();
      if (!cluster_.clients[slot]->alive) cluster_.restart_client(slot);
    }
  }

  void restart_at_last() {
    if (world_.failed()) return;
    cluster_.current()->crash();
    // Nobody is given up now: all owners are alive.
    cluster_.start_master(100 + static_cast<uint32_t>(cluster_.masters.size()), random_.chance(0.7));
  }

  World& world_;
  Cluster& cluster_;
  Oracle& oracle_;
  tidewire::sim::Random& random_;
  const Nanos start_;
  std::vector<std::string> keys_;
  uint64_t once_ = 0;
  uint64_t largest_ = 0;
};

}  // namespace

Outcome random_schedule(uint64_t seed, const Mutations& mutations, bool tracing) {
  World world(seed, tracing);
  MasterOptions options = draw_options(world.random);
  // Held ranges matter when leases outlast a takeover.
  if (mutations.forget_held) options.lease = 20 * kSecond;
  Cluster cluster(world, options, mutations);
  Oracle oracle(world, cluster);
  cluster.oracle = &oracle;
  Schedule schedule(world, cluster, oracle);
  schedule.run();
  Outcome outcome;
  outcome.violation = world.violation();
  outcome.events = world.events();
  outcome.reads = oracle.reads;
  outcome.acked = oracle.acked;
  outcome.removals = oracle.removals;
  outcome.evictions = oracle.evictions;
  outcome.discarded = oracle.discarded;
  outcome.abandoned = oracle.abandoned;
  outcome.masters = cluster.masters.size();
  outcome.no_space = oracle.no_space;
  return outcome;
}

}  // namespace tidewire::store::simulation
