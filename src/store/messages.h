// SPDX-License-Identifier: Apache-2.0
//
// What masters and clients say to each other, as plain structs. A client connects to the master; both sides ask over
// that connection, and each request has one answer under its number. The wire form is a FlatBuffers table for each
// struct (messages.fbs, codec.h); the simulator passes the structs themselves. Lists that belong together have one
// entry for each key, in order. Durations, never points in time, travel.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "store/types.h"

namespace tidewire::store {

// ---- client → master
// -------------------------------------------------------------------------------------------------------------------

// A client introduces itself: at the start, after a lost connection, after kClientNotFound. Its inventory follows in
// chunks when the answer asks for it.
struct Attach {
  ClientId client{};
  std::string name;     // advertised "host:port" of its engine
  std::string host_id;  // equal for clients of one host: replicas go to different ones
  uint64_t term = 0;    // the highest that it has granted, 0 = none, and to which master
  InstanceId master{};
  uint64_t generation = 0;  // of the store, as last told by a master
  std::vector<SegmentInfo> segments;
  uint64_t entries = 0;  // in its inventory
};
enum class InventoryWish : uint8_t {
  kNone = 0,
  kSend = 1,
  kClear = 2
};  // kClear: drop everything, it missed removals, then attach again
struct AttachAnswer {
  Code code = Code::kOk;  // kUnavailable: this master's term is too low; it proposes a higher one, attach again
  uint64_t term = 0;
  InstanceId master{};
  uint64_t generation = 0;
  InventoryWish inventory = InventoryWish::kNone;
  Nanos heartbeat = 0;   // how often the client shows that it lives
  Nanos client_ttl = 0;  // after so much silence it is gone
  Nanos max_lease = 0;   // longest lease of a reader
};

// A range of a dropped replica that readers may still have a lease on.
struct Held {
  uint32_t segment = 0;  // ordinal
  uint64_t offset = 0;
  uint64_t size = 0;
  Nanos remaining = 0;
};
// At most kMaxBatch entries (and held ranges) each; the last one says so. The answer is a CodeAnswer.
struct InventoryChunk {
  std::vector<InventoryEntry> entries;
  std::vector<Held> held;
  bool last = false;
};
struct KeyVersion {
  std::string key;
  Version version = 0;
};

struct Heartbeat {};
struct HeartbeatAnswer {
  Code code = Code::kOk;  // kClientNotFound: attach again
};

// A segment that is new or has grown.
struct Mount {
  SegmentInfo segment;
};
// Its objects' replicas there are gone at once.
struct Unmount {
  uint32_t ordinal = 0;
};

// Reserves space for new versions. The caller may write into the places until the lease has run out, counted from
// before its request, unless PutRenew prolonged it; then it stops its transfers and says PutRevoke.
struct PutStart {
  std::vector<std::string> keys;
  std::vector<uint64_t> sizes;      // > 0
  std::vector<PutOptions> options;  // one for each key, or one for all
  std::vector<std::string> groups;  // one for each key, or empty
  bool upsert = false;              // false: a key that has a complete version answers kExists
};
struct PutPlace {
  Code code = Code::kOk;
  Version version = 0;  // the attempt's token
  std::vector<Place> places;
};
struct PutStartAnswer {
  Nanos lease = 0;
  std::vector<PutPlace> puts;
};

struct PutEnd {
  std::vector<KeyVersion> puts;
  std::vector<uint64_t> checksums;
  // For each put: bit i says that the bytes of place i are there. Places without are given back.
  std::vector<uint32_t> written;
};
// `quiet`: none of the caller's transfers into these places can place bytes any more.
struct PutRevoke {
  std::vector<KeyVersion> puts;
  bool quiet = true;
};
struct PutRenew {
  std::vector<KeyVersion> puts;
};
struct PutRenewAnswer {
  Nanos lease = 0;
  std::vector<Code> codes;
};

// Places of complete versions, with a lease: until it has run out, counted from before the request, the bytes there
// stay those of this version.
struct Get {
  std::vector<std::string> keys;
};
struct GetPlace {
  Code code = Code::kOk;
  Version version = 0;
  uint64_t size = 0;
  uint64_t checksum = 0;
  std::vector<Place> places;
};
struct GetAnswer {
  Nanos lease = 0;
  std::vector<GetPlace> gets;
};

// kOk or kNotFound. Also keeps the objects that are there from eviction for a lease.
struct Exists {
  std::vector<std::string> keys;
};
struct Remove {
  std::vector<std::string> keys;
  bool force = false;  // also what readers have a lease on (their places stay untouched until it ends)
};
struct RemoveMatching {
  std::string pattern;  // ECMAScript regular expression, matched anywhere in the key; empty = all
  bool force = false;
};
struct CountAnswer {
  Code code = Code::kOk;
  uint64_t count = 0;
};
struct CodesAnswer {
  std::vector<Code> codes;
};
struct CodeAnswer {
  Code code = Code::kOk;
};

// A replica that could not be read: the master counts, and stops allocating on an owner that several clients report.
struct ReportUnreadable {
  ClientId owner{};
};

// ---- master → client (as an owner of replicas)
// ------------------------------------------------------------------------------------------

// Proposes a term and asks for the right to allocate on the owner for `lease`; counted by the master from before the
// request, by the owner from its answer. Repeated before it ends.
struct Grant {
  uint64_t term = 0;
  InstanceId master{};
  uint64_t generation = 0;
  Nanos lease = 0;
};
struct GrantAnswer {
  Code code = Code::kOk;  // kInvalidVersion: a higher term is granted already, `term`
  uint64_t term = 0;
  Nanos wait = 0;  // how long an earlier master may still have writers
};

// Enter these replicas into the inventory. Refused with kInvalidVersion from a master whose term is not the granted
// one.
struct Record {
  uint64_t term = 0;
  std::vector<InventoryEntry> entries;
};
// Forget these replicas. The owner keeps their ranges in mind as held for `hold` (readers' leases) and reports them to
// a new master.
struct Drop {
  uint64_t term = 0;
  uint64_t generation = 0;
  std::vector<KeyVersion> entries;
  std::vector<Nanos> holds;  // one for each entry, or empty
};
// Make sure that nothing that `writer` has sent can be placed any more, then answer.
struct Quiet {
  uint64_t term = 0;
  ClientId writer{};
  std::string endpoint;  // the writer's engine
};

using Body = std::variant<Attach, AttachAnswer, InventoryChunk, Heartbeat, HeartbeatAnswer, Mount, Unmount, PutStart,
                          PutStartAnswer, PutEnd, PutRevoke, PutRenew, PutRenewAnswer, Get, GetAnswer, Exists, Remove,
                          RemoveMatching, CountAnswer, CodesAnswer, CodeAnswer, ReportUnreadable, Grant, GrantAnswer,
                          Record, Drop, Quiet>;

struct Message {
  uint64_t request = 0;  // chosen by who asks, repeated by who answers
  bool answer = false;
  Body body;
};

}  // namespace tidewire::store
