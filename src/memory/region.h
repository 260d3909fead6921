// SPDX-License-Identifier: Apache-2.0
//
// Regions: the registered ranges of local memory, and the rules by which work touches them.
//
// A region is *used* by each slice or frame in flight that covers part of it (RangeHold), and *pinned* for the
// microseconds in which a system call or copy touches its bytes (RegionPin). Removal drains: new uses are refused at
// once, existing ones may finish for a bounded time, then the region is cut: further pins fail, the last pin is
// awaited, and after that nothing touches the memory again.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "memory/memory_kind.h"
#include "memory/writer_first_mutex.h"

namespace tidewire {

enum class Permission : uint8_t { kNone = TW_REMOTE_NONE, kRead = TW_REMOTE_READ, kReadWrite = TW_REMOTE_READ_WRITE };
// What a caller wants to do with a range.
enum class Access : uint8_t { kLocal, kRemoteRead, kRemoteWrite };

// Where a pool region's bytes can be mapped from: a sealed memfd (owned by the pool that outlives the region) and an
// offset in it.
struct PoolBacking {
  int memfd = -1;
  uint64_t offset = 0;
};

struct Region {
  uint64_t address = 0;
  uint64_t length = 0;
  std::string location;
  const MemoryKind* kind = nullptr;
  int device = 0;  // the number in `location`, for copies of the kind
  Permission permission = Permission::kNone;
  PoolBacking backing;
  uint32_t slot = 0;    // small number, reused after removal: index into the same-host guard page
  uint32_t epoch = 0;   // of the slot: grows with each reuse, never 0
  uint64_t number = 0;  // registration order, never reused

  std::atomic<uint64_t> uses{0};
  std::atomic<uint32_t> pins{0};
  std::atomic<bool> draining{false};
  std::atomic<bool> cut{false};

  uint64_t end() const { return address + length; }
  bool allows(Access access) const;
};

// Touching bytes of a region: take, check, copy, release. valid() is false when the region was cut; then nothing may be
// touched.
class RegionPin {
 public:
  explicit RegionPin(Region& region);
  ~RegionPin();
  RegionPin(const RegionPin&) = delete;
  RegionPin& operator=(const RegionPin&) = delete;
  bool valid() const { return valid_; }

 private:
  Region& region_;
  bool valid_;
};

// The regions that a slice or frame uses; released on destruction. Not thread-safe; movable.
class RangeHold {
 public:
  RangeHold() = default;
  RangeHold(RangeHold&& other) noexcept;
  RangeHold& operator=(RangeHold&& other) noexcept;
  ~RangeHold();

  struct Part {
    Region* region;
    uint64_t address;
    uint64_t length;
  };
  // Calls visit(Region&, address, length) for the parts of a held range, in order (several where it crosses adjacent
  // regions). The range must have been added.
  template <typename Visit>
  void for_each_part(uint64_t address, uint64_t length, Visit&& visit) const;
  // The held region that covers `address`; nullptr when none does. Several threads may call it at once while none
  // changes the hold.
  Region* find(uint64_t address) const;
  bool all_host_accessible() const;
  void release();

 private:
  friend class RegionTable;
  std::vector<std::shared_ptr<Region>> regions_;  // by address, each used once
  Region* last_ = nullptr;  // the region that was asked for last: the fast path of RegionTable::use
};

class RegionTable {
 public:
  struct Range {
    uint64_t address;
    uint64_t length;
  };
  // Told of each region that comes (before anybody may use it) and goes (when new uses are refused); called under no
  // lock of the table. A region that came may go at once, when another thread registered the same range first. Used by
  // the same-host transport's guard page.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual Status region_added(Region& region) = 0;
    // Must return only when no other process touches the region any more, or when `deadline` has passed and those were
    // cut.
    virtual void region_removing(Region& region, Nanos deadline) = 0;
  };
  // Before the first registration, or while no other thread calls; regions that exist already are told to the new
  // observer.
  void set_observer(Observer* observer);

  // kInvalidArgument (zero length, null, wraps around), kOverlap (names both ranges). The identical range with the same
  // location and permission is counted. A failed registration is remembered until the range is registered or
  // unregistered: a transfer that touches it returns that failure.
  Status add(uint64_t address, uint64_t length, const std::string& location, Permission permission,
             PoolBacking backing = {});
  // All or nothing; the error names index and address.
  Status add_many(const std::vector<Range>& ranges, const std::string& location, Permission permission);
  // kNotFound names the address. Blocks for at most `drain` plus the time of one copy. The last of the counted
  // registrations removes.
  Status remove(uint64_t address, Nanos drain = 400 * kMillisecond);
  Status remove_many(const std::vector<uint64_t>& addresses, Nanos drain = 400 * kMillisecond);
  void clear();

  // Adds the range to `hold`: kNotRegistered (or the remembered failure), kPermissionDenied, kInvalidArgument on
  // wrap-around. Ranges may cross adjacent regions. Cheap when the range lies in the region that was added last.
  // Nothing is added on failure.
  Status use(uint64_t address, uint64_t length, Access access, RangeHold& hold);

  // Looks up without using: for the same-host transport's answers. nullptr when not covered.
  std::shared_ptr<Region> find(uint64_t address) const;
  // Lowest registration number among regions with a remote permission; nullptr if none.
  std::shared_ptr<Region> first() const;
  size_t size() const;
  uint64_t registered_bytes() const;

 private:
  struct Entry {
    std::shared_ptr<Region> region;
    uint32_t count = 1;
  };
  struct Failure {
    uint64_t length;
    Status status;
  };

  Status add_all(const std::vector<Range>& ranges, const std::string& location, Permission permission,
                 PoolBacking backing);
  Status check_free(const Region& region) const;  // OK, kOverlap, or kBusy when it is the identical range; under mutex_
  Status insert(const std::vector<std::shared_ptr<Region>>& regions, std::vector<std::shared_ptr<Region>>* counted,
                size_t* failed_at);
  void remember(const Range& range, const Status& status);
  Status refusal(uint64_t address, uint64_t length, uint64_t missing) const;  // under mutex_
  void drain_and_forget(const std::vector<std::shared_ptr<Region>>& regions, Nanos deadline);
  void assign_slot(Region& region);  // under mutex_

  mutable WriterFirstMutex mutex_;
  std::map<uint64_t, Entry> entries_;                      // by address
  std::map<uint64_t, std::shared_ptr<Region>> by_number_;  // those with a remote permission
  std::map<uint64_t, Failure> failed_;                     // by address
  std::vector<uint32_t> free_slots_;
  std::vector<uint32_t> slot_epochs_;
  uint64_t next_number_ = 1;
  uint64_t registered_bytes_ = 0;
  std::atomic<Observer*> observer_{nullptr};
};

template <typename Visit>
void RangeHold::for_each_part(uint64_t address, uint64_t length, Visit&& visit) const {
  while (length > 0) {
    Region* region = find(address);
    const uint64_t part = std::min(length, region->end() - address);
    visit(*region, address, part);
    address += part;
    length -= part;
  }
}

}  // namespace tidewire
