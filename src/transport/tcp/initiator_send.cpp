// SPDX-License-Identifier: Apache-2.0
//
// The initiator's sending half. Small frames are encoded, several at a time, into the thread's stage and go with one
// call; a large one becomes current_ and goes in bites, straight from memory.
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>

#include "transport/tcp/initiator_lane.h"

namespace tidewire::transport::tcp {
namespace {

// Frames up to here are batched.
constexpr size_t kSmallFrame = 16 << 10;
// Slices up to here are sent by the poster also on a busy lane.
constexpr uint64_t kPostedWhenBusy = 64 << 10;
// Half of the stage.
constexpr size_t kMaxControl = 64 << 10;
static_assert(kMaxControl + kSmallFrame <= kStageBytes);

}  // namespace

size_t InitiatorLane::frame_bytes(const Slice& slice) const {
  return wire::kHeaderBytes + slice.pieces.size() * wire::kPieceBytes +
         (slice.opcode == Opcode::kWrite ? slice.bytes : 0);
}

bool InitiatorLane::batchable(const Slice& slice) const {
  return frame_bytes(slice) <= kSmallFrame;
}

void InitiatorLane::post(SlicePtr slice) {
  if (slice->pieces.empty() || slice->pieces.size() > wire::kMaxPieces || slice->bytes == 0 ||
      slice->bytes > wire::kMaxPayload) {
    events_.on_slice_done(
        channel_, slice,
        Status::error(Code::kInvalidArgument, "slice of {} bytes in {} pieces; at most {} bytes and {} pieces fit",
                      slice->bytes, slice->pieces.size(), wire::kMaxPayload, wire::kMaxPieces));
    return;
  }
  const uint64_t budget = slice->whole_job ? std::max<uint64_t>(frame_bytes(*slice), kPostBudget) : kPostBudget;
  bool refused = false;
  bool mine = false;
  {
    std::lock_guard lock(mutex_);
    refused = !up_ || closing_.load();
    if (!refused) {
      posts_.fetch_add(1, std::memory_order_relaxed);
      // With a second slice in flight its waiter may be asleep: the I/O thread receives again.
      const bool busy = in_flight_.fetch_add(1) >= 1;
      const bool hand_over = busy && slice->bytes > kPostedWhenBusy;
      if (busy && !armed_) {
        armed_ = true;
        update_interest();
      }
      pending_.push_back(std::move(slice));
      if (!sender_ && !blocked_) {
        if (hand_over) {
          blocked_ = true;
          update_interest();
        } else {
          mine = sender_ = true;
        }
      }
    }
  }
  if (refused) {
    events_.on_slice_done(channel_, slice, Status::error(Code::kUnreachable, "the lane to {} is not up", peer_));
    return;
  }
  wake_watch();
  if (mine) run_sender(budget);
}

void InitiatorLane::revoke(ChannelId victim) {
  bool mine = false;
  {
    std::lock_guard lock(mutex_);
    // When the lane goes down first the engine asks over another.
    if (!up_ || closing_.load() || control_.size() + wire::kHeaderBytes > kMaxControl) return;
    const size_t before = control_.size();
    control_.resize(before + wire::kHeaderBytes);
    wire::Header header;
    header.type = wire::Type::kRevoke;
    header.id = victim;
    wire::encode(header, control_.data() + before);
    if (!sender_ && !blocked_) mine = sender_ = true;
  }
  if (mine) run_sender(kPostBudget);
}

// The caller holds the role; it is free again afterwards.
void InitiatorLane::run_sender(uint64_t budget) {
  uint64_t total = 0;
  while (next_work()) {
    uint64_t sent = 0;
    const bool go_on = current_ != nullptr ? send_current(budget - total, sent) : send_batch(sent);
    total += sent;
    bytes_sent_.fetch_add(sent, std::memory_order_relaxed);
    if (!go_on || total >= budget) {
      release_sender_blocked();
      return;
    }
  }
}

// Chooses what to send next. False: nothing, and the role is free.
bool InitiatorLane::next_work() {
  bool finish_now = false;
  SlicePtr large;
  {
    std::lock_guard lock(mutex_);
    if (closing_.load()) {
      sender_ = false;
      finish_now = true;
    } else {
      if (current_ != nullptr) return true;
      if (control_now_.empty()) control_now_.swap(control_);
      size_t room = kStageBytes - control_now_.size();
      batch_count_ = 0;
      while (!pending_.empty() && batch_count_ < batch_.size() && batchable(*pending_.front())) {
        const size_t bytes = frame_bytes(*pending_.front());
        if (bytes > room) break;
        room -= bytes;
        awaiting_.push_back(Awaiting{pending_.front()});
        batch_[batch_count_++] = std::move(pending_.front());
        pending_.pop_front();
      }
      if (batch_count_ > 0 || !control_now_.empty()) return true;
      if (!pending_.empty()) {
        awaiting_.push_back(Awaiting{pending_.front()});
        large = std::move(pending_.front());
        pending_.pop_front();
      } else {
        sender_ = false;
        blocked_ = false;
        update_interest();
      }
    }
  }
  if (large != nullptr) {
    // Not under the lock: the table may be a megabyte.
    make_current(large);
    return true;
  }
  if (finish_now) request_finish();
  return false;
}

// The socket is full or the budget is used up: the I/O thread goes on when the socket is writable.
void InitiatorLane::release_sender_blocked() {
  bool finish_now = false;
  {
    std::lock_guard lock(mutex_);
    sender_ = false;
    finish_now = closing_.load();
    blocked_ = current_ != nullptr || !pending_.empty() || !control_.empty() || !control_now_.empty();
    update_interest();
  }
  if (finish_now) request_finish();
}

void InitiatorLane::encode_head(const Slice& slice, std::vector<uint8_t>& head) const {
  head.resize(wire::kHeaderBytes + slice.pieces.size() * wire::kPieceBytes);
  uint8_t* at = head.data() + wire::kHeaderBytes;
  for (const Piece& piece : slice.pieces) {
    wire::store(at, piece.remote);
    wire::store(at + 8, piece.length);
    at += wire::kPieceBytes;
  }
  wire::Header header;
  header.type = slice.opcode == Opcode::kWrite ? wire::Type::kWrite : wire::Type::kRead;
  header.count = static_cast<uint32_t>(slice.pieces.size());
  header.id = slice.id;
  header.payload_bytes = slice.bytes;
  header.body_check = wire::body_checksum(head.data() + wire::kHeaderBytes, head.size() - wire::kHeaderBytes);
  wire::encode(header, head.data());
}

void InitiatorLane::make_current(const SlicePtr& slice) {
  current_ = slice;
  encode_head(*slice, frame_.head);
  frame_.head_sent = 0;
  frame_.sent = 0;
  frame_.payload = slice->opcode == Opcode::kWrite
                       ? MemoryCursor(PieceView::of_slice(*slice), slice->hold, slice->bytes)
                       : MemoryCursor();
}

bool InitiatorLane::send_current(uint64_t most, uint64_t& sent) {
  Status why;
  bool more_follows;
  {
    std::lock_guard lock(mutex_);
    more_follows = !pending_.empty();
  }
  switch (send_once(fd_.get(), frame_, staged_, most, more_follows, sent, why)) {
    case SendOutcome::kFull:
      return false;
    case SendOutcome::kFailed:
      fail(why.with_context(peer_));
      return false;
    case SendOutcome::kCut:
      if (frame_.sent == 0) {
        give_up_slice(std::exchange(current_, nullptr), why);
        return true;
      }
      // The target waits for the rest of the frame, which can't be read any more.
      fail(why);
      return false;
    case SendOutcome::kMore:
      break;
  }
  if (!frame_.done()) return true;
  current_.reset();
  std::vector<Done> done;
  settle(1, done);
  report(done);
  return true;
}

bool InitiatorLane::send_batch(uint64_t& sent) {
  uint8_t* const stage = thread_stage();
  const size_t control_bytes = control_now_.size();
  std::copy_n(control_now_.data(), control_bytes, stage);
  size_t size = control_bytes;
  std::array<size_t, 64> ends;
  std::vector<uint8_t>& head = frame_.head;  // current_ is null: its buffer is free
  size_t kept = 0;
  for (size_t i = 0; i < batch_count_; ++i) {
    SlicePtr slice = std::move(batch_[i]);
    encode_head(*slice, head);
    std::copy_n(head.data(), head.size(), stage + size);
    if (slice->opcode == Opcode::kWrite) {
      MemoryCursor payload(PieceView::of_slice(*slice), slice->hold, slice->bytes);
      const Status gathered = payload.gather(stage + size + head.size(), slice->bytes);
      if (!gathered.ok()) {
        give_up_slice(slice, gathered);
        continue;
      }
    }
    size += frame_bytes(*slice);
    ends[kept] = size;
    batch_[kept++] = std::move(slice);
  }
  batch_count_ = kept;
  if (size == 0) return true;

  const ssize_t result = send(fd_.get(), stage, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (result < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ENOBUFS) {
    fail(errno_status(errno, "send").with_context(peer_));
    batch_count_ = 0;
    return false;
  }
  sent = result < 0 ? 0 : static_cast<uint64_t>(result);
  const size_t of_control = std::min<size_t>(sent, control_bytes);
  control_now_.erase(control_now_.begin(), control_now_.begin() + static_cast<ptrdiff_t>(of_control));

  size_t whole = 0;
  while (whole < kept && ends[whole] <= sent) ++whole;
  if (whole < kept) {
    // The socket took part. A frame that it took a piece of becomes current; the others go back.
    const size_t begins = whole == 0 ? control_bytes : ends[whole - 1];
    const bool torn = sent > begins;
    bool early = false;
    {
      std::lock_guard lock(mutex_);
      for (size_t i = kept; i-- > whole + (torn ? 1 : 0);) {
        pending_.push_front(std::move(batch_[i]));
        if (awaiting_.back().answered) {
          early = true;
          --answered_;
        }
        awaiting_.pop_back();
      }
    }
    if (early) fail(Status::error(Code::kProtocol, "{} answered a slice before it was sent", peer_));
    if (torn) {
      make_current(batch_[whole]);
      const uint64_t took = sent - begins;
      frame_.sent = took;
      frame_.head_sent = std::min<size_t>(took, frame_.head.size());
      frame_.payload.advance(took - frame_.head_sent);
    }
  }
  std::vector<Done> done;
  if (whole > 0) settle(whole, done);
  for (size_t i = 0; i < kept; ++i) batch_[i].reset();
  batch_count_ = 0;
  report(done);
  return sent == size;
}

// The first `finished` slices that were being sent are sent: their answers may end them from now on, or have come
// already.
void InitiatorLane::settle(size_t finished, std::vector<Done>& done) {
  std::lock_guard lock(mutex_);
  auto entry = awaiting_.begin();
  while (entry != awaiting_.end() && !entry->sending) ++entry;
  for (; finished > 0 && entry != awaiting_.end(); ++entry, --finished) entry->sending = false;
  while (answered_ > 0 && !awaiting_.front().sending) {
    done.push_back(Done{std::move(awaiting_.front().slice), std::move(awaiting_.front().status)});
    awaiting_.pop_front();
    --answered_;
  }
}

// A slice of which nothing was sent.
void InitiatorLane::give_up_slice(const SlicePtr& slice, const Status& why) {
  bool found = false;
  {
    std::lock_guard lock(mutex_);
    for (auto entry = awaiting_.end(); entry != awaiting_.begin() && !found;) {
      --entry;
      if (entry->slice == slice && !entry->answered) {
        awaiting_.erase(entry);
        found = true;
        break;
      }
    }
  }
  if (!found) {
    fail(Status::error(Code::kProtocol, "{} answered slice {} before it was sent", peer_, slice->id));
    return;
  }
  std::vector<Done> done;
  done.push_back(Done{slice, why});
  report(done);
}

void InitiatorLane::report(std::vector<Done>& done) {
  for (Done& one : done) {
    in_flight_.fetch_sub(1);
    events_.on_slice_done(channel_, one.slice, one.status);
  }
}

}  // namespace tidewire::transport::tcp
