// SPDX-License-Identifier: Apache-2.0
//
// The frames of a TCP data lane (docs/protocol-tcp.md). A frame is a 40-byte header, a body (piece table or text) and a
// payload; everything is little-endian. decode() accepts a header only when its checksum, type, counts and limits hold,
// so that later code never allocates or waits for more than the limits here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/status.h"

namespace tidewire::transport::tcp::wire {

constexpr uint32_t kMagic = 0x31575754;  // the bytes "TWW1"
constexpr size_t kHeaderBytes = 40;
constexpr size_t kPieceBytes = 16;                   // address u64, length u64
constexpr uint32_t kMaxPieces = 65'536;              // in one frame
constexpr uint64_t kMaxPayload = uint64_t{1} << 30;  // bytes in one frame
constexpr uint32_t kMaxText = 1'024;                 // bytes of an error text

enum class Type : uint8_t {
  kWrite = 1,    // initiator → target: pieces, then the payload concatenated
  kRead = 2,     // initiator → target: pieces; payload_bytes is what is asked for, none follows
  kRevoke = 3,   // initiator → target: id is the victim channel
  kPing = 4,     // initiator → target: makes the kernels exchange bytes; no answer
  kAck = 16,     // target → initiator: the end of a slice: code, text
  kData = 17,    // target → initiator: the payload of a read; its kAck follows
  kRevoked = 18  // target → initiator: id is the victim channel, which places nothing any more
};

struct Header {
  Type type = Type::kPing;
  uint32_t count = 0;  // pieces (kWrite, kRead) or bytes of text (kAck)
  uint32_t code = 0;   // tw_code (kAck)
  uint64_t id = 0;     // slice, or victim channel
  uint64_t payload_bytes = 0;
  uint32_t body_check = 0;

  size_t body_bytes() const {
    return type == Type::kWrite || type == Type::kRead ? count * kPieceBytes : type == Type::kAck ? count : 0;
  }
  // What follows the body on the wire.
  uint64_t stream_bytes() const { return type == Type::kWrite || type == Type::kData ? payload_bytes : 0; }
};

// Writes kHeaderBytes. header.body_check must be set: body_checksum of the body.
void encode(const Header& header, uint8_t* out);
// kProtocol with one clear line when the bytes are not a header of this protocol.
Status decode(const uint8_t* bytes, Header& header);

// 0 for an empty body.
uint32_t body_checksum(const uint8_t* body, size_t bytes);
// kProtocol when the body's checksum is wrong or, for a piece table, a length is 0 or the sum is not the payload.
// Addresses are the region table's to judge: a range that it refuses costs the slice, not the lane.
Status verify_body(const Header& header, const uint8_t* body);

// Byte order: the hosts that Tidewire supports are little-endian, so that the wire's numbers are loaded as they are.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
template <typename Number>
Number load(const uint8_t* bytes) {
  Number number;
  std::memcpy(&number, bytes, sizeof(number));
  return number;
}
template <typename Number>
void store(uint8_t* bytes, Number number) {
  std::memcpy(bytes, &number, sizeof(number));
}

}  // namespace tidewire::transport::tcp::wire
