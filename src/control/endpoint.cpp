// SPDX-License-Identifier: Apache-2.0
#include "control/endpoint.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <cstring>

namespace tidewire::control {
namespace {

constexpr int kBacklog = 1024;  // peers that start together; the kernel caps it at net.core.somaxconn
// A host that vanished is noticed within kIdle + kProbes × kInterval seconds.
constexpr int kKeepAliveIdle = 30;
constexpr int kKeepAliveInterval = 10;
constexpr int kKeepAliveProbes = 3;
// One that vanished with bytes of ours unacknowledged, sooner.
constexpr int kUnacknowledgedMilliseconds = 10'000;

void set_int(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));
}

}  // namespace

uint16_t Endpoint::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  return 0;
}

void Endpoint::set_port(uint16_t port) {
  if (family() == AF_INET) reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port);
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = htons(port);
}

std::string Endpoint::ip() const {
  char host[NI_MAXHOST];
  if (size == 0 || getnameinfo(address(), size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  return host;
}

std::string Endpoint::to_string() const {
  return family() == AF_INET6 ? fmt::format("[{}]:{}", ip(), port()) : fmt::format("{}:{}", ip(), port());
}

bool Endpoint::loopback() const {
  if (family() == AF_INET) return ntohl(reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr) >> 24 == 127;
  if (family() == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr);
  return false;
}

Result<Endpoint> literal_endpoint(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (error != 0)
    return Status::error(Code::kInvalidArgument, "bad address '{}': {} (is its interface on this machine?)",
                         host.substr(0, 300), gai_strerror(error));
  Endpoint endpoint;
  std::memcpy(&endpoint.storage, list->ai_addr, list->ai_addrlen);
  endpoint.size = list->ai_addrlen;
  freeaddrinfo(list);
  endpoint.set_port(port);
  return endpoint;
}

Endpoint wildcard_endpoint(int family, uint16_t port) {
  Endpoint endpoint;
  endpoint.storage.ss_family = static_cast<sa_family_t>(family);
  endpoint.size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  endpoint.set_port(port);
  return endpoint;
}

Endpoint local_endpoint(int fd) {
  Endpoint endpoint;
  endpoint.size = sizeof(endpoint.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&endpoint.storage), &endpoint.size) != 0) return Endpoint{};
  return endpoint;
}

Endpoint remote_endpoint(int fd) {
  Endpoint endpoint;
  endpoint.size = sizeof(endpoint.storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&endpoint.storage), &endpoint.size) != 0) return Endpoint{};
  return endpoint;
}

Status socket_status(int error, const std::string& what) {
  Status status = errno_status(error, what);
  const char* remedy = nullptr;
  if (error == EMFILE) remedy = "raise the limit of open files (ulimit -n)";
  if (error == ENFILE) remedy = "raise fs.file-max";
  if (error == EADDRNOTAVAIL)
    remedy = "the address is not of this machine, or its ports are used up (net.ipv4.ip_local_port_range)";
  return remedy == nullptr ? status : Status(status.code(), status.message() + "; " + remedy, error);
}

Result<UniqueFd> open_listener(const Endpoint& at, bool shared_reuse) {
  const std::string what = "listen on " + at.to_string();
  UniqueFd fd(socket(at.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return socket_status(errno, what);
  if (shared_reuse) set_int(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  // Each family has its own listener; a v6 one must not take the v4 port along.
  if (at.family() == AF_INET6) set_int(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  const bool bound = bind(fd.get(), at.address(), at.size) == 0;
  // Set after the port was chosen, it still comes down to the accepted connections: their remains then don't keep a
  // successor off this port.
  if (bound && !shared_reuse) set_int(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (!bound || listen(fd.get(), kBacklog) != 0) {
    const int error = errno;
    if (error == EADDRINUSE)
      return Status::error(Code::kAddressInUse,
                           "port {} is taken on {}: choose another port, or 0 for an automatic one", at.port(),
                           at.ip());
    if (error == EADDRNOTAVAIL)
      return Status::error(Code::kUnreachable, "{}: the address is not of this machine", what);
    return socket_status(error, what);
  }
  return fd;
}

Result<UniqueFd> open_client(const Endpoint& remote, const std::optional<Endpoint>& local) {
  UniqueFd fd(socket(remote.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return socket_status(errno, "open a socket to " + remote.to_string());
  if (local) {
    if (local->family() != remote.family())
      return Status::error(Code::kInvalidArgument, "a connection from {} to {}: one is IPv4, the other IPv6",
                           local->ip(), remote.to_string());
#ifdef IP_BIND_ADDRESS_NO_PORT
    // The port is chosen at connect, when the remote is known: the same local port then serves connections to several
    // remotes.
    set_int(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
#endif
    if (bind(fd.get(), local->address(), local->size) != 0)
      return socket_status(errno, fmt::format("bind to {} for a connection to {}", local->ip(), remote.to_string()));
  }
  return fd;
}

void tune_connection(int fd, bool keep_alive) {
  set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (!keep_alive) return;
  set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdle);
  set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveInterval);
  set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledgedMilliseconds);
}

}  // namespace tidewire::control
