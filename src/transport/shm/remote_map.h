// SPDX-License-Identifier: Apache-2.0
//
// RemoteMap: what an initiator knows of a target's regions, and its mappings of the target's pool memory. An entry may
// be out of date: every copy checks it against the guard page, and takes it out when it is.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "memory/region.h"
#include "transport/shm/wire.h"

namespace tidewire::transport::shm {

// A file of the target's pool memory, mapped whole. Unmapped with the last reference to it.
class Mapping {
 public:
  // kProtocol when the file could shrink under the mapping.
  static Result<std::shared_ptr<Mapping>> create(UniqueFd file, bool writable);
  ~Mapping();
  char* at(uint64_t offset) const { return base_ + offset; }
  uint64_t size() const { return size_; }
  // Has the kernel enter the pages of the range at once instead of one fault each; a range that was touched before
  // costs next to nothing.
  void touch(uint64_t offset, uint64_t length);

 private:
  Mapping(char* base, uint64_t size, bool writable);
  char* base_;
  uint64_t size_;
  bool writable_;
  std::vector<std::atomic<bool>> touched_;  // by kGranule
};

struct RemoteRegion {
  uint64_t address = 0;
  uint64_t length = 0;
  uint32_t slot = 0;
  uint64_t state = 0;  // the word of the guard page while this is valid
  Permission permission = Permission::kNone;
  Backing backing = Backing::kForeign;
  uint32_t file_id = 0;
  uint64_t file_offset = 0;  // of `address`
  std::shared_ptr<Mapping> mapping;

  bool covers(uint64_t at) const { return at - address < length; }
};
using RemoteRegionPtr = std::shared_ptr<const RemoteRegion>;

// Any thread.
class RemoteMap {
 public:
  RemoteRegionPtr find(uint64_t address) const;
  // Replaces whatever it overlaps.
  void insert(RemoteRegionPtr region);
  // Takes it out if it is still there.
  void erase(const RemoteRegionPtr& region);
  void forget_file(uint32_t file_id);
  void clear();
  size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, RemoteRegionPtr> regions_;  // by address, disjoint
};

}  // namespace tidewire::transport::shm
