// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/out_frame.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>

namespace tidewire::transport::tcp {
namespace {

// One send call: large enough that the call itself costs nothing, small enough that a pinned region or a closing lane
// does not wait long.
constexpr uint64_t kSendChunk = 1 << 20;
constexpr size_t kMostVectors = 1'024;  // UIO_MAXIOV

// The thread sanitizer counts what a send call reads as read after what the call published. Under it the tail, which
// tells the other side that the payload's memory is free again, gets a call of its own.
#ifdef __SANITIZE_THREAD__
constexpr bool kTailApart = true;
#else
constexpr bool kTailApart = false;
#endif

}  // namespace

uint8_t* thread_stage() {
  thread_local const std::unique_ptr<uint8_t[]> stage(new uint8_t[kStageBytes]);
  return stage.get();
}

SendOutcome send_once(int fd, OutFrame& frame, StagedPayload& staged, uint64_t most, bool more, uint64_t& sent, Status& why) {
  sent = 0;
  std::array<iovec, kMostVectors> vectors;
  size_t used = 0;
  const size_t head_left = frame.head.size() - frame.head_sent;
  if (head_left > 0) vectors[used++] = {frame.head.data() + frame.head_sent, head_left};

  PinSet pins;
  uint64_t from_payload = 0;
  if (frame.payload.remaining() > 0) {
    if (frame.payload.direct()) {
      MemoryCursor::Mapped mapped;
      why = frame.payload.map(vectors.data() + used, kMostVectors - 2, std::min(most, kSendChunk), pins, mapped);
      used += mapped.vectors;
      from_payload = mapped.bytes;
    } else if (frame.payload.staged()) {
      const uint8_t* bytes = nullptr;
      why = staged.front(frame.payload, bytes, from_payload);
      vectors[used++] = {const_cast<uint8_t*>(bytes), from_payload};
      if (why.ok()) staged.start_fetch();  // while the socket takes this
    } else {
      from_payload = std::min<uint64_t>(frame.payload.remaining(), kStageBytes);
      MemoryCursor ahead = frame.payload;  // moves on only by what the socket takes
      why = ahead.gather(thread_stage(), from_payload);
      vectors[used++] = {thread_stage(), from_payload};
    }
    if (!why.ok()) {
      staged.reset();
      return SendOutcome::kCut;
    }
  }
  const bool to_the_end = from_payload == frame.payload.remaining();
  const bool with_tail = to_the_end && !(kTailApart && from_payload > 0);
  if (with_tail && frame.tail_sent < frame.tail.size()) {
    vectors[used++] = {frame.tail.data() + frame.tail_sent, frame.tail.size() - frame.tail_sent};
  }

  msghdr message{};
  message.msg_iov = vectors.data();
  message.msg_iovlen = used;
  const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more || !with_tail ? MSG_MORE : 0);
  const ssize_t result = sendmsg(fd, &message, flags);
  const int error = errno;
  pins.clear();
  staged.end_fetch();
  if (result < 0) {
    if (error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS) return SendOutcome::kFull;
    if (error == EINTR) return SendOutcome::kMore;
    why = errno_status(error, "send");
    return SendOutcome::kFailed;
  }
  sent = static_cast<uint64_t>(result);
  frame.sent += sent;
  uint64_t left = sent;
  const uint64_t of_head = std::min<uint64_t>(left, head_left);
  frame.head_sent += of_head;
  left -= of_head;
  const uint64_t of_payload = std::min(left, from_payload);
  frame.payload.advance(of_payload);
  if (staged.holds_chunks()) {
    staged.consume(of_payload);
    if (frame.payload.remaining() == 0) staged.reset();
  }
  left -= of_payload;
  frame.tail_sent += left;
  return SendOutcome::kMore;
}

}  // namespace tidewire::transport::tcp
