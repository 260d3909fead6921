// SPDX-License-Identifier: Apache-2.0
#include "store/master/object_table.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tidewire::store {
namespace {
constexpr size_t kFirstEntries = 16;
// Longer probe sequences cost more than the memory that a fuller table saves.
bool too_full(size_t used, size_t entries) {
  return used * 8 >= entries * 7;
}
}  // namespace

void Object::set_replicas(std::span<const Replica> replicas) {
  count_ = static_cast<uint8_t>(replicas.size());
  if (replicas.size() == 1) {
    one_ = replicas.front();
    more_.reset();
    return;
  }
  std::unique_ptr<Replica[]> copy(replicas.empty() ? nullptr : new Replica[replicas.size()]);
  std::copy(replicas.begin(), replicas.end(), copy.get());
  more_ = std::move(copy);
}

ObjectTable::ObjectTable() : shards_(kShards) {
  for (Shard& shard : shards_) shard.entries.resize(kFirstEntries);
}

// The upper bits choose the shard, the lower half is tag and place in it.
uint64_t ObjectTable::hash(std::string_view key) {
  return XXH3_64bits(key.data(), key.size());
}

ObjectTable::Id ObjectTable::find(std::string_view key) const {
  return find(key, hash(key));
}

void ObjectTable::find(std::span<const std::string> keys, Id* found) const {
  constexpr size_t kTogether = 32;
  uint64_t hashes[kTogether];
  Id likely[kTogether];
  for (size_t from = 0; from < keys.size(); from += kTogether) {
    const size_t count = std::min(kTogether, keys.size() - from);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = hash(keys[from + i]);
      const Shard& shard = shards_[hashes[i] >> 56];
      __builtin_prefetch(&shard.entries[static_cast<uint32_t>(hashes[i]) & (shard.entries.size() - 1)]);
    }
    for (size_t i = 0; i < count; ++i) {
      const Shard& shard = shards_[hashes[i] >> 56];
      const size_t mask = shard.entries.size() - 1;
      const auto tag = static_cast<uint32_t>(hashes[i]);
      size_t at = tag & mask;
      while (shard.entries[at].id != kNone && shard.entries[at].tag != tag) at = (at + 1) & mask;
      likely[i] = shard.entries[at].id;
      if (likely[i] == kNone) continue;
      const Object& object = (*this)[likely[i]];
      __builtin_prefetch(&object.key_length_);
      __builtin_prefetch(&object, 1);
    }
    for (size_t i = 0; i < count; ++i)
      if (likely[i] != kNone) {
        const char* key = (*this)[likely[i]].key_.get();
        __builtin_prefetch(key);
        __builtin_prefetch(key + (*this)[likely[i]].key_length_ - 1);
      }
    for (size_t i = 0; i < count; ++i) found[from + i] = likely[i] == kNone ? kNone : find(keys[from + i], hashes[i]);
  }
}

ObjectTable::Id ObjectTable::find(std::string_view key, uint64_t hashed) const {
  const Shard& shard = shards_[hashed >> 56];
  const size_t mask = shard.entries.size() - 1;
  const auto tag = static_cast<uint32_t>(hashed);
  for (size_t at = tag & mask;; at = (at + 1) & mask) {
    const Entry& entry = shard.entries[at];
    if (entry.id == kNone) return kNone;
    if (entry.tag == tag && (*this)[entry.id].key() == key) return entry.id;
  }
}

void ObjectTable::place(std::vector<Entry>& entries, Entry entry) {
  const size_t mask = entries.size() - 1;
  size_t at = entry.tag & mask;
  while (entries[at].id != kNone) at = (at + 1) & mask;
  entries[at] = entry;
}

void ObjectTable::grow(Shard& shard) {
  std::vector<Entry> larger(shard.entries.size() * 2);
  for (const Entry& entry : shard.entries)
    if (entry.id != kNone) place(larger, entry);
  shard.entries = std::move(larger);
}

ObjectTable::Id ObjectTable::new_slot() {
  if (!free_.empty()) {
    const Id id = free_.back();
    free_.pop_back();
    return id;
  }
  if (next_ == end()) chunks_.push_back(std::make_unique<Object[]>(kChunk));
  return next_++;
}

ObjectTable::Id ObjectTable::insert(std::string_view key) {
  assert(key.size() <= kMaxKeyBytes && find(key) == kNone);
  const uint64_t hashed = hash(key);
  Shard& shard = shards_[hashed >> 56];
  if (too_full(shard.used + 1, shard.entries.size())) grow(shard);
  const Id id = new_slot();
  Object& object = (*this)[id];
  object.used_ = true;
  object.key_length_ = static_cast<uint16_t>(key.size());
  object.key_.reset(new char[key.size()]);
  std::memcpy(object.key_.get(), key.data(), key.size());
  place(shard.entries, {id, static_cast<uint32_t>(hashed)});
  ++shard.used;
  ++size_;
  return id;
}

void ObjectTable::erase(Id id) {
  Object& object = (*this)[id];
  const uint64_t hashed = hash(object.key());
  Shard& shard = shards_[hashed >> 56];
  const size_t mask = shard.entries.size() - 1;
  size_t hole = static_cast<uint32_t>(hashed) & mask;
  while (shard.entries[hole].id != id) hole = (hole + 1) & mask;
  // What follows moves up where the hole would otherwise cut it off from its place.
  for (size_t at = (hole + 1) & mask; shard.entries[at].id != kNone; at = (at + 1) & mask) {
    const size_t home = shard.entries[at].tag & mask;
    if (((at - home) & mask) < ((at - hole) & mask)) continue;
    shard.entries[hole] = shard.entries[at];
    hole = at;
  }
  shard.entries[hole] = Entry{};
  --shard.used;
  --size_;
  object = Object();
  free_.push_back(id);
}

}  // namespace tidewire::store
