// SPDX-License-Identifier: Apache-2.0
#include "cli/http_get.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "base/unique_fd.h"
#include "control/address.h"
#include "metadata/http_response.h"

namespace tidewire::cli {
namespace {

constexpr size_t kMaxBody = 64u << 20;

Result<UniqueFd> connect_to(const control::HostPort& server, Nanos timeout) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(server.host.c_str(), std::to_string(server.port).c_str(), &hints, &found))
    return Status::error(Code::kUnreachable, "look up {}: {}", server.host, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  const timeval limit{static_cast<time_t>(timeout / kSecond), static_cast<suseconds_t>(timeout % kSecond / 1000)};
  Status failed(Code::kUnreachable, "no address");
  for (const addrinfo* each = found; each; each = each->ai_next) {
    UniqueFd fd(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd.valid()) continue;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (::connect(fd.get(), each->ai_addr, each->ai_addrlen) == 0) return fd;
    failed = errno_status(errno == EINPROGRESS ? ETIMEDOUT : errno, "connect to " + server.to_string());
  }
  return failed;
}

}  // namespace

Result<std::string> http_get(const std::string& server, const std::string& target, const std::string& secret,
                             Nanos timeout) {
  TW_ASSIGN_OR_RETURN(const control::HostPort address, control::parse_address(server));
  if (!address.has_port) return Status::error(Code::kInvalidArgument, "bad address '{}': it has no port", server);
  TW_ASSIGN_OR_RETURN(const UniqueFd fd, connect_to(address, timeout));
  const std::string request =
      fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{}\r\n", target, address.to_string(),
                  secret.empty() ? "" : "Authorization: Bearer " + secret + "\r\n");
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size()))
    return errno_status(errno, "ask " + address.to_string());
  metadata::HttpResponse response(kMaxBody);
  char buffer[65536];
  const Nanos deadline = monotonic_now() + timeout;
  while (!response.complete()) {
    const ssize_t got = ::recv(fd.get(), buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 || monotonic_now() > deadline)
      return errno_status(got < 0 && errno != EAGAIN ? errno : ETIMEDOUT, "the answer of " + address.to_string());
    TW_RETURN_IF_ERROR(got > 0 ? response.feed({buffer, static_cast<size_t>(got)}) : response.end());
  }
  if (response.code() != 200)
    return Status::error(Code::kProtocol, "{} answers {}: {}", address.to_string(), response.code(), response.body());
  return response.body();
}

}  // namespace tidewire::cli
