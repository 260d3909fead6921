// SPDX-License-Identifier: Apache-2.0
//
// PlaceOrder: what begins where in an owner's segments, in order. 12 bytes for each entry plus what is free in its
// block; neighbours are found without following a pointer for each. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace tidewire::store {

class PlaceOrder {
 public:
  struct Place {
    uint32_t segment;
    uint64_t offset;
  };
  struct Found {
    Place place;
    uint32_t id;
  };

  // Replaces what began there.
  void insert(Place place, uint32_t id);
  // Nothing happens when nothing begins there.
  void erase(Place place);
  void clear() { segments_.clear(); }
  // The first that begins there or after it, in any segment.
  std::optional<Found> from(Place place) const;
  // The last of the same segment that begins before it.
  std::optional<Found> before(Place place) const;

 private:
  static constexpr uint32_t kEntries = 256;
  struct Block {
    uint32_t used = 0;
    uint64_t offsets[kEntries];
    uint32_t ids[kEntries];

    uint32_t position(uint64_t offset) const;  // of the first that is not before it
    void insert(uint32_t at, uint64_t offset, uint32_t id);
  };
  struct Segment {
    std::vector<uint64_t> firsts;                // of each block
    std::vector<std::unique_ptr<Block>> blocks;  // none is empty

    size_t block_of(uint64_t offset) const;  // the last that begins there or before; 0 when none does
  };

  std::map<uint32_t, Segment> segments_;  // none is empty
};

}  // namespace tidewire::store
