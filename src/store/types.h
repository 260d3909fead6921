// SPDX-License-Identifier: Apache-2.0
//
// The words of the store: keys, versions, places, and the codes that its interface answers with. An object is a key
// with a complete version; a replica is one copy of it in one place: a range of a segment, which is memory that an
// owner (a client that lends it) has registered.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/instance_id.h"

namespace tidewire::store {

// The numbers are the contract of the store's interface. Texts name the key.
enum class Code : int32_t {
  kOk = 0,
  kInternal = -1,
  kBufferOverflow = -10,
  kSegmentNotFound = -101,
  kSegmentExists = -102,
  kClientNotFound = -103,  // the master does not know the client (any more): it attaches again
  kNoSpace = -200,
  kInvalidVersion = -300,
  kInvalidKey = -400,
  kWriteFailed = -500,
  kInvalidParams = -600,
  kIllegalClient = -601,  // an attempt that is another client's
  kInvalidWrite = -700,   // an attempt that is over
  kInvalidRead = -701,
  kReplicaNotReady = -703,  // only an attempt in progress has this key
  kNotFound = -704,
  kExists = -705,
  kHasLease = -706,
  kLeaseExpired = -707,
  kReplicaNotFound = -710,
  kReplicaGone = -712,
  kTransferFailed = -800,
  kChecksumMismatch = -801,
  kRpcFailed = -900,
  kRpcTimeout = -901,
  kUnavailable = -1010,  // not now: the master is still taking over, or the store is closing
  kUnavailableInMode = -1011,
  kNotSupported = -1012,
};
// "OBJECT_NOT_FOUND" for kNotFound, as in the interface's documents; "UNKNOWN" for numbers that are no code.
const char* code_name(Code code);

// Random at each start of a client: its incarnation.
using ClientId = InstanceId;

constexpr uint64_t kMaxKeyBytes = 4096;
constexpr uint32_t kMaxReplicas = 16;
constexpr uint32_t kMaxBatch = 10'000;  // keys in one message

// Versions of all objects are drawn from one counter: the master's term in the upper 24 bits, a sequence in the lower
// 40, so that no two masters ever give the same. The version of an attempt is its token.
using Version = uint64_t;
constexpr int kSequenceBits = 40;
constexpr Version make_version(uint64_t term, uint64_t sequence) {
  return term << kSequenceBits | sequence;
}
constexpr uint64_t term_of(Version version) {
  return version >> kSequenceBits;
}

// A segment of one client; ordinals are the client's own and never reused in an incarnation.
struct SegmentKey {
  ClientId owner{};
  uint32_t ordinal = 0;
  friend auto operator<=>(const SegmentKey&, const SegmentKey&) = default;
};

struct SegmentInfo {
  uint32_t ordinal = 0;
  std::string name;   // what preferred_segments name: the owner's advertised "host:port"
  uint64_t base = 0;  // address in the owner's memory
  uint64_t size = 0;  // bytes that may be allocated now: grows while later chunks of the segment become ready
};

// Where one replica lies, for whoever reads or writes it through the engine.
struct Place {
  SegmentKey segment;
  std::string endpoint;  // the owner's engine, "host:port"
  uint64_t address = 0;  // in the owner's memory
};

enum class PinAction : uint8_t { kPreserve = 0, kEnable = 1, kDisable = 2 };

// How an object is to be kept; per key of a put.
struct PutOptions {
  uint32_t replicas = 1;
  PinAction soft_pin = PinAction::kPreserve;
  Nanos soft_pin_ttl = 0;  // 0: the master's default
  bool hard_pin = false;
  bool prefer_same_host = false;
  std::vector<std::string> preferred_segments;
  uint8_t data_type = 0;
};

// What an owner knows of one replica that it holds: enough to build the catalogue anew.
struct InventoryEntry {
  std::string key;
  Version version = 0;
  uint32_t segment = 0;  // ordinal
  uint64_t offset = 0;   // in the segment
  uint64_t size = 0;
  uint64_t checksum = 0;  // XXH3-64 of the object's bytes; 0 = none
  uint32_t flags = 0;     // kHardPin …
  std::string group;      // first group id; objects of one group are kept together
};
constexpr uint32_t kFlagHardPin = 1;
constexpr uint32_t kFlagSoftPin = 2;
constexpr uint32_t kDataTypeShift = 8;

}  // namespace tidewire::store
