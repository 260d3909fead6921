// SPDX-License-Identifier: Apache-2.0
//
// A Batch: transfers submitted together with one deadline, in one job for each peer and direction. It is terminal when every job is and, where a
// notification belongs to it and all transfers completed, when the peer has that notification. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "engine/job.h"

namespace tidewire::engine {

class Peer;

struct TransferSpec {
  transport::Opcode opcode;
  uint64_t local;
  uint64_t remote;
  uint64_t length;
  std::shared_ptr<Peer> peer;  // null only with `bad`
  Status bad;                  // a bad argument that the caller found: this transfer fails with it
};

class Batch : public Job::Owner, public std::enable_shared_from_this<Batch> {
 public:
  struct Part {
    JobPtr job;
    std::shared_ptr<Peer> peer;
  };
  // Called when the data of every job is done: sends what has to be sent after it, then calls finish().
  using AfterData = std::function<void(const std::shared_ptr<Batch>&)>;

  // `index` gives (part, transfer in it) of each transfer in the caller's order; empty when there is one part in the same order.
  Batch(std::vector<Part> parts, std::vector<std::pair<uint32_t, uint32_t>> index, uint64_t count, Nanos submitted, AfterData after_data);

  void job_done(Job& job) override;
  // Makes it terminal. `status` is that of what came after the data.
  void finish(const Status& status);

  bool terminal() const { return done_.load(std::memory_order_acquire) != 0; }
  // Sleeps until terminal or `until`; drives the channels itself for a moment first, for ever when busy_poll.
  bool wait(Nanos until, bool busy_poll);
  tw_batch_status status() const;
  // kNotFound when index is out of range.
  Result<tw_transfer_status> transfer_status(uint64_t index) const;
  // The first failed transfer's error, or that of the notification; OK when none.
  Status error() const;
  Result<int> event_fd();
  void cancel();
  // Moves the deadline of what is not terminal yet (a point on the monotonic clock).
  void extend(Nanos deadline);

  const std::vector<Part>& parts() const { return parts_; }
  Nanos submitted() const { return submitted_; }
  bool data_completed() const;

 private:
  const Transfer* transfer(uint64_t index) const;

  const std::vector<Part> parts_;
  const std::vector<std::pair<uint32_t, uint32_t>> index_;
  const uint64_t count_;
  const Nanos submitted_;
  AfterData after_data_;
  std::atomic<uint32_t> open_parts_;
  std::atomic<uint32_t> done_{0};  // futex
  std::atomic<uint32_t> sleepers_{0};
  mutable std::mutex mutex_;
  Status after_status_;
  UniqueFd event_;
};
using BatchPtr = std::shared_ptr<Batch>;

}  // namespace tidewire::engine
