// SPDX-License-Identifier: Apache-2.0
//
// CopyGroup: device copies that one call starts, perhaps on several devices, and awaits together. Twenty thousand small
// pieces cost twenty thousand copies but one wait.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace tidewire {

class MemoryKind;
struct Region;

// One thread. The regions stay pinned, and the host memory stays valid and untouched, until wait() returned.
class CopyGroup {
 public:
  CopyGroup() = default;
  ~CopyGroup() { (void)wait(); }
  CopyGroup(const CopyGroup&) = delete;
  CopyGroup& operator=(const CopyGroup&) = delete;

  Status to_host(const Region& region, void* host, uint64_t address, uint64_t length);
  Status from_host(const Region& region, uint64_t address, const void* host, uint64_t length);
  bool pending() const { return count_ > 0; }
  // Nothing is added from here to wait(), which then waits for no copy that another group starts later.
  void seal();
  // Waits for all, also after an error; the first error counts.
  Status wait();

 private:
  struct Queue {
    const MemoryKind* kind;
    int device;
    bool from_host;
    uint64_t first;  // address, for messages
    void* mark;
    Status marked;
  };
  void note(const Region& region, uint64_t address, bool from_host);

  static constexpr size_t kMost = 16;  // devices times directions; waits in between beyond that
  std::array<Queue, kMost> queues_;
  size_t count_ = 0;
  bool sealed_ = false;
  Status failed_;
};

}  // namespace tidewire
