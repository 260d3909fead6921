// SPDX-License-Identifier: Apache-2.0
#include "base/http_exposition.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"

namespace tidewire {
namespace {

constexpr size_t kMaxRequest = 8192;
constexpr Nanos kConnectionTime = 2 * kSecond;

struct Split {
  std::string host, port;
};

std::optional<Split> split(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) return std::nullopt;
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return Split{host, address.substr(colon + 1)};
}

Result<UniqueFd> listen_on(const std::string& address) {
  const std::optional<Split> parts = split(address);
  if (!parts) return Status::error(Code::kInvalidArgument, "bad address '{}': it is host:port or [v6]:port", address);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(parts->host.c_str(), parts->port.c_str(), &hints, &found)) {
    return Status::error(Code::kInvalidArgument, "bad address '{}': {}", address, ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  Status last;
  for (const addrinfo* each = found; each; each = each->ai_next) {
    UniqueFd fd(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    // SO_REUSEADDR lets a restarted process have its port back at once; SO_REUSEPORT would let two share it unnoticed.
    const int one = 1;
    if (!fd.valid() || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        ::bind(fd.get(), each->ai_addr, each->ai_addrlen) != 0 || ::listen(fd.get(), 16) != 0) {
      last = errno_status(errno, "listen on " + address);
      continue;
    }
    return fd;
  }
  return last;
}

std::string bound_address(int fd, const std::string& address) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return address;
  const uint16_t port = storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port
                                                      : reinterpret_cast<sockaddr_in*>(&storage)->sin_port;
  return address.substr(0, address.rfind(':') + 1) + std::to_string(ntohs(port));
}

std::optional<std::string> read_request(int fd, int stop_fd, Nanos deadline) {
  std::string request;
  char buffer[2048];
  while (request.find("\r\n\r\n") == std::string::npos) {
    if (request.size() > kMaxRequest || !wait_ready(fd, POLLIN, stop_fd, deadline)) return std::nullopt;
    const ssize_t got = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return std::nullopt;
    request.append(buffer, static_cast<size_t>(got));
  }
  return request;
}

void send_all(int fd, const std::string& text, int stop_fd, Nanos deadline) {
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t now = ::send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (now > 0) {
      sent += static_cast<size_t>(now);
    } else if (now < 0 && errno != EAGAIN && errno != EINTR) {
      return;
    } else if (!wait_ready(fd, POLLOUT, stop_fd, deadline)) {
      return;
    }
  }
}

std::string response(const char* status, const std::string& body, bool head) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n{}",
      status, body.size(), head ? "" : body);
}

}  // namespace

Status HttpExposition::start(const std::string& address, std::map<std::string, Page> pages) {
  TW_ASSIGN_OR_RETURN(listener_, listen_on(address));
  address_ = bound_address(listener_.get(), address);
  pages_ = std::move(pages);
  return thread_.start("tw-metrics", [this](int stop_fd) { serve(stop_fd); });
}

void HttpExposition::serve(int stop_fd) {
  while (wait_ready(listener_.get(), POLLIN, stop_fd, kNever)) {
    const UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.valid()) {
      answer(connection.get(), stop_fd);
    } else if (errno == EMFILE || errno == ENFILE) {
      // The connection stays queued and the listener readable: without a pause this would spin until a descriptor is
      // free.
      static_cast<void>(wait_ready(-1, 0, stop_fd, monotonic_now() + 100 * kMillisecond));
    }
  }
}

void HttpExposition::answer(int connection, int stop_fd) {
  const Nanos deadline = monotonic_now() + kConnectionTime;
  const std::optional<std::string> request = read_request(connection, stop_fd, deadline);
  if (!request) return;
  const bool head = request->starts_with("HEAD ");
  if (!head && !request->starts_with("GET ")) {
    send_all(connection, response("405 Method Not Allowed", "only GET\n", false), stop_fd, deadline);
    return;
  }
  const size_t start = head ? 5 : 4;
  const std::string path = request->substr(start, request->find_first_of(" ?\r\n", start) - start);
  const auto page = pages_.find(path);
  send_all(connection,
           page == pages_.end() ? response("404 Not Found", "no such page\n", head)
                                : response("200 OK", page->second(), head),
           stop_fd, deadline);
}

void serve_metrics(const std::string& address, const Metrics& metrics, HttpExposition* server) {
  if (address.empty()) return;
  const Status status = server->start(address, {{"/metrics", [&metrics] { return metrics.expose(); }},
                                                {"/health", [] { return std::string("ok\n"); }}});
  if (!status.ok()) {
    log::warn("metrics_off", "no metrics are served: {}; choose another port in TIDEWIRE_METRICS, or port 0",
              status.message());
  } else if (server->address() != address) {
    log::warn("metrics_on", "metrics are served address={} path=/metrics", server->address());
  } else {
    log::info("metrics_on", "metrics are served address={} path=/metrics", server->address());
  }
}

}  // namespace tidewire
