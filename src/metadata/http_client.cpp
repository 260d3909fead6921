// SPDX-License-Identifier: Apache-2.0
#include "metadata/http_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "control/address.h"
#include "control/lookup.h"
#include "metadata/http_response.h"

namespace tidewire::metadata {
namespace {

constexpr size_t kMaxBody = 64u << 10;

Status late() {
  return Status(Code::kTimeout, "no answer in time");
}

// Waits for events on the socket; kTimeout at the deadline.
Status wait_for(int fd, short events, Nanos deadline) {
  for (;;) {
    const Nanos left = deadline - monotonic_now();
    if (left <= 0) return late();
    pollfd entry{fd, events, 0};
    const int milliseconds = static_cast<int>(std::min<Nanos>(left / kMillisecond + 1, 60'000));
    const int count = poll(&entry, 1, milliseconds);
    if (count > 0) return Status();
    if (count < 0 && errno != EINTR) return errno_status(errno, "poll");
  }
}

Result<UniqueFd> connect_to(const control::Endpoint& remote, Nanos deadline) {
  TW_ASSIGN_OR_RETURN(UniqueFd fd, control::open_client(remote, std::nullopt));
  const std::string what = "connect to " + remote.to_string();
  if (connect(fd.get(), remote.address(), remote.size) == 0) return fd;
  if (errno != EINPROGRESS) return control::socket_status(errno, what);
  TW_RETURN_IF_ERROR(wait_for(fd.get(), POLLOUT, deadline).with_context(what));
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return control::socket_status(error, what);
  return fd;
}

Status send_all(int fd, std::string_view bytes, Nanos deadline) {
  while (!bytes.empty()) {
    const ssize_t count = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      TW_RETURN_IF_ERROR(wait_for(fd, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return errno_status(errno, "send");
    }
  }
  return Status();
}

Result<HttpReply> receive(int fd, Nanos deadline) {
  HttpResponse response(kMaxBody);
  char buffer[4096];
  while (!response.complete()) {
    TW_RETURN_IF_ERROR(wait_for(fd, POLLIN, deadline));
    const ssize_t count = recv(fd, buffer, sizeof(buffer), 0);
    if (count > 0) {
      TW_RETURN_IF_ERROR(response.feed({buffer, static_cast<size_t>(count)}));
    } else if (count == 0) {
      TW_RETURN_IF_ERROR(response.end());
    } else if (errno != EAGAIN && errno != EINTR) {
      return errno_status(errno, "receive");
    }
  }
  return HttpReply{response.code(), response.body()};
}

Result<HttpReply> call_one(const control::Endpoint& remote, const std::string& request, Nanos deadline) {
  TW_ASSIGN_OR_RETURN(const UniqueFd fd, connect_to(remote, deadline));
  TW_RETURN_IF_ERROR(send_all(fd.get(), request, deadline));
  return receive(fd.get(), deadline);
}

}  // namespace

Result<HttpReply> http_call(const HttpServer& server, const std::string& method, const std::string& target,
                            const std::string& body, Nanos deadline) {
  TW_ASSIGN_OR_RETURN(const auto addresses,
                      control::look_up_within(server.host, std::max<Nanos>(deadline - monotonic_now(), 0)));
  // A scope id means something on this machine only.
  const std::string host =
      control::HostPort{server.host.substr(0, server.host.find('%')), server.port, true}.to_string();
  std::string request =
      fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAccept: */*\r\n", method, target, host);
  if (!body.empty() || method == "PUT")
    request += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  request += "\r\n" + body;

  Status failed = late();
  for (control::Endpoint remote : addresses) {
    remote.set_port(server.port);
    Result<HttpReply> reply = call_one(remote, request, deadline);
    if (reply.ok()) return reply;
    failed = reply.status();
    // Another address is another chance only when this one was not reached at all.
    if (failed.code() != Code::kUnreachable) return failed;
  }
  return failed;
}

}  // namespace tidewire::metadata
