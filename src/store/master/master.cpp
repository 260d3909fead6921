// SPDX-License-Identifier: Apache-2.0
//
// Who is there: clients, their segments and grants, and how a new master takes over.
#include "store/master/master.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace tidewire::store {
namespace {
constexpr int kSilentHeartbeats = 3;       // a live client that misses so many is suspect
constexpr Nanos kStep = 5 * kMillisecond;  // between two parts of a long sweep
}  // namespace

Result<std::unique_ptr<Master>> Master::start(MasterOptions options, const InstanceId& id, JournalState state,
                                              Journal& journal, MasterIo& io, Nanos now) {
  std::unique_ptr<Master> master(new Master(options, id, std::move(state), journal, io, now));
  const uint64_t term = master->journal_state_.term + 1;
  TW_RETURN_IF_ERROR(master->write_journal({{JournalRecord::Kind::kTerm, term, {}, {}}}));
  return master;
}

Master::Master(MasterOptions options, const InstanceId& id, JournalState state, Journal& journal, MasterIo& io,
               Nanos now)
    : options_(options),
      id_(id),
      journal_state_(std::move(state)),
      journal_(journal),
      io_(io),
      random_(options.seed),
      owners_may_be_stale_(journal_state_.fresh),
      takeover_until_(now + (journal_state_.fresh ? options.takeover : options.client_ttl)) {
  // A term may be used twice, by masters that don't know of each other's journal: their versions are not the same all
  // the same.
  sequence_ = (uint64_t{id[0]} << 24 | uint64_t{id[1]} << 16 | uint64_t{id[2]} << 8 | id[3]) << 7;
}

Status Master::write_journal(const std::vector<JournalRecord>& records) {
  TW_RETURN_IF_ERROR(journal_.append(records));
  for (const JournalRecord& record : records) journal_state_.apply(record);
  return Status();
}

Master::ClientPtr Master::client_of(ConnectionId connection) const {
  const auto found = by_connection_.find(connection);
  return found == by_connection_.end() ? nullptr : found->second;
}

uint64_t Master::ask(const Client& client, Body body) {
  const uint64_t request = ++last_request_;
  io_.send(client.connection, {request, false, std::move(body)});
  return request;
}

void Master::on_message(ConnectionId connection, Message message, Nanos now) {
  const uint64_t request = message.request;
  if (auto* attach = std::get_if<Attach>(&message.body)) {
    on_attach(connection, request, *attach, now);
    flush_drops(now);
    return;
  }
  const ClientPtr client = client_of(connection);
  if (!client) return answer(connection, request, CodeAnswer{Code::kClientNotFound});
  client->heard = now;
  if (client->state == State::kSuspect) {
    client->state = State::kLive;
    client->live_since = now;
    ask_grant(client, now);
  }
  if (message.answer) {
    on_answer(client, request, std::move(message.body), now);
  } else if (taking_over_ &&
             (std::holds_alternative<Remove>(message.body) || std::holds_alternative<RemoveMatching>(message.body))) {
    // Not before everybody who may hold the key is known.
    after_takeover_.emplace_back(connection, std::move(message));
  } else if (auto* get = std::get_if<Get>(&message.body)) {
    on_get(connection, request, *client, *get, now);
  } else if (auto* exists = std::get_if<Exists>(&message.body)) {
    on_exists(connection, request, *client, *exists, now);
  } else if (auto* start = std::get_if<PutStart>(&message.body)) {
    on_put_start(connection, request, client, std::move(*start), now);
  } else if (auto* end = std::get_if<PutEnd>(&message.body)) {
    on_put_end(connection, request, client, *end, now);
  } else if (auto* revoke = std::get_if<PutRevoke>(&message.body)) {
    on_put_revoke(connection, request, client, *revoke, now);
  } else if (auto* renew = std::get_if<PutRenew>(&message.body)) {
    on_put_renew(connection, request, client, *renew, now);
  } else if (auto* remove = std::get_if<Remove>(&message.body)) {
    on_remove(connection, request, *remove, now);
  } else if (auto* matching = std::get_if<RemoveMatching>(&message.body)) {
    on_remove_matching(connection, request, *matching, now);
  } else if (auto* chunk = std::get_if<InventoryChunk>(&message.body)) {
    on_inventory(client, request, std::move(*chunk), now);
  } else if (auto* mount = std::get_if<Mount>(&message.body)) {
    on_mount(client, mount->segment);
    // Answered once objects can be put there, so that whoever mounts knows it.
    mounts_waiting_.push_back({connection, request, mount->segment.ordinal, now + options_.put_wait});
  } else if (auto* unmounted = std::get_if<Unmount>(&message.body)) {
    const bool known = client->segments.contains(unmounted->ordinal);
    if (known) unmount(client, unmounted->ordinal, now);
    answer(connection, request, CodeAnswer{known ? Code::kOk : Code::kSegmentNotFound});
  } else if (std::holds_alternative<Heartbeat>(message.body)) {
    answer(connection, request, HeartbeatAnswer{});
  } else if (auto* report = std::get_if<ReportUnreadable>(&message.body)) {
    if (const auto owner = clients_.find(report->owner); owner != clients_.end() && ++owner->second->unreadable >= 3) {
      owner->second->shunned_until = now + options_.client_ttl;
      owner->second->unreadable = 0;
    }
    answer(connection, request, CodeAnswer{Code::kOk});
  } else {
    answer(connection, request, CodeAnswer{Code::kNotSupported});
  }
  for (const SegmentNumber number : std::exchange(pressed_, {})) keep_below_watermark(number, now);
  answer_mounts(now);
  if (space_freed_) retry_waiting_puts(now);
  flush_drops(now);
}

void Master::answer_mounts(Nanos now) {
  std::erase_if(mounts_waiting_, [&](const MountWaiting& waiting) {
    const ClientPtr client = client_of(waiting.connection);
    if (!client) return true;
    const auto segment = client->segments.find(waiting.ordinal);
    const bool known = segment != client->segments.end();
    if (known && !allocatable(*segments_[segment->second], now) && now < waiting.until) return false;
    answer(waiting.connection, waiting.request, CodeAnswer{known ? Code::kOk : Code::kSegmentNotFound});
    return true;
  });
}

void Master::on_attach(ConnectionId connection, uint64_t request, const Attach& attach, Nanos now) {
  AttachAnswer reply;
  reply.master = id_;
  reply.heartbeat = options_.heartbeat;
  reply.client_ttl = options_.client_ttl;
  reply.max_lease = options_.lease;
  if (attach.term > term() || (attach.term == term() && attach.master != id_)) {
    // It obeys somebody with such a term, or did: ours has to be higher, for versions are drawn from it, and written
    // down before it is proposed.
    if (const Status status = write_journal({{JournalRecord::Kind::kTerm, attach.term + 1, {}, {}}}); !status.ok()) {
      log::warn("store_journal", "the journal can't be written reason=\"{}\"", status.message());
      reply.code = Code::kUnavailable;
      return answer(connection, request, std::move(reply));
    }
    for (const auto& [id, client] : clients_) ask_grant(client, now);
  }
  if (owners_may_be_stale_ && attach.entries > 0) {
    // Whoever knows the highest generation missed nothing; that is known once all had time to come.
    candidates_[attach.client] = {attach.name, attach.generation};
    reply.code = Code::kUnavailable;
    return answer(connection, request, std::move(reply));
  }
  reply.term = term();
  reply.generation = journal_state_.generation;

  // A process that has the name of another one has taken its port: the other has ended.
  for (auto other = clients_.begin(); other != clients_.end();) {
    const ClientPtr former = (other++)->second;
    if (former->name == attach.name && former->id != attach.client && !in_contact(*former)) gone(former, true, now);
  }
  ClientPtr& client = clients_[attach.client];
  // It has obeyed another master, of before us or beside us: what we know of it is outdated, and that one's readers and
  // writers may be at work.
  const bool from_another = attach.master != id_ && attach.master != InstanceId{};
  const auto has_objects = [this](const auto& segment) { return segments_[segment.second]->objects > 0; };
  const bool emptied =
      client && attach.entries == 0 && std::any_of(client->segments.begin(), client->segments.end(), has_objects);
  if (client && (from_another || emptied)) {
    suspect(client, now);
    while (!client->segments.empty()) unmount(client, client->segments.begin()->first, now);
    client->inventory_done = false;
  }
  const bool returns = client && client->state != State::kGone && client->inventory_done;
  if (!client) client = std::make_shared<Client>();
  if (client->connection != 0) by_connection_.erase(client->connection);
  client->id = attach.client;
  client->name = attach.name;
  client->host_id = attach.host_id;
  client->connection = connection;
  client->state = State::kLive;
  client->live_since = now;
  client->heard = now;
  client->grant_request = 0;
  client->granted_until = 0;
  client->quiet_request = 0;
  if (from_another) {
    client->reads_until = 0;
    client->needs_quiet = true;
    // The other could lead readers to it as long as its grant lasted.
    client->old_leases_until = lease_end(now, options_.grant + options_.lease);
  }
  by_connection_[connection] = client;

  const auto member = journal_state_.members.find(attach.client);
  const bool is_member = member != journal_state_.members.end() && !member->second.gone;
  if (!is_member)
    while (!client->segments.empty()) unmount(client, client->segments.begin()->first, now);
  if (attach.entries > 0 && !is_member) {
    // Nobody noted what it missed. It clears its inventory and comes again.
    reply.inventory = InventoryWish::kClear;
    return answer(connection, request, std::move(reply));
  }
  // Before it holds anything: whatever it will have to forget must be noted under its name.
  if (!attach.segments.empty() && !is_member &&
      !write_journal({{JournalRecord::Kind::kMember, 0, attach.client, attach.name}}).ok()) {
    reply.code = Code::kUnavailable;
    return answer(connection, request, std::move(reply));
  }
  for (const SegmentInfo& segment : attach.segments) on_mount(client, segment);
  if (!returns) {
    // Ranges that readers may still have a lease on come with it, also when nothing else is there.
    client->inventory_done = attach.entries == 0 && !from_another;
    if (!client->inventory_done) reply.inventory = InventoryWish::kSend;
  }
  answer(connection, request, std::move(reply));
  ask_grant(client, now);
}

void Master::on_mount(const ClientPtr& client, const SegmentInfo& info) {
  const auto found = client->segments.find(info.ordinal);
  if (found != client->segments.end()) {
    Segment& segment = *segments_[found->second];
    segment.info.size = std::max(segment.info.size, info.size);
    segment.space.grow(info.size);
  } else {
    auto segment = std::make_unique<Segment>();
    segment->owner = client;
    segment->info = info;
    segment->space.grow(info.size);
    client->segments[info.ordinal] = static_cast<SegmentNumber>(segments_.size());
    segments_.push_back(std::move(segment));
    if (!journal_state_.members.contains(client->id)) {
      // A client that lends memory only now. Without the journal nothing can be noted under its name: nothing is put
      // there.
      if (!write_journal({{JournalRecord::Kind::kMember, 0, client->id, client->name}}).ok())
        unmount(client, info.ordinal, client->heard);
    }
  }
  space_freed_ = true;
}

void Master::on_inventory(const ClientPtr& client, uint64_t request, InventoryChunk chunk, Nanos now) {
  for (const Held& held : chunk.held) {
    const auto segment = client->segments.find(held.segment);
    if (segment == client->segments.end()) continue;
    Segment& there = *segments_[segment->second];
    if (!there.space.reserve(held.offset, held.size)) continue;
    there.held += held.size;
    holds_.push({lease_end(now, held.remaining), {held.offset, segment->second}, held.size});
  }
  for (const InventoryEntry& entry : chunk.entries) {
    if (adopt(client, entry, now) == Code::kOk) continue;
    // Readers that an earlier master led there may still be at it. What lies where something newer lies has no space to
    // give back.
    const auto removal =
        std::make_shared<Removal>(Removal{entry.key, entry.version, entry.size, client->old_leases_until});
    const auto segment = client->segments.find(entry.segment);
    const bool reserved =
        segment != client->segments.end() && segments_[segment->second]->space.reserve(entry.offset, entry.size);
    ++removal->answers_open;
    dropping_[entry.key].push_back(removal);
    queue_drop(client, {entry.key, entry.version}, std::max<Nanos>(client->old_leases_until - now, 0),
               {removal, {entry.offset, reserved ? segment->second : kNoSegment}});
  }
  answer(client->connection, request, CodeAnswer{Code::kOk});
  if (!chunk.last) return;
  client->inventory_done = true;
  space_freed_ = true;
  note_forgotten(client);
}

// An owner that has nothing left to drop has forgotten all that was noted for it.
void Master::note_forgotten(const ClientPtr& client) {
  if (!client->inventory_done || !client->pending.empty() || !client->drop.entries.empty()) return;
  const auto member = journal_state_.members.find(client->id);
  if (member != journal_state_.members.end() && !member->second.tombstones.empty() &&
      !write_journal({{JournalRecord::Kind::kForgot, 0, client->id, {}}}).ok()) {
    log::warn("store_journal", "the journal can't be written; {} is told again what it has forgotten", client->name);
    return;
  }
  if (client->granted_until != 0 && client->grant_generation < journal_state_.generation)
    ask_grant(client, client->heard);
}

// The generation that an owner may hear of: the present one says that it has nothing left to forget.
uint64_t Master::generation_for(const Client& client) const {
  const auto member = journal_state_.members.find(client.id);
  const bool owes = member != journal_state_.members.end() && !member->second.tombstones.empty();
  return owes || !client.inventory_done || !client.pending.empty() || !client.drop.entries.empty()
             ? 0
             : journal_state_.generation;
}

// Makes a replica that an owner reports part of the catalogue, unless it is outdated.
Code Master::adopt(const ClientPtr& client, const InventoryEntry& entry, Nanos now) {
  const auto ordinal = client->segments.find(entry.segment);
  if (ordinal == client->segments.end() || entry.key.empty() || entry.key.size() > kMaxKeyBytes)
    return Code::kSegmentNotFound;
  const auto member = journal_state_.members.find(client->id);
  if (member != journal_state_.members.end()) {
    const auto tombstone = member->second.tombstones.find(entry.key);
    if (tombstone != member->second.tombstones.end() && tombstone->second.contains(entry.version))
      return Code::kNotFound;
  }
  ObjectTable::Id id = table_.find(entry.key);
  if (id != ObjectTable::kNone && table_[id].version > entry.version) return Code::kInvalidVersion;
  if (id != ObjectTable::kNone && table_[id].version == entry.version)
    for (const Replica& present : table_[id].replicas())
      if (present.segment == ordinal->second && present.offset == entry.offset) return Code::kOk;  // told twice
  Segment& segment = *segments_[ordinal->second];
  if (!segment.space.reserve(entry.offset, entry.size)) return Code::kInvalidVersion;
  sequence_ =
      std::max(sequence_, term_of(entry.version) == term() ? entry.version & ((Version{1} << kSequenceBits) - 1) : 0);
  const Replica replica{entry.offset, ordinal->second};
  if (id != ObjectTable::kNone && table_[id].version < entry.version) {
    drop_object(id, now);
    id = ObjectTable::kNone;
  }
  std::vector<Replica> replicas;
  if (id == ObjectTable::kNone) {
    id = table_.insert(entry.key);
    Object& object = table_[id];
    object.version = entry.version;
    object.size = entry.size;
    object.checksum = entry.checksum;
    object.flags = entry.flags;
    object.lease_until = client->old_leases_until;
    eviction_.insert(id, ObjectTable::hash(entry.key), replica.segment, Eviction::kNone, now);
    pin(id, options_.soft_pin_ttl, now);
  } else {
    const auto present = table_[id].replicas();
    replicas.assign(present.begin(), present.end());
    table_[id].lease_until = std::max(table_[id].lease_until, client->old_leases_until);
  }
  replicas.push_back(replica);
  table_[id].set_replicas(replicas);
  ++segment.objects;
  return Code::kOk;
}

void Master::ask_grant(const ClientPtr& client, Nanos now) {
  if (client->connection == 0 || client->segments.empty()) return;
  client->grant_asked = now;
  client->grant_generation = generation_for(*client);
  client->grant_request = ask(*client, Grant{term(), id_, client->grant_generation, options_.grant});
}

// Once the writers of an earlier master have stopped, nothing that they sent may arrive in space that is given out
// again.
void Master::quiet_if_due(const ClientPtr& client, Nanos now) {
  if (!client->needs_quiet || client->quiet_request != 0 || client->granted_until == 0 || client->allocate_from > now)
    return;
  client->quiet_request = ask(*client, Quiet{term(), ClientId{}, {}});
}

void Master::on_grant_answer(const ClientPtr& client, const GrantAnswer& answer, Nanos now) {
  client->grant_request = 0;
  if (answer.code == Code::kOk && answer.term == term()) {
    const bool anew = client->granted_until == 0;
    if (anew) client->allocate_from = answer.wait > 0 ? lease_end(now, answer.wait) : now;
    client->granted_until = client->grant_asked + options_.grant;
    client->reads_until = client->granted_until;
    if (anew) replay(client);
    client->generation = std::max(client->generation, client->grant_generation);
    space_freed_ = true;
    check_generation();
    return;
  }
  client->granted_until = 0;
  if (answer.code != Code::kInvalidVersion || answer.term < term()) return;
  if (write_journal({{JournalRecord::Kind::kTerm, answer.term + 1, {}, {}}}).ok())
    for (const auto& [id, other] : clients_) ask_grant(other, now);
}

void Master::on_answer(const ClientPtr& client, uint64_t request, Body body, Nanos now) {
  if (request == client->grant_request) {
    if (const auto* grant = std::get_if<GrantAnswer>(&body)) on_grant_answer(client, *grant, now);
    return;
  }
  if (client->quiet_request != 0 && request == client->quiet_request) {
    const auto* code = std::get_if<CodeAnswer>(&body);
    client->quiet_request = 0;
    client->needs_quiet = code == nullptr || code->code != Code::kOk;
    space_freed_ = true;
    return;
  }
  const auto found = std::find_if(client->pending.begin(), client->pending.end(),
                                  [request](const Pending& each) { return each.request == request; });
  if (found == client->pending.end()) return;
  Pending pending = std::move(*found);
  client->pending.erase(found);
  const auto* codes = std::get_if<CodesAnswer>(&body);
  const auto code_at = [codes](size_t i) {
    return codes != nullptr && i < codes->codes.size() ? codes->codes[i] : Code::kInternal;
  };
  for (size_t i = 0; i < pending.recorded.size(); ++i)
    recorded(pending.recorded[i].token, pending.recorded[i].replica, code_at(i) == Code::kOk, now);
  bool obeyed = true;
  for (size_t i = 0; i < pending.dropped.size(); ++i) obeyed = obeyed && code_at(i) == Code::kOk;
  if (!obeyed) {
    // It has granted another term meanwhile; told again once it has granted ours.
    pending.recorded.clear();
    client->pending.push_front(std::move(pending));
    return;
  }
  for (Dropped& each : pending.dropped) dropped(each, now);
  for (const Version token : pending.quieted) quieted(token, now);
  note_forgotten(client);
}

// What it had not answered, in order: an owner takes everything twice without harm.
void Master::replay(const ClientPtr& client) {
  for (const Pending& pending : client->pending) {
    Body body = pending.body;
    if (auto* record = std::get_if<Record>(&body)) record->term = term();
    if (auto* drop = std::get_if<Drop>(&body)) drop->term = term();
    io_.send(client->connection, {pending.request, false, std::move(body)});
  }
}

void Master::on_closed(ConnectionId connection, Nanos now) {
  const ClientPtr client = client_of(connection);
  if (!client) return;
  by_connection_.erase(connection);
  client->connection = 0;
  suspect(client, now);
  std::erase_if(puts_waiting_, [connection](const PutWaiting& waiting) { return waiting.connection == connection; });
  std::erase_if(after_takeover_, [connection](const auto& entry) { return entry.first == connection; });
  flush_drops(now);
}

// Nothing is given out on it, and nobody waits for its answers; its replicas stay.
void Master::suspect(const ClientPtr& client, Nanos now) {
  if (client->state == State::kLive) client->state = State::kSuspect;
  client->granted_until = 0;
  client->quiet_request = 0;
  flush_drops(now);
  for (size_t p = 0; p < client->pending.size(); ++p) {
    std::vector<Recorded> failed = std::exchange(client->pending[p].recorded, {});
    for (const Recorded& each : failed) recorded(each.token, each.replica, false, now);
  }
  for (Pending& pending : client->pending) {
    for (Dropped& each : pending.dropped)
      if (!each.settled && leave_tombstone(client, *each.removal)) settle_for(each);
  }
  check_generation();
}

// What it holds is not part of the store any more; should it come back, it clears its inventory first.
void Master::gone(const ClientPtr& client, bool never_back, Nanos now) {
  suspect(client, now);
  if (journal_state_.members.contains(client->id)) {
    // Removals from now on are not noted for it: without the journal, the generation alone says that it missed them.
    std::vector<JournalRecord> records = {
        {never_back ? JournalRecord::Kind::kNeverBack : JournalRecord::Kind::kGone, 0, client->id, {}}};
    if (!never_back) records.push_back({JournalRecord::Kind::kGeneration, journal_state_.generation + 1, {}, {}});
    if (!write_journal(records).ok()) return;  // tried again at the next tick
  }
  client->state = State::kGone;
  if (!client->segments.empty())
    log::warn("store_client_gone", "{} is gone with its {} segments", client->name, client->segments.size());
  while (!client->segments.empty()) unmount(client, client->segments.begin()->first, now);
  for (Pending& pending : std::exchange(client->pending, {})) {
    for (Dropped& each : pending.dropped) dropped(each, now);
    for (const Version token : pending.quieted) quieted(token, now);
  }
  if (client->connection != 0) by_connection_.erase(client->connection);
  clients_.erase(client->id);
}

void Master::unmount(const ClientPtr& client, uint32_t ordinal, Nanos) {
  const auto found = client->segments.find(ordinal);
  Segment& segment = *segments_[found->second];
  segment.mounted = false;
  client->segments.erase(found);
  sweeping_ = true;  // objects lose their replicas there bit by bit; until then readers are not led there
  sweep_at_ = 0;
}

void Master::end_takeover(Nanos now) {
  std::vector<JournalRecord> records;
  if (owners_may_be_stale_) {
    if (now < takeover_until_) return;
    // Those of the highest generation missed nothing and become members; whoever comes later starts empty.
    uint64_t newest = journal_state_.generation;
    for (const auto& [id, candidate] : candidates_) newest = std::max(newest, candidate.generation);
    records.push_back({JournalRecord::Kind::kGeneration, newest + 1, {}, {}});
    for (const auto& [id, candidate] : candidates_)
      if (candidate.generation == newest) records.push_back({JournalRecord::Kind::kMember, 0, id, candidate.name});
    if (!write_journal(records).ok()) return;
    owners_may_be_stale_ = false;
    candidates_.clear();
    takeover_until_ = now + options_.client_ttl;
    records.clear();
  }
  std::vector<ClientId> missing;
  for (const auto& [id, member] : journal_state_.members) {
    const auto client = clients_.find(id);
    if (!member.gone && (client == clients_.end() || !client->second->inventory_done)) missing.push_back(id);
  }
  if (!missing.empty() && now < takeover_until_) return;
  // Removals from now on can't be told to those who did not come: they have to start empty when they do.
  for (const ClientId& id : missing) {
    const auto client = clients_.find(id);
    if (client == clients_.end()) {
      records.push_back({JournalRecord::Kind::kGone, 0, id, {}});
    } else if (in_contact(*client->second)) {
      return;  // its inventory is on its way
    } else {
      gone(ClientPtr(client->second), false, now);
      if (clients_.contains(id)) return;
    }
  }
  // What is outdated in the inventories goes before removals are answered.
  for (const auto& [id, client] : clients_)
    if (in_contact(*client) && !client->segments.empty() && (!client->pending.empty() || !client->drop.entries.empty()))
      return;
  if (!records.empty()) records.push_back({JournalRecord::Kind::kGeneration, journal_state_.generation + 1, {}, {}});
  if (!records.empty() && !write_journal(records).ok()) return;
  taking_over_ = false;
  for (auto& [connection, message] : std::exchange(after_takeover_, {}))
    on_message(connection, std::move(message), now);
}

Nanos Master::tick(Nanos now) {
  if (taking_over_) end_takeover(now);
  std::vector<ClientPtr> all;
  for (const auto& [id, client] : clients_) all.push_back(client);
  for (const ClientPtr& client : all) {
    const Nanos silent = now - client->heard;
    if (client->state == State::kLive && silent > std::min(kSilentHeartbeats * options_.heartbeat, options_.client_ttl))
      suspect(client, now);
    if (silent > options_.gone_after * options_.client_ttl) gone(client, false, now);
    if (in_contact(*client) && now - client->grant_asked >= options_.grant / 4) ask_grant(client, now);
    quiet_if_due(client, now);
  }
  if (std::exchange(tombstones_owed_, false))
    for (const ClientPtr& client : all)
      if (!in_contact(*client)) suspect(client, now);
  expire_attempts(now);
  release_held(now);
  release_pins(now);
  if (sweeping_) sweep(now);
  bool draining = false;
  for (SegmentNumber number = 0; number < segments_.size(); ++number) {
    keep_below_watermark(number, now);
    draining = draining || segments_[number]->draining;
  }
  flush_drops(now);
  answer_mounts(now);
  retry_waiting_puts(now);
  flush_drops(now);
  Nanos next = now + options_.heartbeat / 4;
  if (sweeping_ || !mounts_waiting_.empty() || !puts_waiting_.empty()) next = std::min(next, now + kStep);
  if (!holds_.empty()) next = std::min(next, holds_.top().until);
  if (!attempts_due_.empty()) next = std::min(next, attempts_due_.top().first);
  if (taking_over_) next = std::min(next, now + kStep);
  if (draining) next = now;
  return std::max(next, now + kMillisecond);
}

std::vector<Master::SegmentView> Master::segments() const {
  std::vector<SegmentView> views;
  for (const auto& segment : segments_)
    if (segment->mounted)
      views.push_back({segment->info.name, segment->owner->id, segment->space.size(), segment->space.used_bytes(),
                       segment->objects, in_contact(*segment->owner)});
  return views;
}

std::vector<Master::ClientView> Master::clients(Nanos now) const {
  static const char* const kNames[] = {"live", "suspect", "gone"};
  std::vector<ClientView> views;
  for (const auto& [id, client] : clients_)
    views.push_back({id, client->name, kNames[static_cast<int>(client->state)], now - client->heard,
                     in_contact(*client) ? now - client->live_since : 0});
  return views;
}

std::vector<std::string> Master::keys(size_t limit) const {
  std::vector<std::string> all;
  for (ObjectTable::Id id = 0; id < table_.end() && all.size() < limit; ++id)
    if (table_.used(id) && readable(table_[id])) all.emplace_back(table_[id].key());
  return all;
}

}  // namespace tidewire::store
