// SPDX-License-Identifier: Apache-2.0
//
// Inventory: what an owner knows of the replicas in its segments. It is the truth that a master's catalogue is an index
// of: it outlives masters, and a new one builds its catalogue from it. A state machine without I/O: a master's request
// and the time in, the answer out. Not thread-safe.
//
// An owner obeys the master of the highest (term, id) that it has granted, and no other. The grant also is the right to
// give out space here, for a time; whoever comes with a higher term learns how long writers of the one before may still
// be at it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "store/master/object_table.h"
#include "store/messages.h"
#include "store/owner/place_order.h"

namespace tidewire::store {

class Inventory {
 public:
  // The answer to Grant, Record and Drop.
  GrantAnswer on_grant(const Grant& grant, Nanos now);
  CodesAnswer on_record(const Record& record);
  CodesAnswer on_drop(const Drop& drop, Nanos now);

  // What an Attach says of the inventory.
  uint64_t term() const { return term_; }
  const InstanceId& master() const { return master_; }
  uint64_t generation() const { return generation_; }
  size_t size() const { return count_; }

  // A master that wants the inventory gets all of it, in chunks, in the order of places; the last one says so. What is
  // recorded or dropped between two chunks may be in them or not: the master did that itself.
  struct Cursor {
    uint32_t segment = 0;
    uint64_t offset = 0;  // the first that was not sent yet
  };
  InventoryChunk next_chunk(Cursor* cursor, Nanos now) const;
  // Everything: this owner missed removals. Readers may still be at it for `max_lease` after the grant has run out.
  void clear(Nanos max_lease, Nanos now);
  // The segment is not lent any more.
  void unmount(uint32_t segment);

  // The newest version of a key here.
  std::optional<InventoryEntry> find(std::string_view key) const;

 private:
  using Id = ObjectTable::Id;
  // One version of a key here.
  struct Copy {
    Version version = 0;
    uint64_t offset = 0, size = 0, checksum = 0;
    uint32_t segment = 0, flags = 0;
  };
  bool obeys(uint64_t term) const { return term == term_; }
  Copy newest(Id id) const;
  void set_newest(Id id, const Copy& copy);
  void add(const InventoryEntry& entry);
  // Removes this version of the key; false when there was none.
  bool take(std::string_view key, Version version, Copy* out);
  // Removes whichever version lies there.
  void remove_at(PlaceOrder::Found found);
  void drop_overlapping(const InventoryEntry& entry);
  InventoryEntry entry_of(Id id, const Copy& copy) const;
  template <typename Visit>
  void for_each_copy(Id id, Visit&& visit) const;

  uint64_t term_ = 0;
  InstanceId master_{};
  Nanos granted_until_ = 0;
  uint64_t generation_ = 0;
  size_t count_ = 0;
  ObjectTable table_;                      // the newest version of each key, in its one replica
  std::map<Id, std::vector<Copy>> older_;  // of keys with several versions, oldest first
  std::map<std::pair<Id, Version>, std::string> groups_;
  PlaceOrder places_;
  std::vector<std::pair<Nanos, Held>> held_;
  std::set<uint32_t> taken_back_;  // segments: what is still to be recorded there comes too late
};

}  // namespace tidewire::store
