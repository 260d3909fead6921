// SPDX-License-Identifier: Apache-2.0
//
// SegmentAllocator: which ranges of one segment are free. Best fit over the free ranges, which are merged as they are
// given back, so that nothing is kept for a range in use, there is no limit on their number, and an emptied segment is
// one range again, good for any size. O(log free ranges). Not thread-safe. Offsets and sizes in bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace tidewire::store {

class SegmentAllocator {
 public:
  // Ranges start and end at multiples of it: a cache line, so that no two objects share one.
  static constexpr uint64_t kAlignment = 64;

  explicit SegmentAllocator(uint64_t size) { grow(size); }

  // The segment is `size` bytes now; it never shrinks.
  void grow(uint64_t size);
  // The offset of `bytes` (> 0) that are in use from now on; nothing when no free range is large enough.
  std::optional<uint64_t> allocate(uint64_t bytes);
  // Takes this very range (of an object that an owner reported). False, and nothing taken, when a part of it is in use
  // or outside.
  bool reserve(uint64_t offset, uint64_t bytes);
  // `offset` and `bytes` as they were allocated or reserved.
  void free(uint64_t offset, uint64_t bytes);

  uint64_t size() const { return size_; }
  uint64_t free_bytes() const { return free_bytes_; }
  uint64_t used_bytes() const { return size_ - free_bytes_; }
  uint64_t largest_free() const { return by_length_.empty() ? 0 : by_length_.rbegin()->first; }
  static uint64_t rounded(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

 private:
  using Extents = std::map<uint64_t, uint64_t>;  // offset → length
  void add(uint64_t offset, uint64_t length);
  void take(Extents::iterator extent);

  uint64_t size_ = 0;
  uint64_t free_bytes_ = 0;
  Extents free_;
  std::set<std::pair<uint64_t, uint64_t>> by_length_;  // (length, offset)
};

}  // namespace tidewire::store
