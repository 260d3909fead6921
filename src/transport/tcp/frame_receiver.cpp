// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/frame_receiver.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>

namespace tidewire::transport::tcp {
namespace {

// The thread's receive buffer: stays in its second-level cache, which is what makes copying small pieces through it
// cheap.
constexpr size_t kFrontBytes = 256 << 10;
// How much is received in search of a header. Bytes of a large payload that land in the buffer are copied once more:
// hence little is read ahead after a large frame.
constexpr size_t kAheadBytes = 64 << 10;
constexpr size_t kAheadAfterLarge = 512;
constexpr uint64_t kLargePayload = 64 << 10;
// One receive call into memory: bounds how long a region stays pinned.
constexpr uint64_t kReceiveChunk = 1 << 20;
constexpr size_t kMostVectors = 1'023;  // UIO_MAXIOV less one for what follows the payload
// Less of a payload for a device is not worth a staging chunk.
constexpr uint64_t kStagedFrom = 16 << 10;
constexpr size_t kKeepBodyBytes = 128 << 10;

struct Front {
  std::unique_ptr<uint8_t[]> bytes{new uint8_t[kFrontBytes]};
  bool busy = false;
};
Front& thread_front() {
  thread_local Front front;
  return front;
}

}  // namespace

FrameReceiver::Outcome FrameReceiver::run(int fd, uint64_t budget, bool& progress, Status& why) {
  Front& front = thread_front();
  // A handler drives another lane from within an event: the buffer is taken. The I/O thread does that lane's work.
  if (front.busy) return Outcome::kDrained;
  front.busy = true;
  struct Free {
    bool& busy;
    ~Free() { busy = false; }
  } free{front.busy};

  const Outcome outcome = receive_all(fd, front.bytes.get(), received_ + budget, progress, why);
  settle();
  return outcome;
}

FrameReceiver::Outcome FrameReceiver::receive_all(int fd, uint8_t* front, uint64_t stop_at, bool& progress, Status& why) {
  while (received_ < stop_at && !client_.paused()) {
    size_t in_front = 0;
    size_t asked = 0;
    why = Status();
    const ssize_t got = receive(fd, front, kFrontBytes, in_front, asked, why);
    if (!why.ok()) return Outcome::kEnded;
    if (got < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Outcome::kDrained;
      if (errno == EINTR) continue;
      why = errno_status(errno, "receive");
      return Outcome::kEnded;
    }
    if (got == 0) {
      why = Status(Code::kPeerGone, "connection closed by the other side");
      return Outcome::kEnded;
    }
    progress = true;
    received_ += static_cast<uint64_t>(got);
    const uint8_t* at = front;
    why = parse(at, at + in_front);
    if (!why.ok()) return Outcome::kEnded;
    client_.on_received();
    if (static_cast<size_t>(got) < asked) return Outcome::kDrained;
  }
  return Outcome::kBudget;
}

ssize_t FrameReceiver::receive(int fd, uint8_t* front, size_t front_size, size_t& in_front, size_t& asked,
                               Status& why) {
  if (state_ == State::kPayload && sink_ != nullptr && sink_->staged() && (touching_ || payload_left_ >= kStagedFrom)) {
    return receive_staged(fd, front, in_front, asked, why);
  }
  const size_t ahead = last_was_large_ ? kAheadAfterLarge : kAheadBytes;
  std::array<iovec, kMostVectors + 1> vectors;
  size_t used = 0;
  uint64_t direct_bytes = 0;
  bool to_body = false;

  if (state_ == State::kBody) {
    direct_bytes = body_.size() - body_got_;
    vectors[used++] = {body_.data() + body_got_, direct_bytes};
    to_body = true;
  } else if (state_ == State::kPayload && sink_ != nullptr && sink_->direct()) {
    if (!client_.begin_touch()) {
      why = Status(Code::kCanceled, "lane was cut");
      return -1;
    }
    PinSet pins;
    MemoryCursor::Mapped mapped;
    const Status pinned = sink_->map(vectors.data(), kMostVectors, kReceiveChunk, pins, mapped);
    ssize_t got = -1;
    if (pinned.ok()) {
      used = mapped.vectors;
      direct_bytes = mapped.bytes;
      asked = mapped.bytes;
      if (mapped.bytes == payload_left_) {
        vectors[used++] = {front, kAheadAfterLarge};
        asked += kAheadAfterLarge;
      }
      msghdr message{};
      message.msg_iov = vectors.data();
      message.msg_iovlen = used;
      got = recvmsg(fd, &message, MSG_DONTWAIT);
    }
    const int error = errno;
    pins.clear();
    client_.end_touch();
    if (!pinned.ok()) {
      // The rest is thrown away; the frame ends with this status and the lane goes on.
      placed_ = pinned;
      sink_ = nullptr;
    } else {
      if (got > 0) {
        const uint64_t placed = std::min<uint64_t>(got, direct_bytes);
        sink_->advance(placed);
        payload_left_ -= placed;
        in_front = static_cast<size_t>(got) - placed;
        if (payload_left_ == 0) why = finish_payload();
      }
      errno = error;
      return got;
    }
  }

  size_t front_room = ahead;
  if (state_ == State::kPayload) {
    front_room = static_cast<size_t>(std::min<uint64_t>(front_size, payload_left_ + kAheadAfterLarge));
  }
  vectors[used++] = {front, front_room};
  asked = direct_bytes + front_room;
  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = used;
  const ssize_t got = used == 1 ? recv(fd, front, front_room, MSG_DONTWAIT) : recvmsg(fd, &message, MSG_DONTWAIT);
  if (got > 0) {
    const uint64_t direct = std::min<uint64_t>(got, direct_bytes);
    in_front = static_cast<size_t>(got) - direct;
    if (to_body) {
      body_got_ += direct;
      if (body_got_ == body_.size()) why = begin_frame(body_.data());
    }
  }
  return got;
}

Status FrameReceiver::parse(const uint8_t*& at, const uint8_t* end) {
  while (at < end) {
    const size_t available = static_cast<size_t>(end - at);
    if (state_ == State::kHeader) {
      const uint8_t* header = at;
      if (stashed_ > 0 || available < wire::kHeaderBytes) {
        const size_t take = std::min(available, wire::kHeaderBytes - stashed_);
        std::memcpy(stash_.data() + stashed_, at, take);
        stashed_ += take;
        at += take;
        if (stashed_ < wire::kHeaderBytes) return {};
        header = stash_.data();
        stashed_ = 0;
      } else {
        at += wire::kHeaderBytes;
      }
      TW_RETURN_IF_ERROR(wire::decode(header, header_));
      const size_t body_bytes = header_.body_bytes();
      body_got_ = 0;
      if (body_bytes > kKeepBodyBytes || body_.capacity() <= kKeepBodyBytes) {
        body_.resize(body_bytes);
      } else {
        std::vector<uint8_t>(body_bytes).swap(body_);
      }
      state_ = State::kBody;
      if (body_bytes == 0) TW_RETURN_IF_ERROR(begin_frame(nullptr));
    } else if (state_ == State::kBody) {
      const size_t take = std::min(available, body_.size() - body_got_);
      std::memcpy(body_.data() + body_got_, at, take);
      body_got_ += take;
      at += take;
      if (body_got_ == body_.size()) TW_RETURN_IF_ERROR(begin_frame(body_.data()));
    } else {
      const uint64_t take = std::min<uint64_t>(available, payload_left_);
      TW_RETURN_IF_ERROR(place(at, take));
      at += take;
      payload_left_ -= take;
      if (payload_left_ == 0) TW_RETURN_IF_ERROR(finish_payload());
    }
  }
  return {};
}

Status FrameReceiver::begin_frame(const uint8_t* body) {
  TW_RETURN_IF_ERROR(wire::verify_body(header_, body));
  sink_ = nullptr;
  placed_ = Status();
  payload_left_ = header_.stream_bytes();
  state_ = payload_left_ > 0 ? State::kPayload : State::kHeader;
  last_was_large_ = payload_left_ >= kLargePayload;
  return client_.on_frame(header_, body, &sink_);
}

ssize_t FrameReceiver::receive_staged(int fd, uint8_t* front, size_t& in_front, size_t& asked, Status& why) {
  Staged& half = staged_[half_];
  if (half.chunk.bytes() == nullptr) half.chunk = StagingChunk::take();
  if (const Status copied = half.copies.wait(); !copied.ok() && placed_.ok()) placed_ = copied;
  half.pins.clear();
  const uint64_t room = std::min<uint64_t>(payload_left_, kStagingBytes);
  iovec vectors[2] = {{half.chunk.bytes(), room}, {front, kAheadAfterLarge}};
  const bool to_the_end = room == payload_left_;
  asked = room + (to_the_end ? kAheadAfterLarge : 0);
  msghdr message{};
  message.msg_iov = vectors;
  message.msg_iovlen = to_the_end ? 2 : 1;
  const ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT);
  if (got <= 0) return got;
  const uint64_t placed = std::min<uint64_t>(got, room);
  in_front = static_cast<size_t>(got) - placed;
  payload_left_ -= placed;
  why = place_staged(placed);
  if (why.ok() && payload_left_ == 0) {
    settle();
    why = finish_payload();
  }
  return got;
}

// Starts to copy what the half holds, and turns to the other. An error ends the lane; a copy that failed only the frame.
Status FrameReceiver::place_staged(uint64_t count) {
  Staged& half = staged_[half_];
  if (!touching_ && !client_.begin_touch()) return Status(Code::kCanceled, "lane was cut");
  touching_ = true;
  Status started = placed_;
  if (started.ok()) started = sink_->start_scatter(half.chunk.bytes(), count, half.pins, half.copies);
  half.copies.seal();
  half_ ^= 1;
  if (!started.ok()) {
    settle();
    placed_ = started;
    sink_ = nullptr;  // the rest is thrown away
  }
  return {};
}

void FrameReceiver::settle() {
  for (Staged& half : staged_) {
    if (const Status copied = half.copies.wait(); !copied.ok() && placed_.ok()) placed_ = copied;
    half.pins.clear();
  }
  if (!touching_) return;
  touching_ = false;
  client_.end_touch();
}

Status FrameReceiver::finish_payload() {
  state_ = State::kHeader;
  sink_ = nullptr;
  for (Staged& half : staged_) half.chunk = StagingChunk();
  return client_.on_payload_end(placed_);
}

Status FrameReceiver::place(const uint8_t* bytes, uint64_t count) {
  if (sink_ == nullptr) return {};
  settle();  // a touch is not begun twice
  if (!client_.begin_touch()) return Status(Code::kCanceled, "lane was cut");
  const Status placed = sink_->scatter(bytes, count);
  client_.end_touch();
  if (!placed.ok()) {
    placed_ = placed;
    sink_ = nullptr;
  }
  return {};
}

}  // namespace tidewire::transport::tcp
