// SPDX-License-Identifier: Apache-2.0
#include "store/master/segment_allocator.h"

#include <cassert>
#include <iterator>

namespace tidewire::store {

void SegmentAllocator::grow(uint64_t size) {
  size = size / kAlignment * kAlignment;
  if (size <= size_) return;
  const uint64_t old = size_;
  size_ = size;
  add(old, size - old);
}

std::optional<uint64_t> SegmentAllocator::allocate(uint64_t bytes) {
  if (bytes == 0 || bytes > size_) return std::nullopt;
  bytes = rounded(bytes);
  const auto best = by_length_.lower_bound({bytes, 0});
  if (best == by_length_.end()) return std::nullopt;
  const auto [length, offset] = *best;
  take(free_.find(offset));
  if (length > bytes) add(offset + bytes, length - bytes);
  return offset;
}

bool SegmentAllocator::reserve(uint64_t offset, uint64_t bytes) {
  if (bytes == 0 || bytes > size_ || offset > size_ - bytes || offset % kAlignment != 0) return false;
  bytes = rounded(bytes);
  auto extent = free_.upper_bound(offset);
  if (extent == free_.begin()) return false;
  --extent;
  const auto [start, length] = *extent;
  if (offset + bytes > start + length) return false;
  take(extent);
  if (offset > start) add(start, offset - start);
  if (start + length > offset + bytes) add(offset + bytes, start + length - (offset + bytes));
  return true;
}

void SegmentAllocator::free(uint64_t offset, uint64_t bytes) {
  bytes = rounded(bytes);
  assert(offset + bytes <= size_);
  add(offset, bytes);
}

// Merges with the neighbours.
void SegmentAllocator::add(uint64_t offset, uint64_t length) {
  free_bytes_ += length;
  auto next = free_.lower_bound(offset);
  assert(next == free_.end() || offset + length <= next->first);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    assert(before->first + before->second <= offset);
    if (before->first + before->second == offset) {
      offset = before->first;
      length += before->second;
      by_length_.erase({before->second, before->first});
      free_.erase(before);
    }
  }
  if (next != free_.end() && offset + length == next->first) {
    length += next->second;
    by_length_.erase({next->second, next->first});
    free_.erase(next);
  }
  free_.emplace(offset, length);
  by_length_.emplace(length, offset);
}

void SegmentAllocator::take(Extents::iterator extent) {
  free_bytes_ -= extent->second;
  by_length_.erase({extent->second, extent->first});
  free_.erase(extent);
}

}  // namespace tidewire::store
