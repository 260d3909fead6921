// SPDX-License-Identifier: Apache-2.0
//
// Who is there: clients and their segments, the grants of owners, what they have not answered, and when they are given
// up.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "store/master/master.h"

namespace tidewire::store {
namespace {
constexpr int kUnreadableReports = 3;  // within a client_ttl
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
    while (!client->segments.empty()) unmount(client, client->segments.begin()->first);
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
    while (!client->segments.empty()) unmount(client, client->segments.begin()->first);
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
        unmount(client, info.ordinal);
    }
  }
  space_freed_ = true;
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

// Readers could not reach it several times in a short while: nothing is put there for a time, whatever it says itself.
void Master::on_unreadable(const ReportUnreadable& report, Nanos now) {
  const auto found = clients_.find(report.owner);
  if (found == clients_.end()) return;
  Client& owner = *found->second;
  if (now - owner.unreadable_since > options_.client_ttl) {
    owner.unreadable = 0;
    owner.unreadable_since = now;
  }
  if (++owner.unreadable < kUnreadableReports) return;
  owner.unreadable = 0;
  owner.shunned_until = now + options_.client_ttl;
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
  flush_drops();
}

// Nothing is given out on it, and nobody waits for its answers; its replicas stay.
void Master::suspect(const ClientPtr& client, Nanos now) {
  if (client->state == State::kLive) client->state = State::kSuspect;
  client->granted_until = 0;
  client->quiet_request = 0;
  flush_drops();
  for (size_t p = 0; p < client->pending.size(); ++p) {
    std::vector<Recorded> failed = std::exchange(client->pending[p].recorded, {});
    for (const Recorded& each : failed) recorded(each.token, each.replica, false, now);
  }
  // Their attempts have failed, and drops follow. Sent again they could displace what another master has put there
  // meanwhile.
  std::erase_if(client->pending, [](const Pending& pending) { return std::holds_alternative<Record>(pending.body); });
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
  while (!client->segments.empty()) unmount(client, client->segments.begin()->first);
  for (Pending& pending : std::exchange(client->pending, {})) {
    for (Dropped& each : pending.dropped) dropped(each, now);
    for (const Version token : pending.quieted) quieted(token, now);
  }
  if (client->connection != 0) by_connection_.erase(client->connection);
  clients_.erase(client->id);
}

void Master::unmount(const ClientPtr& client, uint32_t ordinal) {
  const auto found = client->segments.find(ordinal);
  Segment& segment = *segments_[found->second];
  segment.mounted = false;
  client->segments.erase(found);
  sweeping_ = true;  // objects lose their replicas there bit by bit; until then readers are not led there
  sweep_at_ = 0;
}

}  // namespace tidewire::store
