// SPDX-License-Identifier: Apache-2.0
//
// A Job is the part of a batch that goes to one peer in one direction: a list of transfers and what is left of it. Positions in the list are
// (transfer, offset); a Range is a run of bytes between two positions. Each byte of a job is, at any time, in exactly one place: in `rest` or `retries`
// (to be sent), in a posted slice, or done.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>

#include "base/clock.h"
#include "base/status.h"
#include "transport/transport.h"

namespace tidewire::engine {

struct Transfer {
  uint64_t local = 0;
  uint64_t remote = 0;
  uint64_t length = 0;
  // Written under the peer's lock, read by anyone.
  std::atomic<uint64_t> done{0};
  std::atomic<uint8_t> state{TW_STATE_WAITING};
  std::atomic<uint8_t> code{TW_OK};  // why it will not complete; the state follows when nothing of the job is in flight any more
};

struct Position {
  uint64_t transfer = 0;
  uint64_t offset = 0;
  auto operator<=>(const Position&) const = default;
};

struct Range {
  Position begin;
  Position end;  // exclusive; offset 0 means "before this transfer"
  uint32_t attempts = 0;
  bool empty() const { return begin >= end; }
  // Whether it lies within one transfer.
  bool single() const {
    return end.transfer == begin.transfer || (end.transfer == begin.transfer + 1 && end.offset == 0);
  }
};

struct Job {
  // Told, outside of all locks, that the job is terminal.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void job_done(Job& job) = 0;
  };

  Job(transport::Opcode opcode, uint64_t count, Nanos submitted, Nanos deadline)
      : opcode(opcode), count(count), transfers(new Transfer[count]), submitted(submitted), deadline(deadline) {
    rest.end = {count, 0};
  }

  const transport::Opcode opcode;
  const uint64_t count;
  const std::unique_ptr<Transfer[]> transfers;
  const Nanos submitted;
  Nanos deadline;  // from its submission on the session's, under the peer's lock
  std::weak_ptr<Owner> owner;
  uint64_t bytes = 0;  // of all transfers
  // The channel that got the last slice: what a waiter drives.
  std::atomic<transport::ChannelId> hot_channel{0};
  std::atomic<transport::Transport*> hot_transport{nullptr};

  // The session's, under the peer's lock.
  uint64_t number = 0;          // in the order of submission
  Range rest;
  std::deque<Range> retries;
  uint64_t open_transfers = 0;  // neither done nor failed
  uint64_t rest_bytes = 0;      // not yet posted (an upper bound where transfers failed)
  uint32_t in_flight = 0;       // slices
  uint32_t level = 0;           // index of the transport that carries it
  uint32_t unfit = 0;           // bit t: transport t can't carry it
  bool queued = false;
  bool posted = false;          // some bytes were posted to the peer's present instance,
  InstanceId instance{};        // this one
  std::set<transport::ChannelId> victims;  // lost channels whose writes the target has not yet revoked
  Code stopping = Code::kOk;    // no new slices; why
  Nanos stop_at = kNever;       // when channels that still carry it are cut
  Nanos give_up_at = kNever;    // when unconfirmed revocations are no longer awaited
  bool gave_up = false;         // a revocation was not confirmed: transfers not yet COMPLETED by then may get late bytes, so they fail
  bool finished = false;
  Status error;                 // of the first transfer that failed
  Nanos first_post = 0;
  uint32_t retried_slices = 0;
};
using JobPtr = std::shared_ptr<Job>;

struct JobSlice : transport::Slice {
  JobPtr job;
  Range range;
  Nanos posted = 0;
};
using JobSlicePtr = std::shared_ptr<JobSlice>;

}  // namespace tidewire::engine
