// SPDX-License-Identifier: Apache-2.0
//
// ObjectTable: the catalogue's objects by key. An object has a dense number (its slot, reused after erase) and a fixed
// address; keys are found through open-addressing tables in shards, so that a growing table moves one shard's entries
// at a time and never makes everybody wait. Per object of a key of 64 bytes: 64 bytes of Object, 80 of key, about 15 of
// table. Not thread-safe: the master's thread owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "store/types.h"

namespace tidewire::store {

struct Replica {
  uint64_t offset = 0;
  uint32_t segment = 0;  // the master's number of a mounted segment
};

class Object {
 public:
  std::string_view key() const { return {key_.get(), key_length_}; }
  std::span<const Replica> replicas() const { return {count_ == 1 ? &one_ : more_.get(), count_}; }
  void set_replicas(std::span<const Replica> replicas);

  Version version = 0;
  uint64_t size = 0;
  uint64_t checksum = 0;
  Nanos lease_until = 0;  // no reader's lease is longer
  uint32_t flags = 0;     // as in InventoryEntry

 private:
  friend class ObjectTable;
  uint16_t key_length_ = 0;
  uint8_t count_ = 0;
  bool used_ = false;
  std::unique_ptr<char[]> key_;
  Replica one_;
  std::unique_ptr<Replica[]> more_;
};

class ObjectTable {
 public:
  using Id = uint32_t;
  static constexpr Id kNone = UINT32_MAX;

  ObjectTable();
  // kNone when there is none.
  Id find(std::string_view key) const;
  // The same for many keys: what they need of memory is fetched ahead, which is most of what a find costs.
  void find(std::span<const std::string> keys, Id* found) const;
  // `key` must not be there.
  Id insert(std::string_view key);
  void erase(Id id);
  Object& operator[](Id id) { return chunks_[id / kChunk][id % kChunk]; }
  const Object& operator[](Id id) const { return chunks_[id / kChunk][id % kChunk]; }
  size_t size() const { return size_; }
  static uint64_t hash(std::string_view key);

  // Ids lie below this; used() tells those that have an object.
  Id end() const { return static_cast<Id>(chunks_.size() * kChunk); }
  bool used(Id id) const { return (*this)[id].used_; }

 private:
  struct Entry {
    Id id = kNone;
    uint32_t tag = 0;  // the hash's lower half
  };
  struct Shard {
    std::vector<Entry> entries;  // a power of two
    size_t used = 0;
  };
  static constexpr size_t kChunk = 4096;
  static constexpr size_t kShards = 256;

  Id find(std::string_view key, uint64_t hashed) const;
  static void place(std::vector<Entry>& entries, Entry entry);
  void grow(Shard& shard);
  Id new_slot();

  std::vector<Shard> shards_;
  std::vector<std::unique_ptr<Object[]>> chunks_;
  std::vector<Id> free_;
  Id next_ = 0;
  size_t size_ = 0;
};

}  // namespace tidewire::store
