// SPDX-License-Identifier: Apache-2.0
#include "control/handshake_io.h"

#include <utility>

namespace tidewire::control {

HandshakeIo::HandshakeIo(Socket socket, Handshake handshake)
    : socket_(std::move(socket)), handshake_(std::move(handshake)), timer_(socket_.get_executor()) {}

void HandshakeIo::start(Nanos deadline, Done done) {
  done_ = std::move(done);
  call_at(timer_, deadline, [weak = weak_from_this()] {
    if (auto self = weak.lock())
      self->finish(Status(Code::kTimeout, "the other side did not finish the hello in time"));
  });
  step();
}

void HandshakeIo::step() {
  outgoing_ = handshake_.take_output();
  if (!outgoing_.empty()) return write();
  if (handshake_.over()) return finish(handshake_.status());
  read();
}

void HandshakeIo::write() {
  asio::async_write(socket_, asio::buffer(outgoing_),
                    [self = shared_from_this()](const asio::error_code& error, size_t) {
                      if (!self->done_) return;
                      // What the verdict says is worth more than that it could not be told.
                      if (error)
                        return self->finish(self->handshake_.over() && !self->handshake_.status().ok()
                                                ? self->handshake_.status()
                                                : errno_status(error.value(), "hello"));
                      self->step();
                    });
}

void HandshakeIo::read() {
  const size_t size = std::min(handshake_.wanted(), incoming_.size());
  socket_.async_read_some(
      asio::buffer(incoming_.data(), size), [self = shared_from_this()](const asio::error_code& error, size_t bytes) {
        if (!self->done_) return;
        if (error == asio::error::eof)
          return self->finish(Status(Code::kPeerGone, "the other side closed the connection during the hello"));
        if (error) return self->finish(errno_status(error.value(), "hello"));
        self->handshake_.feed({self->incoming_.data(), bytes});
        self->step();
      });
}

void HandshakeIo::finish(const Status& status) {
  if (!done_) return;
  timer_.cancel();
  auto done = std::exchange(done_, nullptr);
  if (!status.ok()) {
    asio::error_code ignored;
    socket_.close(ignored);
  }
  done(handshake_, status, std::move(socket_));
}

}  // namespace tidewire::control
