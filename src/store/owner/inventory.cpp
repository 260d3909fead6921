// SPDX-License-Identifier: Apache-2.0
#include "store/owner/inventory.h"

#include <algorithm>
#include <iterator>
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
    if (taken_back_.contains(entry.segment)) {
      answer.codes[i] = Code::kSegmentNotFound;
      continue;
    }
    InventoryEntry former;
    take(entry.key, entry.version, &former);  // sent again after a lost answer
    drop_overlapping(entry);
    // By the master's clock, which counts, these leases had ended.
    std::erase_if(held_, [&entry](const auto& held) {
      const Held& range = held.second;
      return range.segment == entry.segment && range.offset < entry.offset + entry.size &&
             entry.offset < range.offset + range.size;
    });
    std::vector<InventoryEntry>& versions = entries_[entry.key];
    const auto after =
        std::upper_bound(versions.begin(), versions.end(), entry.version,
                         [](Version version, const InventoryEntry& other) { return version < other.version; });
    versions.insert(after, entry);
    by_place_[{entry.segment, entry.offset}] = {entry.key, entry.version};
    ++count_;
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
    InventoryEntry entry;
    const bool found = take(drop.entries[i].key, drop.entries[i].version, &entry);
    if (found && i < drop.holds.size() && drop.holds[i] > 0)
      held_.push_back({now + drop.holds[i], {entry.segment, entry.offset, entry.size, 0}});
    answer.codes[i] = Code::kOk;
  }
  return answer;
}

InventoryChunk Inventory::next_chunk(Cursor* cursor, Nanos now) const {
  InventoryChunk chunk;
  auto place = by_place_.lower_bound({cursor->segment, cursor->offset});
  uint64_t key_bytes = 0;
  for (; place != by_place_.end() && chunk.entries.size() < kMaxBatch && key_bytes < kMaxChunkKeyBytes; ++place)
    for (const InventoryEntry& entry : entries_.at(place->second.first))
      if (entry.version == place->second.second) {
        key_bytes += entry.key.size() + entry.group.size();
        chunk.entries.push_back(entry);
      }
  if (place != by_place_.end()) {
    *cursor = {place->first.segment, place->first.offset};
    return chunk;
  }
  chunk.last = true;
  for (const auto& [until, held] : held_)
    if (until > now) chunk.held.push_back({held.segment, held.offset, held.size, until - now});
  return chunk;
}

void Inventory::forget(const std::vector<KeyVersion>& entries) {
  InventoryEntry entry;
  for (const KeyVersion& name : entries) take(name.key, name.version, &entry);
}

void Inventory::clear(Nanos max_lease, Nanos now) {
  const Nanos until = std::max(granted_until_, now) + max_lease + max_lease / 50;
  for (const auto& [key, versions] : entries_)
    for (const InventoryEntry& entry : versions) held_.push_back({until, {entry.segment, entry.offset, entry.size, 0}});
  entries_.clear();
  by_place_.clear();
  count_ = 0;
}

void Inventory::unmount(uint32_t segment) {
  taken_back_.insert(segment);
  const auto first = by_place_.lower_bound({segment, 0});
  const auto last = by_place_.lower_bound({segment + 1, 0});
  std::vector<KeyVersion> gone;
  for (auto place = first; place != last; ++place) gone.push_back({place->second.first, place->second.second});
  forget(gone);
  std::erase_if(held_, [segment](const auto& held) { return held.second.segment == segment; });
}

const InventoryEntry* Inventory::find(const std::string& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second.back();
}

bool Inventory::take(const std::string& key, Version version, InventoryEntry* out) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return false;
  std::vector<InventoryEntry>& versions = found->second;
  const auto entry = std::find_if(versions.begin(), versions.end(),
                                  [version](const InventoryEntry& each) { return each.version == version; });
  if (entry == versions.end()) return false;
  *out = std::move(*entry);
  versions.erase(entry);
  if (versions.empty()) entries_.erase(found);
  by_place_.erase({out->segment, out->offset});
  --count_;
  return true;
}

// The master gives a range to one object at a time: what still lies there is something whose removal we were not told
// of.
void Inventory::drop_overlapping(const InventoryEntry& entry) {
  auto place = by_place_.lower_bound({entry.segment, entry.offset});
  if (place != by_place_.begin()) {
    const auto before = std::prev(place);
    const auto [key, version] = before->second;
    for (const InventoryEntry& other : entries_[key])
      if (other.version == version && before->first.segment == entry.segment &&
          other.offset + other.size > entry.offset)
        place = before;
  }
  std::vector<KeyVersion> gone;
  for (; place != by_place_.end() && place->first < Place{entry.segment, entry.offset + entry.size}; ++place)
    gone.push_back({place->second.first, place->second.second});
  forget(gone);
}

}  // namespace tidewire::store
