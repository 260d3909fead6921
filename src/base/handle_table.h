// SPDX-License-Identifier: Apache-2.0
//
// HandleTable<T>: generational 64-bit handles for shared objects. A handle holds, from the top: kind (4 bits, never 0), fork generation (4), slot generation
// (24), slot index (32). A stale, forged or foreign handle finds nothing. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "base/fork_guard.h"

namespace tidewire {

template <typename T>
class HandleTable {
 public:
  explicit HandleTable(uint8_t kind) : kind_(kind) {}

  uint64_t insert(std::shared_ptr<T> object) {
    std::unique_lock lock(mutex_);
    uint32_t index;
    // Slots rest a while before reuse, so that generations last.
    if (free_.size() > kRestingSlots) {
      index = free_.front();
      free_.pop_front();
    } else {
      index = static_cast<uint32_t>(slots_.size());
      slots_.push_back({});
    }
    slots_[index].object = std::move(object);
    return handle_of(index);
  }

  std::shared_ptr<T> get(uint64_t handle) const {
    std::shared_lock lock(mutex_);
    return valid(handle) ? slots_[static_cast<uint32_t>(handle)].object : nullptr;
  }

  std::shared_ptr<T> remove(uint64_t handle) {
    std::unique_lock lock(mutex_);
    if (!valid(handle)) return nullptr;
    Slot& slot = slots_[static_cast<uint32_t>(handle)];
    slot.generation = slot.generation % kLastGeneration + 1;
    free_.push_back(static_cast<uint32_t>(handle));
    return std::move(slot.object);
  }

  // Whether a table of this kind may have given the handle out before a fork that led to this process.
  bool from_parent(uint64_t handle) const { return handle >> 60 == kind_ && (handle >> 56 & 0xf) < (fork_generation() & 0xf); }

  size_t size() const {
    std::shared_lock lock(mutex_);
    return slots_.size() - free_.size();
  }

 private:
  static constexpr size_t kRestingSlots = 64;
  static constexpr uint32_t kLastGeneration = (1u << 24) - 1;

  struct Slot {
    std::shared_ptr<T> object;
    uint32_t generation = 1;
  };

  uint64_t handle_of(uint32_t index) const {
    return uint64_t{kind_} << 60 | uint64_t{fork_generation() & 0xf} << 56 | uint64_t{slots_[index].generation} << 32 | index;
  }
  bool valid(uint64_t handle) const {
    const uint32_t index = static_cast<uint32_t>(handle);
    return index < slots_.size() && slots_[index].object != nullptr && handle_of(index) == handle;
  }

  const uint8_t kind_;
  mutable std::shared_mutex mutex_;
  std::vector<Slot> slots_;
  std::deque<uint32_t> free_;
};

}  // namespace tidewire
