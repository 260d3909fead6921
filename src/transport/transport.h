// SPDX-License-Identifier: Apache-2.0
//
// The seam between the engine and what moves bytes. A Transport drives the local rails of one kind; a channel is one initiator-side path
// from a local rail to a rail of a peer (a TCP connection, a mapping of a same-host peer's memory). The engine opens channels, posts slices
// on them, and hears what became of each. The target's side (checking ranges, placing bytes, acknowledging) lives inside the transport.
//
// Rules that every transport keeps; the conformance suite checks them:
//  - on_slice_done(OK) only when the bytes are placed and visible: for a write at the target, for a read in local memory.
//  - After on_slice_done or on_channel_down for a slice, its local memory is not touched again.
//  - Slices complete in any order. A failed slice (range refused by the target, region cut) leaves the channel up unless the transport can't go
//    on; then on_channel_down follows.
//  - post, close, drive and revoke never block on the network. Events come from any thread, also from within post and drive, never from within open
//    or close; the engine's handlers do not block and may call post from within events.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "memory/region.h"
#include "transport/peer_record.h"

namespace tidewire::transport {

enum class Opcode : uint8_t { kRead = TW_READ, kWrite = TW_WRITE };

struct Piece {
  uint64_t local;
  uint64_t remote;
  uint64_t length;  // > 0
};

// What one channel carries in one operation. Immutable while posted.
struct Slice {
  uint64_t id = 0;  // unique within the engine, new for each post
  Opcode opcode = Opcode::kWrite;
  uint64_t bytes = 0;
  std::vector<Piece> pieces;
  RangeHold hold;          // the local regions, in use
  bool whole_job = false;  // nothing of its job is on its way or follows: whoever posts it has nothing better to do than to move it
  virtual ~Slice() = default;
};
using SlicePtr = std::shared_ptr<Slice>;

using ChannelId = uint64_t;  // given by the engine, never reused

class Events {
 public:
  virtual ~Events() = default;
  virtual void on_channel_up(ChannelId channel) = 0;
  // Terminal for the channel, exactly once, whether it was up or not. Slices posted on it and not yet done are handed back by this
  // call: none of them touches local memory any more. `seen` is the instance that answered where one did (it differs from the record's when the
  // peer restarted), otherwise all zero.
  virtual void on_channel_down(ChannelId channel, const Status& why, const InstanceId& seen) = 0;
  virtual void on_slice_done(ChannelId channel, const SlicePtr& slice, const Status& status) = 0;
  // The target confirms that nothing of the victim channel can be placed any more.
  virtual void on_revoked(ChannelId victim) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;  // "tcp", "shm"
  // Local rails, fixed after construction; their order is the index used below.
  virtual std::vector<RailRecord> rails() const = 0;
  // Whether a channel to this peer makes sense (same host proven possible, version, a common rail kind). Cheap, no I/O.
  virtual bool reaches(const PeerRecord& peer) const = 0;
  // The (local rail, remote rail) pairs worth using for this peer, best first.
  virtual std::vector<std::pair<uint32_t, uint32_t>> pair_rails(const PeerRecord& peer) const = 0;
  // How many channels to open on each pair.
  virtual uint32_t lanes_per_pair() const = 0;
  // True when bytes of a lost channel can still arrive at the target, so that revoke() is needed before a write's transfer is terminal.
  virtual bool needs_revocation() const = 0;

  // Starts connecting. on_channel_up, or on_channel_down at the latest at `deadline`.
  virtual void open(ChannelId channel, const PeerRecord& peer, uint32_t local_rail, uint32_t remote_rail, Nanos deadline) = 0;
  // On a channel that is not up the slice is handed back through on_slice_done(kUnreachable).
  virtual void post(ChannelId channel, SlicePtr slice) = 0;
  // Cuts the channel: no further touch of local memory once on_channel_down came, which is bounded by one copy or system call.
  virtual void close(ChannelId channel, const Status& why) = 0;
  // Asks the target, over channel `via`, to cut `victim`: on_revoked(victim) follows when it did, nothing when `via` goes down first.
  virtual void revoke(ChannelId via, ChannelId victim) = 0;
  // Lets a waiting thread do the channel's work (receive acknowledgements, copy) instead of sleeping; never blocks. True when it did something.
  virtual bool drive(ChannelId channel) = 0;

  // As a target: ends what this initiator (zero: every one) has under way towards local memory, so that nothing that it sent before can be placed any more. Blocks; false
  // when that could not be had by the deadline (a same-host process that stands still in the middle of a copy). Later operations are not hindered.
  virtual bool silence(const InstanceId& initiator, Nanos deadline) = 0;

  // Stops everything: closes channels, refuses peers, joins threads. Idempotent; called before destruction.
  virtual void stop() = 0;
  // For status and metrics: one JSON object.
  virtual std::string describe() const = 0;
};

}  // namespace tidewire::transport
