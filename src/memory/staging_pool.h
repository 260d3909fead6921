// SPDX-License-Identifier: Apache-2.0
//
// Staging: host memory through which bytes pass between a device and a wire that can't touch the device. Chunks are
// pinned where a driver gives pinned memory, made when first needed, handed out again afterwards and kept for the life
// of the process: in steady state a transfer allocates nothing. A lane takes two, so that one is copied while the other
// is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tidewire {

// Measured (docs/accelerators.md): at 128 KiB the start of each copy costs a tenth of the rate, 2 MiB brings nothing
// that stands out of the spread.
constexpr size_t kStagingBytes = 512 << 10;

// One chunk of kStagingBytes; given back on destruction. Movable. Any thread may hold it.
class StagingChunk {
 public:
  StagingChunk() = default;
  // Never fails but by lack of ordinary memory: where none can be pinned, pageable memory serves, more slowly.
  static StagingChunk take();
  StagingChunk(StagingChunk&& other) noexcept : bytes_(std::exchange(other.bytes_, nullptr)) {}
  StagingChunk& operator=(StagingChunk&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~StagingChunk();
  uint8_t* bytes() const { return bytes_; }  // null when it holds none

 private:
  uint8_t* bytes_ = nullptr;
};

// How many chunks exist, in use or not.
size_t staging_chunks();

}  // namespace tidewire
