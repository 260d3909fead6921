// SPDX-License-Identifier: Apache-2.0
//
// Pool: the memory that tw_allocate hands out. Each allocation is a memfd of its own, sealed against shrinking and
// growing, so that a peer on this host can map it without fear of SIGBUS. Its pages are present before it is returned.
// A memfd lives in no file system: nothing is left behind when the process dies.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"
#include "memory/region.h"

namespace tidewire {

struct PoolAllocation {
  uint64_t address = 0;
  uint64_t length = 0;   // as asked; the mapping is rounded up to whole pages
  std::string location;  // "cpu:0", "testdev:0"
  PoolBacking backing;   // memfd < 0 when peers can't map it (test device). Owned by the pool until free
};

// Any thread. The pool must outlive the regions that its allocations were registered as.
class Pool {
 public:
  Pool() = default;
  ~Pool();  // frees what is left
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // location: "" or "*" = spread over the NUMA nodes, "cpu:N" = on that node, "testdev:0" = from the test device. Page
  // aligned, zeroed. kInvalidArgument, kNoMemory, kNoResources (descriptors), kUnsupported (other locations).
  // `at`: 0 = anywhere, otherwise a multiple of 2 MiB in reserved space where nothing is allocated.
  Result<PoolAllocation> allocate(uint64_t length, const std::string& location, uint64_t at = 0);
  // Address space without memory, aligned to 2 MiB, until the pool ends.
  Result<uint64_t> reserve(uint64_t length);
  // kNotFound names the address. Unregister first: the memory is gone at once.
  Status free(uint64_t address);
  // One JSON object: {"allocations": n, "bytes": n, "huge_page_bytes": n, "pages": "4 KiB"|"2 MiB huge"|"mixed"}.
  std::string describe() const;

 private:
  struct Entry {
    UniqueFd memfd;
    uint64_t mapped = 0;
    bool huge = false;
    bool test_device = false;
  };
  // *address: in, where it has to lie (0 = anywhere); out, where it lies.
  Result<Entry> map(uint64_t length, int node, bool huge, uint64_t* address);
  void unmap(uint64_t address, uint64_t length);
  bool reserved(uint64_t address, uint64_t length) const;

  mutable std::mutex mutex_;
  std::map<uint64_t, Entry> entries_;  // by address
  std::map<uint64_t, uint64_t> reservations_;
};

}  // namespace tidewire
