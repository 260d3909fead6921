// SPDX-License-Identifier: Apache-2.0
#include "control/dialer.h"

#include <cstring>
#include <utility>

namespace tidewire::control {
namespace {
constexpr Nanos kNextAddress = 250 * kMillisecond;  // RFC 8305's delay between attempts

asio::ip::tcp::endpoint to_asio(const Endpoint& endpoint) {
  asio::ip::tcp::endpoint out;
  out.resize(endpoint.size);
  std::memcpy(out.data(), endpoint.address(), endpoint.size);
  return out;
}

std::string names(const std::vector<Endpoint>& endpoints) {
  std::string text;
  for (const Endpoint& endpoint : endpoints) text += (text.empty() ? "" : ", ") + endpoint.to_string();
  return text;
}
}  // namespace

void Dial::start(DialTarget target, Handshake handshake, Nanos deadline, Done done) {
  target_ = std::move(target);
  handshake_ = std::move(handshake);
  deadline_ = deadline;
  done_ = std::move(done);
  attempts_.reserve(target_.remotes.size());
  call_at(deadline_timer_, deadline, [weak = weak_from_this()] {
    auto self = weak.lock();
    if (!self || !self->done_) return;
    const Status late =
        self->hello_
            ? Status::error(Code::kTimeout, "{} took the connection but did not answer the hello", self->reached_)
            : Status::error(Code::kTimeout, "{} does not answer", names(self->target_.remotes));
    self->finish(late, nullptr, Socket(self->io_));
  });
  asio::post(io_, [self = shared_from_this()] {
    if (self->done_) self->try_next();
  });
}

void Dial::try_next() {
  if (started_ == target_.remotes.size()) return;
  const size_t index = started_++;
  const Endpoint& remote = target_.remotes[index];
  attempts_.emplace_back(io_);
  Result<UniqueFd> fd = open_client(remote, target_.local);
  Status status = fd.status();
  if (fd.ok()) {
    tune_connection(fd->get(), target_.keep_alive);
    status = adopt(attempts_[index], std::move(*fd), remote.family());
  }
  if (!status.ok()) return attempt_failed(status);
  attempts_[index].async_connect(to_asio(remote), [self = shared_from_this(), index](const asio::error_code& error) {
    if (self->done_ && !self->hello_) self->on_connected(index, error);
  });
  if (started_ < target_.remotes.size())
    call_at(next_timer_, monotonic_now() + kNextAddress, [weak = weak_from_this()] {
      auto self = weak.lock();
      if (self && self->done_ && !self->hello_) self->try_next();
    });
}

void Dial::on_connected(size_t attempt, const asio::error_code& error) {
  const std::string name = target_.remotes[attempt].to_string();
  if (error) return attempt_failed(socket_status(error.value(), "connect to " + name));
  const int fd = attempts_[attempt].native_handle();
  // A port without a listener on this host, hit by the kernel's own choice of source port, connects to itself.
  if (local_endpoint(fd) == target_.remotes[attempt])
    return attempt_failed(socket_status(ECONNREFUSED, "connect to " + name));
  reached_ = name;
  greet(std::move(attempts_[attempt]));
}

void Dial::attempt_failed(const Status& status) {
  if (first_error_.ok()) first_error_ = status;
  if (++failed_ == target_.remotes.size()) {
    // Later, because this may run inside start()'s own attempt loop.
    asio::post(io_, [self = shared_from_this()] { self->finish(self->first_error_, nullptr, Socket(self->io_)); });
    return;
  }
  if (failed_ == started_) {
    next_timer_.cancel();
    try_next();
  }
}

void Dial::greet(Socket socket) {
  next_timer_.cancel();
  hello_ = std::make_shared<HandshakeIo>(std::move(socket), std::move(*handshake_));
  asio::error_code ignored;
  for (Socket& other : attempts_) other.close(ignored);
  hello_->start(
      deadline_, [self = shared_from_this()](const Handshake& handshake, const Status& status, Socket connected) {
        self->finish(status.ok() ? status : status.with_context(self->reached_), &handshake, std::move(connected));
      });
}

void Dial::finish(const Status& status, const Handshake* handshake, Socket socket) {
  if (!done_) return;
  auto keep = shared_from_this();
  auto done = std::exchange(done_, nullptr);
  deadline_timer_.cancel();
  next_timer_.cancel();
  asio::error_code ignored;
  for (Socket& other : attempts_) other.close(ignored);
  done(status, handshake, std::move(socket));
  if (auto hello = std::exchange(hello_, nullptr)) hello->cancel(status);
}

}  // namespace tidewire::control
