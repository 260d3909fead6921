// SPDX-License-Identifier: Apache-2.0
#include "engine/batch.h"

#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <climits>

#include "engine/peer.h"

namespace tidewire::engine {
namespace {

// How long a waiter does the channels' work itself, without any success, before it sleeps: about twice a loopback round trip.
constexpr Nanos kDriveTime = 50 * kMicrosecond;

void futex_wait(std::atomic<uint32_t>& word, uint32_t value, Nanos until) {
  timespec time{until / kSecond, until % kSecond};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, value,
          until == kNever ? nullptr : &time, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

Batch::Batch(std::vector<Part> parts, std::vector<std::pair<uint32_t, uint32_t>> index, uint64_t count, Nanos submitted,
             AfterData after_data)
    : parts_(std::move(parts)),
      index_(std::move(index)),
      count_(count),
      submitted_(submitted),
      after_data_(std::move(after_data)),
      open_parts_(static_cast<uint32_t>(parts_.size())) {}

void Batch::job_done(Job&) {
  if (open_parts_.fetch_sub(1, std::memory_order_acq_rel) == 1) after_data_(shared_from_this());
}

void Batch::finish(const Status& status) {
  {
    std::lock_guard lock(mutex_);
    after_status_ = status;
    // Under the lock, so that event_fd() either sees the batch terminal or has its descriptor signalled here.
    done_.store(1, std::memory_order_seq_cst);
    if (event_.valid()) eventfd_write(event_.get(), 1);
  }
  if (sleepers_.load(std::memory_order_seq_cst) > 0) futex_wake_all(done_);
}

bool Batch::wait(Nanos until, bool busy_poll) {
  if (terminal()) return true;
  Nanos now = monotonic_now();
  Nanos sleep_at = now + kDriveTime;
  while (now < until && (busy_poll || now < sleep_at)) {
    bool worked = false;
    for (const Part& part : parts_) {
      if (part.peer->drive(*part.job)) worked = true;
      if (terminal()) return true;
    }
    now = monotonic_now();
    if (worked) sleep_at = now + kDriveTime;
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (!terminal() && monotonic_now() < until) futex_wait(done_, 0, until);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return terminal();
}

const Transfer* Batch::transfer(uint64_t index) const {
  if (index >= count_) return nullptr;
  if (index_.empty()) return &parts_[0].job->transfers[index];
  return &parts_[index_[index].first].job->transfers[index_[index].second];
}

Result<tw_transfer_status> Batch::transfer_status(uint64_t index) const {
  const Transfer* found = transfer(index);
  if (!found) return Status::error(Code::kNotFound, "transfer {} of a batch of {}: no such index", index, count_);
  tw_transfer_status status{};
  status.state = found->state.load(std::memory_order_acquire);
  const bool open = status.state == TW_STATE_WAITING || status.state == TW_STATE_PENDING;
  status.code = open ? TW_OK : found->code.load(std::memory_order_relaxed);
  status.transferred_bytes = found->done.load(std::memory_order_relaxed);
  return status;
}

tw_batch_status Batch::status() const {
  tw_batch_status status{};
  status.transfers = count_;
  const bool done = terminal();
  int32_t code = TW_OK;
  bool mixed = false;
  bool pending = false;
  for (uint64_t i = 0; i < count_; ++i) {
    const Transfer& one = *transfer(i);
    const uint8_t state = one.state.load(std::memory_order_acquire);
    status.transferred_bytes += one.done.load(std::memory_order_relaxed);
    pending |= state != TW_STATE_WAITING;
    if (state == TW_STATE_COMPLETED) {
      ++status.completed;
    } else if (state != TW_STATE_WAITING && state != TW_STATE_PENDING) {
      ++status.failed;
      const int32_t reason = one.code.load(std::memory_order_relaxed);
      mixed |= code != TW_OK && code != reason;
      code = reason;
    }
  }
  if (!done) {
    status.state = pending ? TW_STATE_PENDING : TW_STATE_WAITING;
    return status;
  }
  if (status.failed == 0) {
    std::lock_guard lock(mutex_);
    status.code = static_cast<int32_t>(after_status_.code());
    status.state = after_status_.ok() ? TW_STATE_COMPLETED : TW_STATE_FAILED;
    return status;
  }
  status.code = mixed || status.completed > 0 ? int32_t{TW_PARTIAL} : code;
  const bool all = status.completed == 0 && !mixed;
  status.state = all && code == TW_CANCELED ? TW_STATE_CANCELED : all && code == TW_TIMEOUT ? TW_STATE_TIMEOUT : TW_STATE_FAILED;
  return status;
}

bool Batch::data_completed() const {
  for (const Part& part : parts_)
    for (uint64_t i = 0; i < part.job->count; ++i)
      if (part.job->transfers[i].state.load(std::memory_order_acquire) != TW_STATE_COMPLETED) return false;
  return true;
}

Status Batch::error() const {
  if (!terminal()) return {};
  for (const Part& part : parts_)
    if (!part.job->error.ok()) return part.job->error;
  std::lock_guard lock(mutex_);
  return after_status_;
}

Result<int> Batch::event_fd() {
  std::lock_guard lock(mutex_);
  if (!event_.valid()) {
    event_.reset(eventfd(terminal() ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event_.valid()) return errno_status(errno, "eventfd for a batch");
  }
  return event_.get();
}

void Batch::extend(Nanos deadline) {
  for (const Part& part : parts_) part.peer->extend(part.job, deadline);
}

void Batch::cancel() {
  for (const Part& part : parts_) part.peer->cancel(part.job);
}

}  // namespace tidewire::engine
