// SPDX-License-Identifier: Apache-2.0
#include "control/acceptor.h"

#include <fcntl.h>

#include <cerrno>

#include "base/log.h"
#include "control/protocol.h"

namespace tidewire::control {
namespace {
constexpr int kAcceptsInARow = 64;           // then others get their turn
constexpr Nanos kRest = 100 * kMillisecond;  // without descriptors

UniqueFd open_spare() {
  return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}
}  // namespace

Acceptor::Acceptor(asio::io_context& io, const Identity& identity, Nanos hello_timeout, Events events)
    : io_(io), identity_(identity), hello_timeout_(hello_timeout), events_(std::move(events)), spare_(open_spare()) {}

Acceptor::~Acceptor() {
  close();
}

Status Acceptor::add(UniqueFd fd, int family, uint32_t rail) {
  auto listener = std::make_unique<Listener>(io_, rail);
  asio::error_code error;
  listener->acceptor.assign(family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), fd.get(), error);
  if (error) return errno_status(error.value(), "add a listener to the event loop");
  fd.release();
  listeners_.push_back(std::move(listener));
  return Status();
}

void Acceptor::start() {
  for (auto& listener : listeners_) wait(*listener);
}

void Acceptor::close() {
  asio::error_code ignored;
  for (auto& listener : listeners_) {
    listener->acceptor.close(ignored);
    listener->rest.cancel();
  }
  auto unknown = std::move(unknown_);
  unknown_.clear();
  for (auto& hello : unknown) hello->cancel(Status(Code::kClosed, "the engine is closing"));
}

void Acceptor::wait(Listener& listener) {
  listener.acceptor.async_wait(asio::ip::tcp::acceptor::wait_read, [this, &listener](const asio::error_code& error) {
    // Cancelled: this object may be gone.
    if (error) return;
    accept_ready(listener);
  });
}

void Acceptor::accept_ready(Listener& listener) {
  for (int i = 0; i < kAcceptsInARow; ++i) {
    Endpoint from;
    from.size = sizeof(from.storage);
    UniqueFd fd(accept4(listener.acceptor.native_handle(), reinterpret_cast<sockaddr*>(&from.storage), &from.size,
                        SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) {
      greet(std::move(fd), from, listener.rail);
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) break;
    // Errors of the one connection (accept(2)): it is gone, others wait.
    if (errno == ECONNABORTED || errno == EINTR || errno == EPROTO || errno == ENETDOWN || errno == EHOSTUNREACH ||
        errno == ENETUNREACH || errno == ENOPROTOOPT || errno == EHOSTDOWN || errno == ENONET || errno == EOPNOTSUPP)
      continue;
    return out_of_descriptors(listener, errno);
  }
  wait(listener);
}

void Acceptor::out_of_descriptors(Listener& listener, int error) {
  log::warn("control_accept", "{}", socket_status(error, "take a control connection").message());
  if (spare_.valid()) {
    // The newcomer learns at once that it won't be served, instead of waiting for its timeout.
    spare_.reset();
    UniqueFd(accept4(listener.acceptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC)).reset();
  }
  spare_ = open_spare();
  call_at(listener.rest, monotonic_now() + kRest, [this, &listener] {
    if (!spare_.valid()) spare_ = open_spare();
    wait(listener);
  });
}

void Acceptor::greet(UniqueFd fd, const Endpoint& from, uint32_t rail) {
  if (!events_.has_room()) {
    log::warn("control_full", "refused a connection from {}: {} are open already", from.to_string(), kMaxAccepted);
    return;
  }
  if (unknown_.size() >= kMaxInHandshake) {
    auto oldest = unknown_.front();
    oldest->cancel(Status(Code::kNoResources, "too many connections without a hello"));
  }
  tune_connection(fd.get(), false);
  Socket socket(io_);
  if (Status status = adopt(socket, std::move(fd), from.family()); !status.ok()) {
    log::warn("control_accept", "{}", status.message());
    return;
  }
  auto hello = std::make_shared<HandshakeIo>(std::move(socket), Handshake::acceptor(identity_.hello()));
  const auto place = unknown_.insert(unknown_.end(), hello);
  hello->start(monotonic_now() + hello_timeout_,
               [this, place, from, rail](const Handshake& handshake, const Status& status, Socket connected) {
                 if (status.code() == Code::kClosed) return;  // close() has taken the list
                 const auto keep = *place;
                 unknown_.erase(place);
                 if (status.ok()) return events_.on_connection(std::move(connected), handshake.agreement(), rail);
                 if (status.code() == Code::kProtocol || status.code() == Code::kUnauthenticated) {
                   log::warn("control_refused", "refused a connection from {} code={} reason=\"{}\"", from.to_string(),
                             code_name(status.code()), status.message());
                 } else {
                   log::debug("control_refused", "a connection from {} came to nothing code={} reason=\"{}\"",
                              from.to_string(), code_name(status.code()), status.message());
                 }
               });
}

}  // namespace tidewire::control
