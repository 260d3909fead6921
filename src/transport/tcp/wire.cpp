// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/wire.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tidewire::transport::tcp::wire {
namespace {

bool known(uint8_t type) {
  switch (static_cast<Type>(type)) {
    case Type::kWrite:
    case Type::kRead:
    case Type::kRevoke:
    case Type::kPing:
    case Type::kAck:
    case Type::kData:
    case Type::kRevoked:
      return true;
  }
  return false;
}

uint32_t checksum(const uint8_t* bytes, size_t size) {
  return static_cast<uint32_t>(XXH3_64bits(bytes, size));
}

}  // namespace

void encode(const Header& header, uint8_t* out) {
  store<uint32_t>(out, kMagic);
  out[4] = static_cast<uint8_t>(header.type);
  out[5] = 0;  // flags
  store<uint16_t>(out + 6, 0);
  store(out + 8, header.count);
  store(out + 12, header.code);
  store(out + 16, header.id);
  store(out + 24, header.payload_bytes);
  store(out + 32, header.body_check);
  store(out + 36, checksum(out, 36));
}

Status decode(const uint8_t* bytes, Header& header) {
  if (load<uint32_t>(bytes) != kMagic) {
    return Status::error(Code::kProtocol, "frame starts with {:#010x} instead of {:#010x}", load<uint32_t>(bytes),
                         kMagic);
  }
  if (load<uint32_t>(bytes + 36) != checksum(bytes, 36))
    return Status(Code::kProtocol, "frame header has a wrong checksum");
  if (!known(bytes[4])) return Status::error(Code::kProtocol, "unknown frame type {}", bytes[4]);
  if (bytes[5] != 0 || load<uint16_t>(bytes + 6) != 0) {
    return Status::error(Code::kProtocol, "frame type {} with unknown flags {:#x}", bytes[4],
                         load<uint32_t>(bytes + 4) >> 8);
  }
  header.type = static_cast<Type>(bytes[4]);
  header.count = load<uint32_t>(bytes + 8);
  header.code = load<uint32_t>(bytes + 12);
  header.id = load<uint64_t>(bytes + 16);
  header.payload_bytes = load<uint64_t>(bytes + 24);
  header.body_check = load<uint32_t>(bytes + 32);

  const bool has_pieces = header.type == Type::kWrite || header.type == Type::kRead;
  if (has_pieces && (header.count == 0 || header.count > kMaxPieces)) {
    return Status::error(Code::kProtocol, "frame with {} pieces; 1 to {} are allowed", header.count, kMaxPieces);
  }
  if (header.type == Type::kAck && header.count > kMaxText) {
    return Status::error(Code::kProtocol, "text of {} bytes; at most {} are allowed", header.count, kMaxText);
  }
  if (!has_pieces && header.type != Type::kAck && header.count != 0) {
    return Status::error(Code::kProtocol, "frame type {} with a body of {}", bytes[4], header.count);
  }
  const bool has_payload = has_pieces || header.type == Type::kData;
  if (has_payload ? header.payload_bytes == 0 || header.payload_bytes > kMaxPayload : header.payload_bytes != 0) {
    return Status::error(Code::kProtocol, "frame type {} with a payload of {} bytes; at most {} are allowed", bytes[4],
                         header.payload_bytes, has_payload ? kMaxPayload : 0);
  }
  if (header.type != Type::kAck && header.code != 0) {
    return Status::error(Code::kProtocol, "frame type {} with status {}", bytes[4], header.code);
  }
  return {};
}

uint32_t body_checksum(const uint8_t* body, size_t bytes) {
  return bytes == 0 ? 0 : checksum(body, bytes);
}

Status verify_body(const Header& header, const uint8_t* body) {
  if (body_checksum(body, header.body_bytes()) != header.body_check) {
    return Status(Code::kProtocol, "frame body has a wrong checksum");
  }
  if (header.type != Type::kWrite && header.type != Type::kRead) return {};
  uint64_t sum = 0;
  for (uint32_t i = 0; i < header.count; ++i) {
    const uint64_t length = load<uint64_t>(body + i * kPieceBytes + 8);
    if (length == 0 || length > kMaxPayload) {
      return Status::error(Code::kProtocol, "piece {} has the impossible length {}", i, length);
    }
    sum += length;  // at most kMaxPieces * kMaxPayload: no overflow
  }
  if (sum != header.payload_bytes) {
    return Status::error(Code::kProtocol, "pieces add up to {} bytes, the frame says {}", sum, header.payload_bytes);
  }
  return {};
}

}  // namespace tidewire::transport::tcp::wire
