// SPDX-License-Identifier: Apache-2.0
//
// The guard pages, by which a target keeps the last word on copies that other processes make in its memory.
//
// The target owns one *state page*: for each region slot a word of epoch, permission and whether it is open; peers map
// it read-only. Each initiator shares one *reference page* with the target: for each slot the number of copies under
// way. A copy counts itself in, then reads the state; the target closes the state, then reads the counts. Both in one
// total order (seq_cst): either the copy sees the slot closed, or the target sees the copy and waits for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "base/unique_fd.h"
#include "memory/region.h"

namespace tidewire::transport::shm {

// Pages are sparse: a slot costs memory once it is used. Regions in higher slots are left to other transports.
constexpr uint32_t kSlots = 1 << 20;

constexpr uint64_t state_word(uint32_t epoch, Permission permission, bool open) {
  return uint64_t{epoch} << 32 | uint64_t{static_cast<uint8_t>(permission)} << 8 | (open ? 1 : 0);
}

// A shared, sealed array of T in a memfd of its own. T is a lock-free atomic.
template <typename T>
class SharedArray {
 public:
  static_assert(T::is_always_lock_free);
  static constexpr uint64_t kBytes = uint64_t{kSlots} * sizeof(T);

  // `reads_only`: descriptors of it can be mapped for reading only, except for the mapping made here.
  static Result<std::unique_ptr<SharedArray>> create(const char* name, bool reads_only);
  // Maps a received one after checking its seals and size. kProtocol when it isn't what it should be.
  static Result<std::unique_ptr<SharedArray>> open(UniqueFd file, bool read_only);
  ~SharedArray();
  SharedArray(const SharedArray&) = delete;
  SharedArray& operator=(const SharedArray&) = delete;

  T& operator[](uint32_t slot) { return items_[slot]; }
  int descriptor() const { return file_.get(); }
  // The mapping is enough from now on.
  void close_descriptor() { file_.reset(); }
  // Gets the memory of the slot, so that touching it can't fail later. One thread at a time.
  Status ensure(uint32_t slot);

 private:
  SharedArray(UniqueFd file, void* items) : file_(std::move(file)), items_(static_cast<T*>(items)) {}
  UniqueFd file_;
  T* items_;
  uint64_t present_ = 0;  // bytes from the start
};

using StatePage = SharedArray<std::atomic<uint64_t>>;
using ReferencePage = SharedArray<std::atomic<uint32_t>>;

// A copy's reference, held by the initiator for at most one chunk.
class CopyReference {
 public:
  CopyReference(ReferencePage& references, StatePage& state, uint32_t slot, uint64_t expected)
      : count_(&references[slot]) {
    count_->fetch_add(1, std::memory_order_seq_cst);
    valid_ = state[slot].load(std::memory_order_seq_cst) == expected;
  }
  ~CopyReference() { count_->fetch_sub(1, std::memory_order_seq_cst); }
  CopyReference(const CopyReference&) = delete;
  CopyReference& operator=(const CopyReference&) = delete;
  bool valid() const { return valid_; }

 private:
  std::atomic<uint32_t>* count_;
  bool valid_;
};

}  // namespace tidewire::transport::shm
