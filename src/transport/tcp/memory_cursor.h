// SPDX-License-Identifier: Apache-2.0
//
// MemoryCursor walks the pieces of a frame through registered memory: as I/O vectors for memory that the processor can
// touch, or by copies through a staging buffer for small pieces and for other kinds of memory. Every touch happens
// under a RegionPin.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <optional>

#include "base/status.h"
#include "memory/copy_group.h"
#include "memory/region.h"
#include "transport/tcp/wire.h"
#include "transport/transport.h"

namespace tidewire::transport::tcp {

// A table of {address, length} that lies inside other records: neither the wire's table nor a slice's pieces need be
// copied.
struct PieceView {
  const uint8_t* base = nullptr;
  size_t count = 0;
  uint32_t stride = 0;
  uint32_t length_offset = 0;

  uint64_t address(size_t index) const { return wire::load<uint64_t>(base + index * stride); }
  uint64_t length(size_t index) const { return wire::load<uint64_t>(base + index * stride + length_offset); }

  static PieceView of_table(const uint8_t* table, size_t count) { return {table, count, wire::kPieceBytes, 8}; }
  static PieceView of_slice(const Slice& slice) {
    return {reinterpret_cast<const uint8_t*>(slice.pieces.data()) + offsetof(Piece, local), slice.pieces.size(),
            sizeof(Piece), offsetof(Piece, length) - offsetof(Piece, local)};
  }
};

// The regions pinned during one system call or copy.
class PinSet {
 public:
  enum class Outcome { kPinned, kCut, kFull };
  Outcome pin(Region& region);
  void clear();

 private:
  static constexpr size_t kMost = 8;
  std::array<std::optional<RegionPin>, kMost> pins_;
  std::array<Region*, kMost> regions_{};
  size_t count_ = 0;
};

// Copyable position. View and hold must outlive it. One thread.
class MemoryCursor {
 public:
  // From this mean piece length on, pieces are given to the kernel as I/O vectors; smaller ones are cheaper to copy
  // through a buffer that stays in the processor's cache (docs/decisions/tcp-data-path.md).
  static constexpr uint64_t kDirectFrom = 2'048;

  MemoryCursor() = default;
  MemoryCursor(PieceView view, const RangeHold& hold, uint64_t bytes);

  uint64_t remaining() const { return remaining_; }
  // Whether map() should be used; gather() and scatter() always work.
  bool direct() const { return direct_; }
  void advance(uint64_t bytes);

  struct Mapped {
    size_t vectors = 0;
    uint64_t bytes = 0;
  };
  // Fills `out` from the position without moving it; the regions stay pinned in `pins`. kNotRegistered when a region
  // was cut.
  Status map(iovec* out, size_t most_vectors, uint64_t most_bytes, PinSet& pins, Mapped& mapped) const;
  // Whether some of it is memory that the processor can't touch: large payloads then go through staging.
  bool staged() const { return staged_; }
  // Copies the next `bytes` (≤ remaining()) out of or into memory and moves on. kNotRegistered when a region was cut.
  Status gather(uint8_t* out, uint64_t bytes);
  Status scatter(const uint8_t* in, uint64_t bytes);
  // The same, but device copies are only started: out or in, and `pins`, stay until copies.wait() returned, also after
  // an error.
  Status start_gather(uint8_t* out, uint64_t bytes, PinSet& pins, CopyGroup& copies);
  Status start_scatter(const uint8_t* in, uint64_t bytes, PinSet& pins, CopyGroup& copies);

 private:
  template <typename Visit>
  Status walk(uint64_t bytes, PinSet& pins, CopyGroup& copies, Visit&& visit);

  PieceView view_;
  const RangeHold* hold_ = nullptr;
  uint64_t remaining_ = 0;
  size_t index_ = 0;
  uint64_t offset_ = 0;  // in the piece
  bool direct_ = false;
  bool staged_ = false;
};

}  // namespace tidewire::transport::tcp
