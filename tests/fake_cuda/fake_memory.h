// SPDX-License-Identifier: Apache-2.0
//
// The fake driver's memory: each device allocation is a memory file mapped twice, protected at the device address and
// writable at a shadow that only the fake's copies know.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace fake_cuda {

enum class Kind { kDevice, kVirtual, kPooled, kManaged, kPinned };

struct Block {
  uint64_t base = 0;
  uint64_t size = 0;
  int device = 0;
  Kind kind = Kind::kDevice;
  char* shadow = nullptr;
  int file = -1;
  uint64_t id = 0;
  bool imported = false;
  uint64_t offset(uint64_t address) const { return address - base; }
};

class Memory {
 public:
  static Memory& get();
  // 0 when the system has none.
  uint64_t allocate(uint64_t size, int device, Kind kind);
  // Maps a file of another process's allocation.
  uint64_t import(int file, uint64_t size, int device);
  bool free(uint64_t base);
  std::optional<Block> find(uint64_t address);
  // Where the bytes are: the shadow of device memory, the address itself of host memory; null when the range leaves its
  // allocation.
  char* bytes(uint64_t address, uint64_t length);

 private:
  uint64_t map(int file, uint64_t size, int device, Kind kind, bool imported);
  std::mutex mutex_;
  std::map<uint64_t, Block> blocks_;
  uint64_t next_id_ = 1;
};

}  // namespace fake_cuda
