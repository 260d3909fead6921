// SPDX-License-Identifier: Apache-2.0
//
// How a new master comes to know what there is: from the inventories of owners, and from its journal what they have
// still to forget.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "store/master/master.h"

namespace tidewire::store {

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

}  // namespace tidewire::store
