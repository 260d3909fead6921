// SPDX-License-Identifier: Apache-2.0
#include "control/connection.h"

#include <utility>

#include "control/protocol.h"

namespace tidewire::control {
namespace {
constexpr size_t kMaxGather = 64;  // frames in one write
constexpr int kReadsInARow = 8;    // then others get their turn
}  // namespace

Connection::Connection(Socket socket, Agreement agreement, uint32_t max_payload, ScratchBuffer& scratch)
    : socket_(std::move(socket)),
      agreement_(std::move(agreement)),
      decoder_(max_payload),
      scratch_(scratch),
      heard_(monotonic_now()) {}

void Connection::start(Events events) {
  events_ = std::move(events);
  wait_readable();
}

void Connection::wait_readable() {
  if (waiting_ || !socket_.is_open() || queued_bytes_ > kMaxAnswerBacklog) return;
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
  for (int round = 0; round < kReadsInARow; ++round) {
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
    size_t used = 0;
    while (used < bytes && !finishing_) {
      used += decoder_.feed({scratch_.data() + used, bytes - used});
      if (!decoder_.status().ok()) return fail(decoder_.status());
      if (!decoder_.ready()) continue;
      events_.on_frame(decoder_.take());
      if (!socket_.is_open()) return;
    }
    if (bytes < scratch_.size() || queued_bytes_ > kMaxAnswerBacklog) break;
  }
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
    if (!self->queue_.empty()) return self->write();
    if (self->finishing_) {
      asio::error_code ignored;
      self->socket_.shutdown(Socket::shutdown_send, ignored);
    }
    self->wait_readable();
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
