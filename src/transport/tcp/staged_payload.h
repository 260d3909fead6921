// SPDX-License-Identifier: Apache-2.0
//
// Payloads of memory that the processor can't touch, in pieces that a socket can take: two staging chunks, of which one
// is filled from the device while the other is sent. Between calls nothing is under way and nothing is pinned, so that
// a full socket never keeps a region from being unregistered.
#pragma once

#include "memory/staging_pool.h"
#include "transport/tcp/memory_cursor.h"

namespace tidewire::transport::tcp {

// One thread at a time.
class StagedPayload {
 public:
  // The bytes of the payload from its position on that are at hand; fetches some when there are none. The first call
  // of a payload fixes it until reset().
  Status front(const MemoryCursor& payload, const uint8_t*& bytes, uint64_t& count);
  // `count` bytes of the front are gone.
  void consume(uint64_t count);
  // Starts to fetch what follows, when there is a chunk for it. end_fetch() must follow; its error comes with the
  // chunk.
  void start_fetch();
  void end_fetch();
  // Forgets everything and gives the chunks back.
  void reset();
  bool holds_chunks() const { return active_; }

 private:
  struct Half {
    StagingChunk chunk;
    uint64_t begin = 0, end = 0;  // the bytes at hand
    Status status;                // why there are none
    bool filled = false;
  };
  void fill(Half& half);  // starts
  std::array<Half, 2> halves_;
  unsigned front_ = 0;
  bool active_ = false;
  Half* fetching_ = nullptr;
  MemoryCursor ahead_;  // behind what was fetched
  PinSet pins_;
  CopyGroup copies_;  // destroyed before the pins
};

}  // namespace tidewire::transport::tcp
