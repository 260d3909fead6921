// SPDX-License-Identifier: Apache-2.0
//
// FrameReceiver turns the bytes of a lane into frames and puts payloads where its client says: straight from the socket
// into memory for large pieces, through a buffer of the thread for small pieces, and through two staging chunks for
// memory that the processor can't touch: one is filled from the socket while the other is copied to the device. Between
// calls of run() no such copy is under way.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "memory/staging_pool.h"
#include "transport/tcp/memory_cursor.h"
#include "transport/tcp/wire.h"

namespace tidewire::transport::tcp {

class FrameReceiver {
 public:
  class Client {
   public:
    virtual ~Client() = default;
    // A verified header with its verified body, which stays valid until the frame ends. Where a payload follows, *sink
    // is set to where it goes; left null it is thrown away. An error ends the lane.
    virtual Status on_frame(const wire::Header& header, const uint8_t* body, MemoryCursor** sink) = 0;
    // The payload has been taken from the socket. `placed` is an error when not all of it reached the sink.
    virtual Status on_payload_end(const Status& placed) = 0;
    // Bracket each touch of the sink's memory. False: it must not be touched, the lane is being cut.
    virtual bool begin_touch() { return true; }
    virtual void end_touch() {}
    // What one receive call brought is parsed: a good moment to send answers.
    virtual void on_received() {}
    // Asked between receive calls. True: stop for now, the client has enough to do.
    virtual bool paused() const { return false; }
  };
  enum class Outcome {
    kDrained,  // the socket has no more bytes for now
    kBudget,   // it may have more (or the client is paused)
    kEnded,    // error, end of stream or cut: `why` says so
  };

  explicit FrameReceiver(Client& client) : client_(client) {}

  // Receives up to about `budget` bytes without blocking. One thread at a time. Sets `progress` when any byte came.
  Outcome run(int fd, uint64_t budget, bool& progress, Status& why);
  uint64_t received_bytes() const { return received_; }

 private:
  enum class State { kHeader, kBody, kPayload };
  Status parse(const uint8_t*& at, const uint8_t* end);
  Status begin_frame(const uint8_t* body);
  Status finish_payload();
  Status place(const uint8_t* bytes, uint64_t count);
  // One receive call. Returns what recvmsg returns, `asked` = how much it could have been.
  ssize_t receive(int fd, uint8_t* front, size_t front_size, size_t& in_front, size_t& asked, Status& why);
  // The same into staging, for a sink of device memory.
  ssize_t receive_staged(int fd, uint8_t* front, size_t& in_front, size_t& asked, Status& why);
  Status place_staged(uint64_t count);
  // Waits for the device copies and lets go of what they need.
  void settle();
  Outcome receive_all(int fd, uint8_t* front, uint64_t stop_at, bool& progress, Status& why);

  struct Staged {
    StagingChunk chunk;
    PinSet pins;
    CopyGroup copies;  // destroyed before the pins
  };

  Client& client_;
  State state_ = State::kHeader;
  wire::Header header_;
  std::array<uint8_t, wire::kHeaderBytes> stash_;  // a header that has not come whole
  size_t stashed_ = 0;
  std::vector<uint8_t> body_;
  size_t body_got_ = 0;
  uint64_t payload_left_ = 0;
  MemoryCursor* sink_ = nullptr;
  Status placed_;
  std::array<Staged, 2> staged_;
  unsigned half_ = 0;      // filled next
  bool touching_ = false;  // between begin_touch and end_touch
  bool last_was_large_ = false;
  uint64_t received_ = 0;
};

}  // namespace tidewire::transport::tcp
