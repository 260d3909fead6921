// SPDX-License-Identifier: Apache-2.0
#include "control/connection.h"

#include <utility>

#include "control/protocol.h"

namespace tidewire::control {
namespace {
constexpr size_t kMaxGather = 64;  // frames in one write
constexpr int kReadsInARow = 8;    // then others get their turn
}  // namespace

Connection::Connection(Socket socket, Agreement agreement, Limits limits, ScratchBuffer& scratch)
    : socket_(std::move(socket)),
      agreement_(std::move(agreement)),
      limits_(limits),
      decoder_(limits.max_payload),
      scratch_(scratch),
      heard_(monotonic_now()) {}

void Connection::start(Events events) {
  events_ = std::move(events);
  wait_readable();
}

void Connection::wait_readable() {
  if (waiting_ || !socket_.is_open() || congested()) return;
  waiting_ = true;
  socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const asio::error_code& error) {
    self->waiting_ = false;
    if (!self->socket_.is_open()) return;
    if (error) return self->fail(errno_status(error.value(), "read"));
    self->read();
  });
}

void Connection::read() {
  auto keep = shared_from_this();
  for (int round = 0; round < kReadsInARow && !congested(); ++round) {
    asio::error_code error;
    const size_t bytes = socket_.read_some(asio::buffer(scratch_), error);
    if (error == asio::error::would_block) break;
    if (error == asio::error::eof) {
      return fail(decoder_.partial()
                      ? Status(Code::kPeerGone, "the other side closed the connection in the middle of a frame")
                      : Status(Code::kPeerGone, "the other side closed the connection"));
    }
    if (error) return fail(errno_status(error.value(), "read"));
    heard_ = monotonic_now();
    const size_t used = take_frames({scratch_.data(), bytes});
    if (!socket_.is_open()) return;
    held_.assign(scratch_.data() + used, scratch_.data() + bytes);
    if (bytes < scratch_.size()) break;
  }
  wait_readable();
}

size_t Connection::take_frames(std::span<const uint8_t> bytes) {
  size_t used = 0;
  while (used < bytes.size() && !congested()) {
    if (finishing_) return bytes.size();
    used += decoder_.feed(bytes.subspan(used));
    if (!decoder_.status().ok()) {
      fail(decoder_.status());
      return used;
    }
    if (!decoder_.ready()) continue;
    events_.on_frame(decoder_.take());
    if (!socket_.is_open()) return used;
  }
  return used;
}

void Connection::go_on() {
  if (congested()) return;
  const std::vector<uint8_t> held = std::exchange(held_, {});
  const size_t used = take_frames(held);
  if (!socket_.is_open()) return;
  held_.assign(held.begin() + static_cast<ptrdiff_t>(used), held.end());
  wait_readable();
}

void Connection::send(std::vector<uint8_t> frame) {
  if (!socket_.is_open() || finishing_) return;
  queued_bytes_ += frame.size();
  queue_.push_back(std::move(frame));
  if (in_write_ == 0) write();
}

void Connection::finish(std::vector<uint8_t> last_frame) {
  send(std::move(last_frame));
  finishing_ = true;
}

void Connection::write() {
  std::vector<asio::const_buffer> buffers;
  in_write_ = std::min(queue_.size(), kMaxGather);
  for (size_t i = 0; i < in_write_; ++i) buffers.push_back(asio::buffer(queue_[i]));
  asio::async_write(socket_, buffers, [self = shared_from_this()](const asio::error_code& error, size_t bytes) {
    if (!self->socket_.is_open()) return;
    if (error) return self->fail(errno_status(error.value(), "write"));
    self->queued_bytes_ -= bytes;
    self->queue_.erase(self->queue_.begin(), self->queue_.begin() + static_cast<ptrdiff_t>(self->in_write_));
    self->in_write_ = 0;
    if (!self->queue_.empty()) {
      self->write();
      return self->go_on();
    }
    if (self->finishing_) {
      asio::error_code ignored;
      self->socket_.shutdown(Socket::shutdown_send, ignored);
    }
    self->go_on();
  });
}

void Connection::fail(const Status& why) {
  if (!socket_.is_open()) return;
  auto keep = shared_from_this();
  auto on_closed = std::move(events_.on_closed);
  close();
  if (on_closed) on_closed(why);
}

void Connection::close() {
  asio::error_code ignored;
  socket_.close(ignored);
}

}  // namespace tidewire::control
