// SPDX-License-Identifier: Apache-2.0
//
// Taking objects away: their owners drop them, or the journal remembers it for those that can't be reached.
#include <algorithm>
#include <regex>
#include <utility>

#include "base/log.h"
#include "store/master/master.h"

namespace tidewire::store {
namespace {
constexpr size_t kSweepObjects = 20'000;    // in one step, well under a millisecond per 10,000
constexpr size_t kMaxTombstones = 100'000;  // of one owner; one that misses more starts empty
}  // namespace

void Master::on_remove(ConnectionId connection, uint64_t request, const Remove& remove, Nanos now) {
  auto waiting = std::make_shared<Waiting>(
      Waiting{connection, request, std::vector<Code>(remove.keys.size(), Code::kNotFound), remove.keys.size() + 1});
  for (size_t i = 0; i < remove.keys.size(); ++i) {
    const ObjectTable::Id id = table_.find(remove.keys[i]);
    if (id == ObjectTable::kNone || !readable(table_[id])) {
      finish(waiting, i, Code::kNotFound);
    } else {
      remove_object(id, remove.force, waiting, i, now);
    }
  }
  finish(waiting, SIZE_MAX, Code::kOk);
}

void Master::on_remove_matching(ConnectionId connection, uint64_t request, const RemoveMatching& remove, Nanos now) {
  // Matching takes time and stack in proportion to the key, whatever the pattern; patterns with back-references are
  // refused for that.
  std::regex pattern;
  try {
    pattern.assign(remove.pattern, std::regex::ECMAScript | std::regex::optimize | std::regex_constants::__polynomial);
  } catch (const std::regex_error&) {
    return answer(connection, request, CountAnswer{Code::kInvalidParams, 0});
  }
  std::vector<ObjectTable::Id> found;
  for (ObjectTable::Id id = 0; id < table_.end(); ++id) {
    if (!table_.used(id) || !readable(table_[id])) continue;
    const std::string_view key = table_[id].key();
    if (remove.pattern.empty() || std::regex_search(key.begin(), key.end(), pattern)) found.push_back(id);
  }
  auto waiting = std::make_shared<Waiting>(
      Waiting{connection, request, std::vector<Code>(found.size(), Code::kNotFound), found.size() + 1, true});
  for (size_t i = 0; i < found.size(); ++i) remove_object(found[i], remove.force, waiting, i, now);
  finish(waiting, SIZE_MAX, Code::kOk);
}

Code Master::remove_object(ObjectTable::Id id, bool force, const WaitingPtr& waiting, size_t index, Nanos now) {
  const Object& object = table_[id];
  if (!force && object.lease_until > now) {
    finish(waiting, index, Code::kHasLease);
    return Code::kHasLease;
  }
  ++counters_.removed;
  wait_for_key(waiting, std::string(object.key()));
  const RemovalPtr removal = drop_object(id, now);
  removal->waiting = waiting;
  removal->index = index;
  settle(removal);
  return Code::kOk;
}

Master::RemovalPtr Master::drop_object(ObjectTable::Id id, Nanos now) {
  const Object& object = table_[id];
  for (const Replica& replica : object.replicas()) --segments_[replica.segment]->objects;
  const RemovalPtr removal =
      drop_replicas(std::string(object.key()), object.version, object.size, object.replicas(), object.lease_until, now);
  eviction_.erase(id);
  table_.erase(id);
  return removal;
}

Master::RemovalPtr Master::drop_replicas(const std::string& key, Version version, uint64_t size,
                                         std::span<const Replica> replicas, Nanos hold_until, Nanos now) {
  auto removal = std::make_shared<Removal>(Removal{key, version, size, hold_until});
  removal->generation = journal_state_.generation;
  for (const Replica& replica : replicas) {
    const Segment& segment = *segments_[replica.segment];
    if (!segment.mounted) continue;
    Dropped dropped{removal, replica};
    ++removal->answers_open;
    if (!in_contact(*segment.owner) && leave_tombstone(segment.owner, *removal)) settle_for(dropped);
    queue_drop(segment.owner, {key, version}, std::max<Nanos>(hold_until - now, 0), std::move(dropped));
  }
  if (removal->answers_open > 0) dropping_[key].push_back(removal);
  return removal;
}

void Master::queue_drop(const ClientPtr& client, KeyVersion entry, Nanos hold, Dropped dropped) {
  client->drop.entries.push_back(std::move(entry));
  client->drop.holds.push_back(hold);
  client->dropped.push_back(std::move(dropped));
  if (client->drop.entries.size() >= kMaxCollected) flush_drops();
}

// All that has collected goes to the owners, one message for each.
void Master::flush_drops() {
  for (const auto& [id, client] : clients_) {
    if (client->drop.entries.empty()) continue;
    Pending pending;
    client->drop.term = term();
    client->drop.generation = 0;  // the next grant tells it, once the owner has forgotten all that it has to
    pending.dropped = std::exchange(client->dropped, {});
    pending.body = std::exchange(client->drop, {});
    pending.request = ++last_request_;
    if (client->connection != 0) io_.send(client->connection, {pending.request, false, pending.body});
    client->pending.push_back(std::move(pending));
  }
}

void Master::dropped(Dropped& dropped, Nanos now) {
  if (dropped.replica.segment != kNoSegment)
    give_back(dropped.replica, dropped.removal->size, dropped.removal->hold_until, now);
  if (!dropped.settled) settle_for(dropped);
}

void Master::settle_for(Dropped& dropped) {
  dropped.settled = true;
  --dropped.removal->answers_open;
  settle(dropped.removal);
}

void Master::also_wait(const WaitingPtr& waiting, const RemovalPtr& removal) {
  if (!waiting) return;
  ++waiting->open;
  removal->waiting = waiting;
  removal->index = SIZE_MAX;
  settle(removal);
}

void Master::settle(const RemovalPtr& removal) {
  if (removal->answers_open > 0) return;
  if (const auto key = dropping_.find(removal->key); key != dropping_.end()) {
    std::erase(key->second, removal);
    if (key->second.empty()) dropping_.erase(key);
  }
  if (!removal->waiting && removal->later.empty()) return;
  for (const auto& [id, client] : clients_)
    if (in_contact(*client) && !client->segments.empty() && client->generation < removal->generation)
      return waiting_for_generation_.push_back(removal);
  finish(std::exchange(removal->waiting, nullptr), removal->index, Code::kOk);
  for (const WaitingPtr& waiting : std::exchange(removal->later, {})) finish(waiting, SIZE_MAX, Code::kOk);
}

void Master::wait_for_key(const WaitingPtr& waiting, const std::string& key) {
  const auto found = dropping_.find(key);
  if (!waiting || found == dropping_.end()) return;
  for (const RemovalPtr& removal : found->second) {
    ++waiting->open;
    removal->later.push_back(waiting);
  }
}

// Notes what an unreachable owner has to forget. The first time that it misses something, all the others learn a new
// generation, so that even without the journal it would be known as the one that missed something. False when the
// journal can't be written: then the removal waits for the owner.
bool Master::leave_tombstone(const ClientPtr& client, Removal& removal) {
  const auto member = journal_state_.members.find(client->id);
  if (member == journal_state_.members.end() || member->second.gone) return true;
  std::vector<JournalRecord> records;
  const bool first = member->second.tombstones.empty();
  if (first) records.push_back({JournalRecord::Kind::kGeneration, journal_state_.generation + 1, {}, {}});
  if (member->second.tombstones.size() >= kMaxTombstones) {
    records.push_back({JournalRecord::Kind::kGone, 0, client->id, {}});
  } else {
    records.push_back({JournalRecord::Kind::kTombstone, removal.version, client->id, removal.key});
  }
  if (const Status status = write_journal(records); !status.ok()) {
    log::warn("store_journal", "a removal waits for {}: the journal can't be written reason=\"{}\"", client->name,
              status.message());
    tombstones_owed_ = true;
    return false;
  }
  ++counters_.tombstones;
  removal.generation = journal_state_.generation;
  if (first)
    for (const auto& [id, other] : clients_)
      if (in_contact(*other)) ask_grant(other, other->heard);
  return true;
}

void Master::check_generation() {
  for (const RemovalPtr& removal : std::exchange(waiting_for_generation_, {})) settle(removal);
}

void Master::finish(const WaitingPtr& waiting, size_t index, Code code) {
  if (!waiting) return;
  if (index < waiting->codes.size()) waiting->codes[index] = code;
  if (--waiting->open > 0) return;
  if (!waiting->counts) return answer(waiting->connection, waiting->request, CodesAnswer{std::move(waiting->codes)});
  const auto count = static_cast<uint64_t>(std::count(waiting->codes.begin(), waiting->codes.end(), Code::kOk));
  answer(waiting->connection, waiting->request, CountAnswer{Code::kOk, count});
}

// Takes replicas in unmounted segments out of the catalogue, a part at a time.
void Master::sweep(Nanos now) {
  std::vector<Replica> left;
  const ObjectTable::Id end = std::min<uint64_t>(table_.end(), uint64_t{sweep_at_} + kSweepObjects);
  for (; sweep_at_ < end; ++sweep_at_) {
    if (!table_.used(sweep_at_)) continue;
    Object& object = table_[sweep_at_];
    left.clear();
    for (const Replica& replica : object.replicas())
      if (segments_[replica.segment]->mounted) left.push_back(replica);
    if (left.size() == object.replicas().size()) continue;
    if (left.empty()) {
      eviction_.erase(sweep_at_);
      table_.erase(sweep_at_);
    } else {
      const bool first_gone = left.front().segment != object.replicas().front().segment;
      object.set_replicas(left);
      if (first_gone) relist(sweep_at_, now);
    }
  }
  if (sweep_at_ >= table_.end()) sweeping_ = false;
}

}  // namespace tidewire::store
