// SPDX-License-Identifier: Apache-2.0
//
// The initiator's receiving half: answers and the payloads of reads. Who receives: the I/O thread, or a waiter through
// drive(). While one waiter spins for the only slice in flight, the I/O thread does not hear of the lane's bytes
// (armed_ is false): waking it for bytes that the waiter takes would cost more than the transfer. It hears of them
// again when a second slice is posted, when the waiter found nothing for kDriveWindow, and at the latest a millisecond
// after the last drive().
#include "base/log.h"
#include "transport/tcp/initiator_lane.h"

namespace tidewire::transport::tcp {
namespace {

// Waiters that call drive() must go on for at least this long before they sleep.
constexpr Nanos kDriveWindow = 20 * kMicrosecond;
constexpr uint64_t kDriveBudget = 1 << 20;

}  // namespace

bool InitiatorLane::take_receiver() {
  return !receiver_.exchange(true);
}

void InitiatorLane::release_receiver() {
  receiver_.store(false);
  if (closing_.load()) {
    request_finish();
    return;
  }
  if (in_latency_mode()) return;
  std::lock_guard lock(mutex_);
  if (armed_) return;
  armed_ = true;
  update_interest();
}

bool InitiatorLane::drive() {
  if (in_flight_.load(std::memory_order_relaxed) == 0) return false;
  if (!take_receiver()) return false;
  const Nanos now = monotonic_now();
  const bool got = receive_some(kDriveBudget);
  if (got) {
    fruitless_since_ = 0;
    last_drive_.store(now, std::memory_order_relaxed);
  } else {
    if (fruitless_since_ == 0 || now - last_drive_.load(std::memory_order_relaxed) > kDriveWindow)
      fruitless_since_ = now;
    if (now - fruitless_since_ < kDriveWindow) {
      last_drive_.store(now, std::memory_order_relaxed);
    } else {
      // About to sleep, for all we know: the I/O thread must hear of what comes.
      last_drive_.store(0, std::memory_order_relaxed);
      std::lock_guard lock(mutex_);
      if (!armed_) {
        armed_ = true;
        update_interest();
      }
    }
  }
  release_receiver();
  return got;
}

// True when any byte came. The caller holds the role.
bool InitiatorLane::receive_some(uint64_t budget) {
  if (closing_.load()) return false;
  bool progress = false;
  Status why;
  const uint64_t before = reader_.received_bytes();
  const FrameReceiver::Outcome outcome = reader_.run(fd_.get(), budget, progress, why);
  if (progress) bytes_received_.fetch_add(reader_.received_bytes() - before, std::memory_order_relaxed);
  if (outcome == FrameReceiver::Outcome::kEnded) {
    if (why.code() == Code::kProtocol)
      log::warn("tcp_malformed", "lane cut peer={} channel={} why={}", peer_, channel_, why.message());
    fail(why.with_context(peer_));
  }
  return progress;
}

Status InitiatorLane::on_frame(const wire::Header& header, const uint8_t* body, MemoryCursor** sink) {
  switch (header.type) {
    case wire::Type::kAck:
      return on_ack(header, body);
    case wire::Type::kRevoked:
      events_.on_revoked(header.id);
      return {};
    case wire::Type::kData: {
      std::lock_guard lock(mutex_);
      if (answered_ >= awaiting_.size() || awaiting_[answered_].slice->id != header.id) {
        return Status::error(Code::kProtocol, "data for slice {}, which is not the next to be answered", header.id);
      }
      const SlicePtr& slice = awaiting_[answered_].slice;
      if (slice->opcode != Opcode::kRead || slice->bytes != header.payload_bytes || data_slice_ != nullptr) {
        return Status::error(Code::kProtocol, "{} bytes of data for slice {}, which asked otherwise",
                             header.payload_bytes, header.id);
      }
      data_slice_ = slice;
      data_status_ = Status();
      data_ = MemoryCursor(PieceView::of_slice(*slice), slice->hold, slice->bytes);
      *sink = &data_;
      return {};
    }
    default:
      return Status::error(Code::kProtocol, "frame type {} at an initiator", static_cast<int>(header.type));
  }
}

// The slice ends with the ack that follows.
Status InitiatorLane::on_payload_end(const Status& placed) {
  data_status_ = placed;
  return {};
}

Status InitiatorLane::on_ack(const wire::Header& header, const uint8_t* text) {
  Status status;
  if (header.code != 0) {
    const Code code = header.code <= TW_INTERNAL ? static_cast<Code>(header.code) : Code::kProtocol;
    status = Status(code, std::string(reinterpret_cast<const char*>(text), header.count)).with_context(peer_);
  }
  SlicePtr slice;
  {
    std::lock_guard lock(mutex_);
    if (answered_ >= awaiting_.size() || awaiting_[answered_].slice->id != header.id) {
      return Status::error(Code::kProtocol, "answer for slice {}, which is not the next to be answered", header.id);
    }
    Awaiting& entry = awaiting_[answered_];
    if (entry.slice->opcode == Opcode::kRead && status.ok()) {
      if (data_slice_ != entry.slice)
        return Status::error(Code::kProtocol, "slice {} completed without its data", header.id);
      status = std::move(data_status_);
    }
    if (entry.sending) {
      // The sender has not returned from its system call: it reports the slice then.
      entry.answered = true;
      entry.status = std::move(status);
      ++answered_;
    } else {
      slice = std::move(entry.slice);
      awaiting_.pop_front();
    }
  }
  data_slice_.reset();
  if (slice != nullptr) {
    std::atomic_thread_fence(std::memory_order_acquire);
    in_flight_.fetch_sub(1);
    events_.on_slice_done(channel_, slice, status);
  }
  return {};
}

}  // namespace tidewire::transport::tcp
