// SPDX-License-Identifier: Apache-2.0
//
// Cluster: engines in the simulated world. A Slot is an address at which processes come and go; a Process is one incarnation of an engine: its
// instance id, memory and regions, the target's side (lane ledger, notification inbox: the real ones) and the initiator's side (sessions, transports).
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "control/notify_ledger.h"
#include "engine/session.h"
#include "sim/oracle.h"
#include "transport/tcp/lane_ledger.h"

namespace tidewire::sim {

class Driver;
class FarTransport;
class NearTransport;
struct Connection;

constexpr uint64_t kRegionBytes = 32 << 10;
constexpr uint64_t kReadOnlyOffset = 1ull << 32;  // a region that refuses writes
constexpr uint64_t kNowhereOffset = 1ull << 33;   // never registered
constexpr uint64_t kLocalOffset = 1ull << 34;     // initiators' ranges

struct Process : std::enable_shared_from_this<Process> {
  Process(Cluster& cluster, uint32_t slot, InstanceId instance, uint64_t base);
  ~Process();

  // Whether the target's rules let an operation touch the range.
  Status check(uint64_t address, uint64_t length, bool write) const;
  uint8_t* at(uint64_t address);
  PeerRecord record() const;
  Driver& driver(uint32_t target);

  Cluster& cluster;
  const uint32_t slot;
  const InstanceId instance;
  const uint64_t base;
  bool alive = true;
  Nanos started = 0;
  std::vector<uint8_t> memory;        // what peers reach, from base
  std::vector<uint8_t> local_memory;  // what its own jobs use, from base + kLocalOffset
  std::vector<bool> withdrawn;        // regions that were unregistered
  // Target's side.
  transport::tcp::LaneLedger ledger;
  control::NotifyInbox inbox;
  std::map<std::pair<InstanceId, uint64_t>, std::shared_ptr<Connection>> lanes;
  // Initiator's side.
  std::unique_ptr<FarTransport> far;
  std::unique_ptr<NearTransport> near;
  std::map<uint32_t, std::unique_ptr<Driver>> drivers;
};
using ProcessPtr = std::shared_ptr<Process>;

struct Slot {
  ProcessPtr process;          // null: nobody listens
  bool host_down = false;      // and nobody refuses either
  Nanos paused_until = 0;
  uint32_t host = 0;           // equal numbers share memory
  uint64_t next_offset = 64;   // of ranges at this target, disjoint over all incarnations
  uint64_t next_local = 64;    // of local ranges
  Nanos steady_since = 0;      // last start, stop, pause or end of a pause
  Nanos refusing_since = kNever;  // since when nobody has listened while the host answers
};

struct Settings {
  engine::SessionOptions session;
  uint32_t lanes_per_pair = 1;
  Nanos stall_timeout = 500 * kMillisecond;
  bool reorder_actions = false;   // actions are carried out by several threads
  double connection_loss = 0;     // chance that a lane is reset, each time it carries a slice
  double fetch_faults = 0;
  bool no_route = false;          // the control plane hears of a partition at once, as a missing route
  double near_unsupported = 0;
  Nanos processing = 50 * kMicrosecond;
  double linger = 0.5;            // chance that bytes of a closed lane still arrive
};

class Cluster {
 public:
  Cluster(World& world, uint32_t engines, uint32_t rails, const Settings& settings, const Mutations& mutations);
  ~Cluster();

  void start(uint32_t slot, bool same_base);
  // The process is gone at once: its kernel resets its connections, unless the host went with it.
  void crash(uint32_t slot, bool host_too);
  void pause(uint32_t slot, Nanos for_how_long);
  // Every lane and control connection between the two breaks.
  void reset(uint32_t a, uint32_t b);
  void withdraw_region(uint32_t slot, uint64_t index);
  void submit(const SimJobPtr& job);
  void cancel(const SimJobPtr& job);
  bool reachable(uint32_t from, uint32_t to) { return network.both_ways(from, to, 0); }
  // Since when the two have been steady and connected by the rail.
  Nanos good_since(uint32_t a, uint32_t b, uint32_t rail) const;

  World& world;
  const Settings settings;
  const Mutations mutations;
  Network network;  // before what is in its streams
  Oracle oracle;
  std::vector<Slot> slots;
  std::map<std::pair<uint32_t, uint32_t>, Nanos> control_faults;  // last injected fault of a fetch, by (from, to)
  std::map<std::pair<uint32_t, uint32_t>, Nanos> last_reset;      // of the connections between two
  std::vector<std::weak_ptr<Connection>> connections;
  std::vector<ProcessPtr> all;  // dead ones too: late events refer to them

 private:
  InstanceId next_instance();
};

}  // namespace tidewire::sim
