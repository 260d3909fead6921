// SPDX-License-Identifier: Apache-2.0
//
// The simulated cluster: masters and their journals, clients with their memory, and the connections between them. The real Master and Membership run
// in it; what the network and the disk do to them is drawn from the world's random numbers.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/store/network.h"
#include "store/client/membership.h"
#include "store/master/master.h"

namespace tidewire::store::simulation {

// Rules that are broken on purpose, by wrappers around messages, options and the journal: the oracle has to notice.
struct Mutations {
  bool readers_lease_too_long = false;   // readers are told twice the lease that the master keeps
  bool writers_ignore_leases = false;    // they go on writing, and nothing cuts them
  bool acknowledge_without_recording = false;
  bool ignore_grants = false;            // owners obey every master, and masters don't wait for each other
  bool forget_tombstones = false;        // the journal keeps none
  bool quiet_without_cutting = false;
  bool forget_held = false;              // owners don't report ranges under leases
  bool drop_nothing = false;             // owners confirm drops without dropping
  bool commit_unwritten = false;         // writers say that all bytes are there when they are not
};

// What is on a master's disk. One master at a time writes it.
struct Disk {
  JournalState state;
  bool full = false;
};

struct Client;
struct SimMaster;
struct Connection {
  ConnectionId id = 0;
  std::shared_ptr<Client> client;
  std::shared_ptr<SimMaster> master;
  bool closing = false;
  bool broken = false;                     // what is still under way is lost
  Nanos client_gets = 0, master_gets = 0;  // when the last message of each direction arrives
};
using ConnectionPtr = std::shared_ptr<Connection>;

class Oracle;
class Cluster;

struct SimMaster : Process, MasterIo, Journal {
  SimMaster(Cluster& cluster, uint32_t host, uint32_t number);
  void send(ConnectionId connection, Message message) override;
  Status append(const std::vector<JournalRecord>& records) override;

  void on_message(const ConnectionPtr& connection, Message message);
  void on_closed(const ConnectionPtr& connection);
  void tick();
  void crash();

  Cluster& cluster;
  const uint32_t number;
  std::shared_ptr<Disk> disk;
  std::unique_ptr<Master> master;
  std::map<ConnectionId, ConnectionPtr> connections;
  bool began_fresh = false, knows_generation = false, was_paused = false;
  std::map<std::pair<ConnectionId, uint64_t>, Nanos> open_requests;  // since when
  std::vector<KeyVersion> drops;  // sent in the step under way

 private:
  template <typename Step>
  void step(Step step);
};
using SimMasterPtr = std::shared_ptr<SimMaster>;

// 64 bytes of memory: which write put them there, and which part of its object they are.
struct Cell {
  uint32_t pattern = 0;
  uint32_t part = 0;
  friend bool operator==(const Cell&, const Cell&) = default;
};
constexpr uint64_t kCell = SegmentAllocator::kAlignment;
constexpr uint64_t kBase = 1 << 20;  // address of segment 0; segment n is at (n + 1) * kBase

struct Client : Process, Membership::Io {
  Client(Cluster& cluster, uint32_t slot, uint32_t host, std::string name, const ClientId& id);
  void ask(Body request, std::function<void(const Body* answer)> done) override;
  void answer(uint64_t request, Body body) override;
  void quiet(const Quiet& wish, std::function<void()> done) override;
  void on_standing() override {}

  // Begins to connect to the master that it finds.
  void connect();
  void on_message(const ConnectionPtr& connection, Message message);
  void on_closed(const ConnectionPtr& connection);
  void lend(uint64_t size);  // one more segment
  void tick();
  void crash();
  void let_go();  // of all that refers to others
  Cell* cells(uint64_t address, uint64_t count);  // nullptr: not lent
  // Everything that the writer sent until now is not placed any more.
  void cut(const ClientId& writer) { ++cuts_[writer]; }
  uint64_t session(const ClientId& writer) const;
  uint64_t last_request() const { return next_request_; }

  Cluster& cluster;
  const uint32_t slot;
  Membership membership;
  ConnectionPtr connection;
  std::map<uint32_t, std::vector<Cell>> memory;  // by segment
  Nanos lost_at = 0;  // when a master last gave up what it holds
  uint32_t busy = 0;                             // operations under way

 private:
  void fail_asked();
  uint64_t next_request_ = 0;
  std::map<uint64_t, std::function<void(const Body*)>> asked_;
  std::map<ClientId, uint64_t> cuts_;
  uint64_t all_cuts_ = 0;
  bool connecting_ = false;
  Nanos silent_since_ = 0;
  uint32_t next_ordinal_ = 0;
};
using ClientPtr = std::shared_ptr<Client>;

class Cluster {
 public:
  Cluster(World& world, const MasterOptions& options, const Mutations& mutations);
  ~Cluster();

  // A new one at `host`; with the journal of the one before, or without any. False when it could not begin (a full disk).
  bool start_master(uint32_t host, bool keep_journal);
  void start_client(uint32_t slot, uint32_t host, uint64_t memory);
  void restart_client(uint32_t slot);
  ClientPtr find(const ClientId& id) const;
  InstanceId new_id();

  void open(const ClientPtr& client, const SimMasterPtr& master);
  void to_master(const ConnectionPtr& connection, Message message);
  void to_client(const ConnectionPtr& connection, Message message);
  // Both ends learn of it in time; `abrupt`: what is under way is lost.
  void break_connection(const ConnectionPtr& connection, bool abrupt);

  SimMasterPtr current() const { return masters.empty() ? nullptr : masters.back(); }
  bool is_current(const SimMaster& master) const { return current().get() == &master; }

  World& world;
  Network network;
  const MasterOptions options;
  const Mutations mutations;
  Oracle* oracle = nullptr;
  std::vector<SimMasterPtr> masters;  // the last one is where clients are led to
  std::vector<ClientPtr> clients;     // by slot: the latest incarnation
  std::vector<ClientPtr> former;      // dead ones
  std::vector<uint64_t> lent;         // by slot
  bool healed = false;

 private:
  ConnectionId last_connection_ = 0;
};

}  // namespace tidewire::store::simulation
