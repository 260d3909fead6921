// SPDX-License-Identifier: Apache-2.0
//
// OutFrame: a frame on its way out that the socket may take in many bites: a head (header and body), a payload in
// registered memory, a tail.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "transport/tcp/memory_cursor.h"
#include "transport/tcp/staged_payload.h"

namespace tidewire::transport::tcp {

struct OutFrame {
  std::vector<uint8_t> head;
  size_t head_sent = 0;
  MemoryCursor payload;
  std::vector<uint8_t> tail;
  size_t tail_sent = 0;
  uint64_t sent = 0;  // of all three

  bool done() const { return head_sent == head.size() && payload.remaining() == 0 && tail_sent == tail.size(); }
};

enum class SendOutcome {
  kMore,   // something was sent; call again
  kFull,   // the socket takes no more for now
  kCut,    // the payload's region was cut: `why`
  kFailed  // the connection is broken: `why`
};

// One send call on a frame that is not done(), with at most about `most` bytes of its payload. `more`: further bytes follow at once. Memory is
// touched only inside. `staged` serves the lane's frames in turn. Any thread, one at a time.
SendOutcome send_once(int fd, OutFrame& frame, StagedPayload& staged, uint64_t most, bool more, uint64_t& sent, Status& why);

// The calling thread's buffer for staged sends; kStageBytes long.
constexpr size_t kStageBytes = 128 << 10;
uint8_t* thread_stage();

}  // namespace tidewire::transport::tcp
