// SPDX-License-Identifier: Apache-2.0
#include "base/status_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"

namespace tidewire {
namespace {

constexpr Nanos kAnswerTime = 1 * kSecond;

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
};

Address address_of(pid_t pid, int index) {
  Address address;
  address.name.sun_family = AF_UNIX;
  const std::string text = fmt::format("tidewire-status-{}-{}", pid, index);
  std::memcpy(address.name.sun_path + 1, text.data(), text.size());  // the leading NUL makes it abstract
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return address;
}

// Whether the process at the other end runs as this user, or one of the two as root.
bool same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

Result<std::string> read_one(int fd) {
  std::string text;
  std::string buffer(1 << 16, '\0');
  const Nanos deadline = monotonic_now() + kAnswerTime;
  for (;;) {
    if (!wait_ready(fd, POLLIN, -1, deadline))
      return Status(Code::kTimeout, "the engine does not answer; it may be stopped");
    const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got == 0) return text;
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return errno_status(errno, "read from the engine");
    text.append(buffer.data(), static_cast<size_t>(got));
    if (text.size() > StatusSocket::kMaxText) return Status(Code::kProtocol, "the answer is longer than 16 MiB");
  }
}

}  // namespace

Status StatusSocket::start() {
  for (int index = 0; index < kMaxEngines; ++index) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) return errno_status(errno, "status socket");
    const Address address = address_of(::getpid(), index);
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.name), address.length) != 0) {
      if (errno == EADDRINUSE) continue;
      return errno_status(errno, "bind the status socket");
    }
    if (::listen(fd.get(), 4) != 0) return errno_status(errno, "listen on the status socket");
    listener_ = std::move(fd);
    index_ = index;
    return thread_.start("tw-status", [this](int stop_fd) { serve(stop_fd); });
  }
  return Status::error(Code::kNoResources, "all {} names of status sockets of process {} are taken", kMaxEngines,
                       ::getpid());
}

void StatusSocket::serve(int stop_fd) {
  while (wait_ready(listener_.get(), POLLIN, stop_fd, kNever)) {
    const UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.valid()) {
      answer(connection.get(), stop_fd);
    } else if (errno == EMFILE || errno == ENFILE) {
      static_cast<void>(wait_ready(-1, 0, stop_fd, monotonic_now() + 100 * kMillisecond));
    }
  }
}

void StatusSocket::answer(int connection, int stop_fd) {
  if (!same_user(connection)) {
    log::warn("status_refused", "a process of another user asked for the status and was refused");
    return;
  }
  const std::string text = json_();
  const Nanos deadline = monotonic_now() + kAnswerTime;
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t now = ::send(connection, text.data() + sent, text.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (now > 0) {
      sent += static_cast<size_t>(now);
    } else if ((now < 0 && errno != EAGAIN && errno != EINTR) || !wait_ready(connection, POLLOUT, stop_fd, deadline)) {
      return;
    }
  }
}

Result<std::vector<std::string>> read_status(pid_t pid) {
  std::vector<std::string> texts;
  for (int index = 0; index < StatusSocket::kMaxEngines; ++index) {
    const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) return errno_status(errno, "status socket");
    const Address address = address_of(pid, index);
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.name), address.length) != 0) {
      if (errno == ECONNREFUSED || errno == ENOENT) continue;  // engines come and go: a gap does not end the list
      if (errno == EAGAIN)
        return Status::error(Code::kTimeout, "process {} does not take questions; it may be stopped", pid);
      return errno_status(errno, fmt::format("ask process {}", pid));
    }
    ucred peer{};
    socklen_t length = sizeof peer;
    const bool known = ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
    if (!known || (peer.uid != ::geteuid() && ::geteuid() != 0 && peer.uid != 0)) {
      return Status::error(Code::kPermissionDenied, "process {} belongs to another user; ask as that user or as root",
                           pid);
    }
    TW_ASSIGN_OR_RETURN(std::string text, read_one(fd.get()));
    // Nothing at all means that the engine refused this user.
    if (text.empty()) {
      return Status::error(Code::kPermissionDenied,
                           "process {} gives no answer to this user; ask as its own user or as root", pid);
    }
    texts.push_back(std::move(text));
  }
  if (texts.empty()) {
    return Status::error(
        Code::kNotFound,
        "process {} has no Tidewire engine here; give the process that created it, and ask in its network namespace "
        "(the same container)",
        pid);
  }
  return texts;
}

}  // namespace tidewire
