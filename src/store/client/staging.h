// SPDX-License-Identifier: Apache-2.0
//
// Staging: a client's registered buffer, for values in memory that is not registered and for objects that are got
// without a destination. Any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>

#include "engine/engine.h"
#include "store/master/segment_allocator.h"

namespace tidewire::store {

class Staging {
 public:
  // Takes `bytes` of the engine's pool memory.
  Status start(engine::Engine& engine, uint64_t bytes);
  // The memory goes back to the engine; nothing of it may be in use.
  void stop();

  // 0 when there is no room. Larger requests than the buffer get memory of their own.
  uint64_t allocate(uint64_t length);
  // False when it was not allocated here.
  bool release(uint64_t address);
  uint64_t size() const { return size_; }

  // Whether the engine may move bytes from or to this memory without help.
  bool registered(uint64_t address, uint64_t length) const { return engine_->covers(address, length); }

 private:
  engine::Engine* engine_ = nullptr;
  uint64_t base_ = 0;
  uint64_t size_ = 0;
  std::mutex mutex_;
  SegmentAllocator space_{0};
  std::map<uint64_t, uint64_t> used_;  // address → length
  std::map<uint64_t, uint64_t> large_;
};

// Makes memory of the caller usable by the engine for a while: as it is when it is registered, otherwise registered for
// as long as this lives, or, when that collides with another registration, through a staged copy.
class Usable {
 public:
  Usable(engine::Engine& engine, Staging& staging, uint64_t address, uint64_t length, bool copy_in);
  ~Usable();
  Usable(Usable&& other) noexcept;
  Usable(const Usable&) = delete;

  bool ok() const { return address_ != 0; }
  uint64_t address() const { return address_; }
  // Brings a staged read to where it belongs.
  void copy_out() const;

 private:
  engine::Engine* engine_;
  Staging* staging_;
  uint64_t original_, length_;
  uint64_t address_ = 0;
  bool registered_here_ = false;
  bool staged_ = false;
};

}  // namespace tidewire::store
