// SPDX-License-Identifier: Apache-2.0
//
// Frames: every byte on a control connection belongs to one. A frame is a header of 20 bytes, little-endian,
//   magic "TWC1" | header version 1 | type | flags (2 bytes, 0) | request id (8) | payload length (4)
// and a payload (a FlatBuffers table of control/messages.fbs, or nothing). FrameDecoder turns bytes into frames: it
// never takes a byte past the current frame, allocates as bytes arrive (never because a header promises them), and
// tells well-known strangers apart, so that they get one clear line in the log.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "control/protocol.h"

namespace tidewire::control {

enum class FrameType : uint8_t {
  kHello = 1,
  kHelloAnswer = 2,
  kConfirm = 3,
  kRecordRequest = 16,
  kRecord = 17,
  kProbe = 18,
  kProbeAnswer = 19,
  kNotification = 20,
  kNotificationAnswer = 21,
  kFirstRegionRequest = 22,
  kFirstRegion = 23,
  kGoodbye = 24,
  kError = 25,  // answer to a request that could not be served
};

constexpr size_t kFrameHeaderBytes = 20;

struct Frame {
  FrameType type{};
  uint64_t request = 0;  // chosen by who asks, repeated by who answers
  std::vector<uint8_t> payload;
};

// Header and payload in one vector, ready to send. The payload has at most kMaxFrameBytes.
std::vector<uint8_t> encode_frame(FrameType type, uint64_t request, std::span<const uint8_t> payload);

class FrameDecoder {
 public:
  explicit FrameDecoder(uint32_t max_payload) : max_payload_(max_payload) {}
  void set_max_payload(uint32_t bytes) { max_payload_ = bytes; }

  // How many bytes may be read before the next call of feed() without reading past the current frame. 0: a frame is
  // ready or the decoder has failed.
  size_t wanted() const;
  // Takes bytes of the current frame and returns how many.
  size_t feed(std::span<const uint8_t> bytes);
  bool ready() const { return ready_; }
  Frame take();
  // kProtocol once the bytes can't be a frame; final.
  const Status& status() const { return status_; }
  // Whether a frame has begun.
  bool partial() const { return header_bytes_ > 0; }
  // Memory held for the frame that is being read.
  size_t buffered_capacity() const { return frame_.payload.capacity(); }

 private:
  void parse_header();
  void reject_stranger();

  uint32_t max_payload_;
  std::array<uint8_t, kFrameHeaderBytes> header_{};
  size_t header_bytes_ = 0;
  uint32_t length_ = 0;
  bool ready_ = false;
  Frame frame_;
  Status status_;
};

}  // namespace tidewire::control
