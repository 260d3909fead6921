// SPDX-License-Identifier: Apache-2.0
#include "sim/store/cluster.h"

#include <algorithm>
#include <utility>

#include "sim/store/oracle.h"

namespace tidewire::store::simulation {
namespace {
constexpr Nanos kSilence = 3 * kSecond;  // a client whose requests go unanswered for so long tries another connection

template <typename Tests>
std::string name_of(const Tests& body) {
  static const char* const kNames[] = {"Attach", "AttachAnswer", "InventoryChunk", "Heartbeat", "HeartbeatAnswer", "Mount",
                                       "Unmount", "PutStart", "PutStartAnswer", "PutEnd", "PutRevoke", "PutRenew", "PutRenewAnswer", "Get",
                                       "GetAnswer", "Exists", "Remove", "RemoveMatching", "CountAnswer", "CodesAnswer", "CodeAnswer",
                                       "ReportUnreadable", "Grant", "GrantAnswer", "Record", "Drop", "Quiet"};
  return kNames[body.index()];
}
}  // namespace

// ---- masters

SimMaster::SimMaster(Cluster& cluster, uint32_t host, uint32_t number)
    : Process(cluster.world, fmt::format("master{}", number), host), cluster(cluster), number(number) {}

// Around everything that a master does: what it sent and counted in one step belongs together.
template <typename Step>
void SimMaster::step(Step step) {
  drops.clear();
  const uint64_t evicted = master->counters().evicted;
  step();
  if (master->counters().evicted != evicted) cluster.oracle->evicted(drops);
}

void SimMaster::send(ConnectionId id, Message message) {
  const auto found = connections.find(id);
  if (const auto* drop = std::get_if<Drop>(&message.body)) drops.insert(drops.end(), drop->entries.begin(), drop->entries.end());
  if (found == connections.end()) return;
  if (const auto* drop = std::get_if<Drop>(&message.body))
    for (const KeyVersion& entry : drop->entries) world.trace("{} tells {} to drop {} {:x}", name, found->second->client->name, entry.key, entry.version);
  cluster.oracle->master_sends(*this, *found->second, message);
  if (message.answer) open_requests.erase({id, message.request});
  if (auto* get = std::get_if<GetAnswer>(&message.body); get && cluster.mutations.readers_lease_too_long) get->lease *= 2;
  cluster.to_client(found->second, std::move(message));
}

Status SimMaster::append(const std::vector<JournalRecord>& records) {
  if (disk->full) {
    // What got there before the disk was full may be found by a successor.
    const auto kept = static_cast<size_t>(world.random.between(0, static_cast<int64_t>(records.size())));
    for (size_t i = 0; i < kept; ++i) disk->state.apply(records[i]);
    return Status::error(tidewire::Code::kNoResources, "the disk is full");
  }
  for (const JournalRecord& record : records) {
    if (cluster.mutations.forget_tombstones && record.kind == JournalRecord::Kind::kTombstone) continue;
    world.trace("{} notes {} {} {}", name, static_cast<int>(record.kind), record.number, record.text);
    disk->state.apply(record);
    cluster.oracle->noted(*this, record);
  }
  return Status();
}

void SimMaster::on_message(const ConnectionPtr& connection, Message message) {
  if (!connections.contains(connection->id)) return;
  world.trace("{} <- {} {}{} #{}", name, connection->client->name, name_of(message.body), message.answer ? " (answer)" : "", message.request);
  if (!message.answer) open_requests[{connection->id, message.request}] = world.now();
  step([&] { master->on_message(connection->id, std::move(message), clock()); });
}

void SimMaster::on_closed(const ConnectionPtr& connection) {
  if (connections.erase(connection->id) == 0) return;
  std::erase_if(open_requests, [&](const auto& request) { return request.first.first == connection->id; });
  step([&] { master->on_closed(connection->id, clock()); });
}

void SimMaster::tick() {
  Nanos next = 0;
  step([&] { next = master->tick(clock()); });
  after(std::max<Nanos>(world_time(next) - world.now(), kMillisecond), [this] { tick(); });
}

void SimMaster::crash() {
  if (!alive) return;
  world.trace("{} crashes", name);
  alive = false;
  forget_inbox();
  for (const auto& [id, connection] : std::exchange(connections, {})) cluster.break_connection(connection, world.random.chance(0.5));
}

// ---- clients

Client::Client(Cluster& cluster, uint32_t slot, uint32_t host, std::string name, const ClientId& id)
    : Process(cluster.world, std::move(name), host),
      cluster(cluster),
      slot(slot),
      membership(id, fmt::format("host{}:{}", host, 1000 + slot), fmt::format("host{}", host), *this) {}

void Client::lend(uint64_t size) {
  const uint32_t ordinal = next_ordinal_++;
  memory[ordinal].resize(size / kCell);
  membership.mount({ordinal, membership.id() == ClientId{} ? "" : fmt::format("host{}:{}", host, 1000 + slot), (ordinal + 1) * kBase, size}, clock());
}

Cell* Client::cells(uint64_t address, uint64_t count) {
  const auto segment = memory.find(static_cast<uint32_t>(address / kBase - 1));
  const uint64_t first = address % kBase / kCell;
  if (segment == memory.end() || first + count > segment->second.size()) return nullptr;
  return segment->second.data() + first;
}

uint64_t Client::session(const ClientId& writer) const {
  const auto found = cuts_.find(writer);
  return all_cuts_ + (found == cuts_.end() ? 0 : found->second);
}

void Client::ask(Body request, std::function<void(const Body* answer)> done) {
  const uint64_t number = ++next_request_;
  if (!connection) return after(kMicrosecond, [done = std::move(done)] { done(nullptr); });
  if (asked_.empty()) silent_since_ = clock();
  asked_[number] = std::move(done);
  cluster.to_master(connection, {number, false, std::move(request)});
}

void Client::answer(uint64_t request, Body body) {
  if (!connection) return;
  if (auto* grant = std::get_if<GrantAnswer>(&body); grant && cluster.mutations.ignore_grants) grant->wait = 0;
  cluster.to_master(connection, {request, true, std::move(body)});
}

void Client::quiet(const Quiet& wish, std::function<void()> done) {
  after(world.random.skewed(100 * kMicrosecond, kSecond), [this, wish, done = std::move(done)] {
    if (!cluster.mutations.quiet_without_cutting) {
      if (wish.writer == ClientId{}) {
        ++all_cuts_;
      } else {
        cut(wish.writer);
      }
    }
    done();
  });
}

void Client::connect() {
  if (!alive || connection || connecting_) return;
  connecting_ = true;
  after(world.random.skewed(kMillisecond, 300 * kMillisecond), [this] {
    connecting_ = false;
    // A stale address leads to a former master that still lives.
    SimMasterPtr master = cluster.current();
    if (!cluster.healed && world.random.chance(0.1))
      master = cluster.masters[static_cast<size_t>(world.random.between(0, static_cast<int64_t>(cluster.masters.size()) - 1))];
    if (!master || !master->alive || !cluster.network.reachable(host, master->host)) return connect();
    cluster.open(std::static_pointer_cast<Client>(shared_from_this()), master);
  });
}

void Client::on_message(const ConnectionPtr& from, Message message) {
  if (connection != from) return;
  world.trace("{} <- {} {}{} #{}", name, from->master->name, name_of(message.body), message.answer ? " (answer)" : "", message.request);
  silent_since_ = clock();
  if (message.answer) {
    const auto found = asked_.find(message.request);
    if (found == asked_.end()) return;
    const auto done = std::move(found->second);
    asked_.erase(found);
    if (const auto* attached = std::get_if<AttachAnswer>(&message.body)) {
      if (attached->code == Code::kOk && attached->inventory == InventoryWish::kClear) lost_at = world.now();
    }
    return done(&message.body);
  }
  if (auto* record = std::get_if<Record>(&message.body)) {
    if (cluster.mutations.ignore_grants) record->term = membership.inventory().term();
    if (cluster.mutations.acknowledge_without_recording)
      return answer(message.request, CodesAnswer{std::vector<Code>(record->entries.size(), Code::kOk)});
  }
  if (auto* drop = std::get_if<Drop>(&message.body)) {
    if (cluster.mutations.forget_held) drop->holds.clear();
    if (cluster.mutations.drop_nothing) return answer(message.request, CodesAnswer{std::vector<Code>(drop->entries.size(), Code::kOk)});
  }
  membership.on_request(message.request, message.body, clock());
}

void Client::fail_asked() {
  for (const auto& [number, done] : std::exchange(asked_, {})) done(nullptr);
}

void Client::on_closed(const ConnectionPtr& which) {
  if (connection != which) return;
  world.trace("{} lost its connection to {}", name, which->master->name);
  connection = nullptr;
  membership.on_disconnected();
  fail_asked();
  connect();
}

void Client::tick() {
  if (connection && !asked_.empty() && clock() - silent_since_ > kSilence) {
    const ConnectionPtr former = connection;
    cluster.break_connection(former, true);
    on_closed(former);
  }
  const Nanos next = membership.tick(clock());
  const Nanos wait = next == kNever ? 50 * kMillisecond : std::clamp<Nanos>(world_time(next) - world.now(), kMillisecond, 50 * kMillisecond);
  after(wait, [this] { tick(); });
}

void Client::crash() {
  if (!alive) return;
  world.trace("{} crashes", name);
  alive = false;
  if (connection) cluster.break_connection(std::exchange(connection, nullptr), world.random.chance(0.5));
  let_go();
}

void Client::let_go() {
  connection = nullptr;
  asked_.clear();
  forget_inbox();
}

// ---- the cluster

Cluster::Cluster(World& world, const MasterOptions& options, const Mutations& mutations)
    : world(world), network(world), options(options), mutations(mutations) {}

Cluster::~Cluster() {
  world.clear();
  for (const SimMasterPtr& master : masters) {
    master->connections.clear();
    master->forget_inbox();
  }
  for (const auto* all : {&clients, &former})
    for (const ClientPtr& client : *all) client->let_go();
}

InstanceId Cluster::new_id() {
  InstanceId id;
  for (uint8_t& byte : id) byte = static_cast<uint8_t>(world.random.next());
  return id;
}

bool Cluster::start_master(uint32_t host, bool keep_journal) {
  const SimMasterPtr former = current();
  auto master = std::make_shared<SimMaster>(*this, host, static_cast<uint32_t>(masters.size()));
  if (keep_journal && former) {
    if (former->alive) {
      // The storage is fenced: the former master can write no more.
      master->disk = std::make_shared<Disk>(*former->disk);
      former->disk->full = true;
    } else {
      master->disk = former->disk;
    }
  } else {
    master->disk = std::make_shared<Disk>();
  }
  master->began_fresh = master->disk->state.fresh;
  MasterOptions with_seed = options;
  with_seed.seed = world.random.next();
  Result<std::unique_ptr<Master>> started = Master::start(with_seed, new_id(), master->disk->state, *master, *master, master->clock());
  if (!started.ok()) return false;
  world.trace("{} starts at host {}, {} journal", master->name, host, master->began_fresh ? "without a" : "with its");
  master->master = std::move(*started);
  masters.push_back(master);
  oracle->master_started(*master);
  master->tick();
  return true;
}

void Cluster::start_client(uint32_t slot, uint32_t host, uint64_t memory) {
  if (clients.size() <= slot) {
    clients.resize(slot + 1);
    lent.resize(slot + 1);
  }
  lent[slot] = memory;
  auto client = std::make_shared<Client>(*this, slot, host, fmt::format("client{}.{}", slot, former.size()), new_id());
  clients[slot] = client;
  if (memory > 0) client->lend(memory);
  client->tick();
  client->connect();
}

void Cluster::restart_client(uint32_t slot) {
  const ClientPtr before = clients[slot];
  before->crash();
  former.push_back(before);
  start_client(slot, before->host, lent[slot]);
}

ClientPtr Cluster::find(const ClientId& id) const {
  for (const ClientPtr& client : clients)
    if (client->membership.id() == id) return client;
  for (const ClientPtr& client : former)
    if (client->membership.id() == id) return client;
  return nullptr;
}

void Cluster::open(const ClientPtr& client, const SimMasterPtr& master) {
  auto connection = std::make_shared<Connection>();
  connection->id = ++last_connection_;
  connection->client = client;
  connection->master = master;
  client->connection = connection;
  master->connections[connection->id] = connection;
  client->membership.on_connected(client->clock());
}

void Cluster::to_master(const ConnectionPtr& connection, Message message) {
  const Nanos sent = std::max(world.now(), network.heals_at(connection->client->host, connection->master->host));
  connection->master_gets = std::max(connection->master_gets + 1, sent + network.delay());
  world.at(connection->master_gets, [connection, message = std::move(message)]() mutable {
    if (connection->broken) return;
    connection->master->deliver([connection, message = std::move(message)]() mutable { connection->master->on_message(connection, std::move(message)); });
  });
}

void Cluster::to_client(const ConnectionPtr& connection, Message message) {
  const Nanos sent = std::max(world.now(), network.heals_at(connection->client->host, connection->master->host));
  connection->client_gets = std::max(connection->client_gets + 1, sent + network.delay());
  world.at(connection->client_gets, [connection, message = std::move(message)]() mutable {
    if (connection->broken) return;
    connection->client->deliver([connection, message = std::move(message)]() mutable { connection->client->on_message(connection, std::move(message)); });
  });
}

void Cluster::break_connection(const ConnectionPtr& connection, bool abrupt) {
  if (std::exchange(connection->closing, true)) return;
  connection->broken = abrupt;
  const Nanos client_knows = std::max(connection->client_gets, world.now()) + world.random.skewed(kMillisecond, 2 * kSecond);
  const Nanos master_knows = std::max(connection->master_gets, world.now()) + world.random.skewed(kMillisecond, 5 * kSecond);
  world.at(client_knows, [connection] {
    connection->client->deliver([connection] { connection->client->on_closed(connection); });
  });
  world.at(master_knows, [connection] {
    connection->master->deliver([connection] { connection->master->on_closed(connection); });
  });
}

}  // namespace tidewire::store::simulation
