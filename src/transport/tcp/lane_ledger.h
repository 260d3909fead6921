// SPDX-License-Identifier: Apache-2.0
//
// LaneLedger: which data lanes are live at a target, and which may never be again. It answers two questions without I/O
// or a clock of its own, so that the simulator drives it too: may this connection become a lane, and must a live lane
// be cut before a revocation is confirmed?
//
// A revoked lane leaves a tombstone, so that a connection of it that arrives later is refused. Tombstones expire after
// kTombstoneLife, which is longer than any connection attempt. When one initiator has more than kMaxTombstones, the
// oldest ones merge into a floor: every channel up to the floor is refused. Channel numbers grow, so this refuses too
// much rather than too little.
//
// Promises: not thread-safe (the transport guards it); memory is bounded by live lanes plus kMaxTombstones for each
// initiator that revoked within kTombstoneLife.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>

#include "base/clock.h"
#include "base/status.h"
#include "transport/peer_record.h"

namespace tidewire::transport::tcp {

class LaneLedger {
 public:
  static constexpr Nanos kTombstoneLife = 60 * kSecond;
  static constexpr size_t kMaxTombstones = 4'096;

  // kCanceled when the lane was revoked, kProtocol when it is live already. The caller must call gone() once after OK.
  Status admit(const InstanceId& initiator, uint64_t channel, Nanos now);
  // The lane ended by itself or was cut.
  void gone(const InstanceId& initiator, uint64_t channel);
  // From now on admit() refuses the channel. True when it is live: the caller must cut it before it confirms.
  // An initiator revokes its own channels only: its instance comes from the connection that asked.
  bool revoke(const InstanceId& initiator, uint64_t victim, Nanos now);

  size_t live() const;
  size_t tombstones() const;

 private:
  struct Initiator {
    std::set<uint64_t> live;
    std::map<uint64_t, Nanos> dead;                 // channel → when it may be forgotten
    std::deque<std::pair<Nanos, uint64_t>> by_age;  // the same, oldest first
    uint64_t floor = 0;                             // channels up to here are refused
    Nanos floor_until = 0;
    bool empty() const { return live.empty() && dead.empty() && floor == 0; }
  };
  void expire(Nanos now);

  std::map<InstanceId, Initiator> initiators_;
  Nanos next_expiry_ = kNever;
};

}  // namespace tidewire::transport::tcp
