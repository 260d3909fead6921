// SPDX-License-Identifier: Apache-2.0
#include "store/owner/inventory.h"

#include <algorithm>
#include <utility>

namespace tidewire::store {
namespace {
constexpr uint64_t kMaxChunkKeyBytes = 4 << 20;  // a message has room for four times as much
}

GrantAnswer Inventory::on_grant(const Grant& grant, Nanos now) {
  const auto asked = std::make_pair(grant.term, grant.master);
  const auto held = std::make_pair(term_, master_);
  if (asked < held) return {Code::kInvalidVersion, term_, 0};
  GrantAnswer answer{Code::kOk, grant.term, 0};
  if (asked > held) {
    // An earlier master's writers may be at work until its grant ends; the new one is told, and nobody prolongs the
    // old.
    answer.wait = std::max<Nanos>(granted_until_ - now, 0);
    term_ = grant.term;
    master_ = grant.master;
  }
  generation_ = std::max(generation_, grant.generation);
  granted_until_ = std::max(granted_until_, now + grant.lease);
  return answer;
}

CodesAnswer Inventory::on_record(const Record& record) {
  CodesAnswer answer;
  answer.codes.assign(record.entries.size(), Code::kInvalidVersion);
  if (!obeys(record.term)) return answer;
  for (size_t i = 0; i < record.entries.size(); ++i) {
    const InventoryEntry& entry = record.entries[i];
    if (entry.key.size() > kMaxKeyBytes) {
      answer.codes[i] = Code::kInvalidKey;
      continue;
    }
    if (taken_back_.contains(entry.segment)) {
      answer.codes[i] = Code::kSegmentNotFound;
      continue;
    }
    Copy former;
    take(entry.key, entry.version, &former);  // sent again after a lost answer
    drop_overlapping(entry);
    // By the master's clock, which counts, these leases had ended.
    std::erase_if(held_, [&entry](const auto& held) {
      const Held& range = held.second;
      return range.segment == entry.segment && range.offset < entry.offset + entry.size &&
             entry.offset < range.offset + range.size;
    });
    add(entry);
    answer.codes[i] = Code::kOk;
  }
  return answer;
}

CodesAnswer Inventory::on_drop(const Drop& drop, Nanos now) {
  CodesAnswer answer;
  answer.codes.assign(drop.entries.size(), Code::kInvalidVersion);
  if (!obeys(drop.term)) return answer;
  generation_ = std::max(generation_, drop.generation);
  std::erase_if(held_, [now](const auto& held) { return held.first <= now; });
  for (size_t i = 0; i < drop.entries.size(); ++i) {
    Copy entry;
    const bool found = take(drop.entries[i].key, drop.entries[i].version, &entry);
    if (found && i < drop.holds.size() && drop.holds[i] > 0)
      held_.push_back({now + drop.holds[i], {entry.segment, entry.offset, entry.size, 0}});
    answer.codes[i] = Code::kOk;
  }
  return answer;
}

InventoryChunk Inventory::next_chunk(Cursor* cursor, Nanos now) const {
  InventoryChunk chunk;
  uint64_t key_bytes = 0;
  auto next = places_.from({cursor->segment, cursor->offset});
  for (; next && chunk.entries.size() < kMaxBatch && key_bytes < kMaxChunkKeyBytes;
       next = places_.from({next->place.segment, next->place.offset + 1}))
    for_each_copy(next->id, [&](const Copy& copy) {
      if (copy.segment != next->place.segment || copy.offset != next->place.offset) return;
      chunk.entries.push_back(entry_of(next->id, copy));
      key_bytes += chunk.entries.back().key.size() + chunk.entries.back().group.size();
    });
  if (next) {
    *cursor = {next->place.segment, next->place.offset};
    return chunk;
  }
  chunk.last = true;
  for (const auto& [until, held] : held_)
    if (until > now) chunk.held.push_back({held.segment, held.offset, held.size, until - now});
  return chunk;
}

void Inventory::clear(Nanos max_lease, Nanos now) {
  const Nanos until = std::max(granted_until_, now) + max_lease + max_lease / 50;
  for (Id id = 0; id < table_.end(); ++id)
    if (table_.used(id))
      for_each_copy(id, [&](const Copy& copy) { held_.push_back({until, {copy.segment, copy.offset, copy.size, 0}}); });
  table_ = ObjectTable();
  older_.clear();
  groups_.clear();
  places_.clear();
  count_ = 0;
}

void Inventory::unmount(uint32_t segment) {
  taken_back_.insert(segment);
  for (auto next = places_.from({segment, 0}); next && next->place.segment == segment;
       next = places_.from({segment, 0}))
    remove_at(*next);
  std::erase_if(held_, [segment](const auto& held) { return held.second.segment == segment; });
}

std::optional<InventoryEntry> Inventory::find(std::string_view key) const {
  const Id id = table_.find(key);
  if (id == ObjectTable::kNone) return std::nullopt;
  return entry_of(id, newest(id));
}

Inventory::Copy Inventory::newest(Id id) const {
  const Object& object = table_[id];
  const Replica& replica = object.replicas().front();
  return {object.version, replica.offset, object.size, object.checksum, replica.segment, object.flags};
}

void Inventory::set_newest(Id id, const Copy& copy) {
  Object& object = table_[id];
  object.version = copy.version;
  object.size = copy.size;
  object.checksum = copy.checksum;
  object.flags = copy.flags;
  const Replica replica{copy.offset, copy.segment};
  object.set_replicas({&replica, 1});
}

template <typename Visit>
void Inventory::for_each_copy(Id id, Visit&& visit) const {
  if (!older_.empty())
    if (const auto older = older_.find(id); older != older_.end())
      for (const Copy& copy : older->second) visit(copy);
  visit(newest(id));
}

InventoryEntry Inventory::entry_of(Id id, const Copy& copy) const {
  InventoryEntry entry{
      std::string(table_[id].key()), copy.version, copy.segment, copy.offset, copy.size, copy.checksum, copy.flags, {}};
  if (groups_.empty()) return entry;
  if (const auto group = groups_.find({id, copy.version}); group != groups_.end()) entry.group = group->second;
  return entry;
}

// The key has no such version.
void Inventory::add(const InventoryEntry& entry) {
  Copy copy{entry.version, entry.offset, entry.size, entry.checksum, entry.segment, entry.flags};
  Id id = table_.find(entry.key);
  if (id == ObjectTable::kNone) {
    id = table_.insert(entry.key);
    set_newest(id, copy);
  } else {
    const Copy now = newest(id);
    if (copy.version > now.version) {
      set_newest(id, copy);
      copy = now;
    }
    std::vector<Copy>& older = older_[id];
    const auto after = std::upper_bound(older.begin(), older.end(), copy.version,
                                        [](Version version, const Copy& other) { return version < other.version; });
    older.insert(after, copy);
  }
  if (!entry.group.empty()) groups_[{id, entry.version}] = entry.group;
  places_.insert({entry.segment, entry.offset}, id);
  ++count_;
}

bool Inventory::take(std::string_view key, Version version, Copy* out) {
  const Id id = table_.find(key);
  if (id == ObjectTable::kNone) return false;
  *out = newest(id);
  const auto older = older_.find(id);
  if (out->version == version) {
    if (older == older_.end()) {
      table_.erase(id);
    } else {
      set_newest(id, older->second.back());
      older->second.pop_back();
    }
  } else {
    if (older == older_.end()) return false;
    const auto copy = std::find_if(older->second.begin(), older->second.end(),
                                   [version](const Copy& each) { return each.version == version; });
    if (copy == older->second.end()) return false;
    *out = *copy;
    older->second.erase(copy);
  }
  if (older != older_.end() && older->second.empty()) older_.erase(older);
  if (!groups_.empty()) groups_.erase({id, version});
  places_.erase({out->segment, out->offset});
  --count_;
  return true;
}

void Inventory::remove_at(PlaceOrder::Found found) {
  Version version = 0;
  for_each_copy(found.id, [&](const Copy& copy) {
    if (copy.segment == found.place.segment && copy.offset == found.place.offset) version = copy.version;
  });
  Copy gone;
  if (!take(std::string(table_[found.id].key()), version, &gone)) places_.erase(found.place);
}

// The master gives a range to one object at a time: what still lies there is something whose removal we were not told
// of.
void Inventory::drop_overlapping(const InventoryEntry& entry) {
  if (const auto before = places_.before({entry.segment, entry.offset})) {
    bool reaches = false;
    for_each_copy(before->id, [&](const Copy& copy) {
      reaches = reaches || (copy.segment == entry.segment && copy.offset == before->place.offset &&
                            copy.offset + copy.size > entry.offset);
    });
    if (reaches) remove_at(*before);
  }
  for (auto next = places_.from({entry.segment, entry.offset});
       next && next->place.segment == entry.segment && next->place.offset < entry.offset + entry.size;
       next = places_.from({entry.segment, entry.offset}))
    remove_at(*next);
}

}  // namespace tidewire::store
