// SPDX-License-Identifier: Apache-2.0
//
// The messages of the same-host transport: fixed structs, one in each packet of a SOCK_SEQPACKET Unix socket. Both ends
// run on one machine, so numbers are in its byte order. Whatever arrives goes through parse() before it is used.
//
//   initiator                              target
//   Hello (instances, nonce)          ->
//                                     <-   Challenge (nonce, proof)      or Refused
//   Proof                             ->
//                                     <-   Welcome + state page, reference page   or Refused
//   Lookup (addresses)                ->
//                                     <-   Regions (+ memory files)      one answer to each Lookup
//                                     <-   Forget (files whose region is gone)    at any time
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tidewire::transport::shm {

constexpr uint32_t kMagic = 0x48535754;  // "TWSH"
constexpr uint16_t kVersion = 1;
constexpr uint32_t kMaxLookups = 256;  // addresses in one Lookup, regions in one answer
constexpr uint32_t kMaxFiles = 128;    // descriptors in one packet; the kernel's limit is 253
constexpr uint16_t kNoFile = 0xFFFF;

enum class Type : uint16_t { kHello = 1, kChallenge, kProof, kWelcome, kRefused, kLookup, kRegions, kForget };

struct Header {
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  Type type{};
  uint32_t length = 0;  // of the whole packet
  uint32_t count = 0;   // entries of the packets that hold a list
};

struct Hello {
  static constexpr Type kType = Type::kHello;
  Header header;
  uint8_t initiator[16];
  uint8_t expected[16];
  uint8_t nonce[32];
  char host_id[40];  // NUL-padded
};

struct Challenge {
  static constexpr Type kType = Type::kChallenge;
  Header header;
  uint8_t target[16];
  uint8_t nonce[32];
  uint8_t proof[32];
  uint32_t has_secret;
  uint32_t reserved;
};

struct Proof {
  static constexpr Type kType = Type::kProof;
  Header header;
  uint8_t proof[32];
  uint32_t has_secret;
  uint32_t reserved;
};

// With two descriptors: the state page (read-only) and this initiator's reference page.
struct Welcome {
  static constexpr Type kType = Type::kWelcome;
  Header header;
  uint64_t probe_address;  // in the target's memory; whoever reads probe_value there reads the right process
  uint8_t probe_value[32];
  uint32_t slots;
  uint32_t reserved;
};

struct Refused {
  static constexpr Type kType = Type::kRefused;
  Header header;
  int32_t code;
  uint32_t reserved;
  uint8_t target[16];
  char reason[240];  // NUL-padded
};

struct Lookup {
  static constexpr Type kType = Type::kLookup;
  Header header;
  uint64_t request;
  uint64_t addresses[kMaxLookups];
};

enum class Backing : uint8_t { kFile = 1, kForeign = 2, kDevice = 3 };

struct RegionInfo {
  uint64_t asked;    // the address that this answers
  uint64_t address;  // of the region
  uint64_t length;
  uint64_t file_offset;
  uint32_t slot;
  uint32_t epoch;
  uint32_t file_id;     // of this connection
  uint16_t descriptor;  // index in this packet; kNoFile when it came before
  uint8_t permission;
  Backing backing;
  int32_t code;  // 0, or why there is no region for `asked`
  uint32_t reserved;
};

struct Regions {
  static constexpr Type kType = Type::kRegions;
  Header header;
  uint64_t request;
  RegionInfo regions[kMaxLookups];
};

struct Forget {
  static constexpr Type kType = Type::kForget;
  Header header;
  uint32_t file_ids[kMaxLookups];
};

constexpr size_t kMaxPacket = sizeof(Regions);
static_assert(sizeof(Header) == 16 && sizeof(RegionInfo) == 56 && sizeof(Lookup) <= kMaxPacket &&
              sizeof(Forget) <= kMaxPacket);

// The size of a packet with `count` list entries.
template <typename T>
constexpr size_t packet_size(uint32_t count) {
  return count == 0 ? sizeof(T) : 0;  // no list: no entries
}
template <>
constexpr size_t packet_size<Lookup>(uint32_t count) {
  return offsetof(Lookup, addresses) + count * sizeof(uint64_t);
}
template <>
constexpr size_t packet_size<Regions>(uint32_t count) {
  return offsetof(Regions, regions) + count * sizeof(RegionInfo);
}
template <>
constexpr size_t packet_size<Forget>(uint32_t count) {
  return offsetof(Forget, file_ids) + count * sizeof(uint32_t);
}

// Fills in the header; returns the bytes to send.
template <typename T>
size_t seal(T& packet, uint32_t count = 0) {
  packet.header = Header{};
  packet.header.type = T::kType;
  packet.header.count = count;
  packet.header.length = static_cast<uint32_t>(packet_size<T>(count));
  return packet.header.length;
}

// The type of a packet, or 0 when it is none of ours. A foreign version has a readable type.
inline Type packet_type(std::span<const uint8_t> bytes) {
  Header header;
  if (bytes.size() < sizeof header) return Type{};
  std::memcpy(&header, bytes.data(), sizeof header);
  return header.magic == kMagic ? header.type : Type{};
}

// Copies the packet out when type, version, count and length all fit; false otherwise.
template <typename T>
bool parse(std::span<const uint8_t> bytes, T* out) {
  Header header;
  if (bytes.size() < sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagic || header.version != kVersion || header.type != T::kType || header.count > kMaxLookups)
    return false;
  if (header.length != bytes.size() || bytes.size() != packet_size<T>(header.count)) return false;
  std::memcpy(out, bytes.data(), bytes.size());
  return true;
}

}  // namespace tidewire::transport::shm
