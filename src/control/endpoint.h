// SPDX-License-Identifier: Apache-2.0
//
// Endpoint: an IP address with a port, and the few socket calls of the control plane that Asio has no word for. Every
// socket is close-on-exec and non-blocking. Errors name the address and, where there is one, the remedy.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <string>

#include "base/status.h"
#include "base/unique_fd.h"

namespace tidewire::control {

struct Endpoint {
  sockaddr_storage storage{};
  socklen_t size = 0;

  int family() const { return storage.ss_family; }
  uint16_t port() const;
  void set_port(uint16_t port);
  std::string ip() const;         // "10.0.0.1", "fe80::1%eth0"
  std::string to_string() const;  // "10.0.0.1:4000", "[fe80::1%eth0]:4000"
  bool loopback() const;
  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&storage); }
  friend bool operator==(const Endpoint& a, const Endpoint& b) { return a.to_string() == b.to_string(); }
};

// The endpoint of an address literal (scope ids allowed). kInvalidArgument for names, and for scopes that this machine
// has not.
Result<Endpoint> literal_endpoint(const std::string& host, uint16_t port);
// 0.0.0.0 or :: with the port.
Endpoint wildcard_endpoint(int family, uint16_t port);
Endpoint local_endpoint(int fd);
Endpoint remote_endpoint(int fd);

// A listening socket. `shared_reuse`: SO_REUSEADDR, so that connections of a former owner in TIME_WAIT don't matter;
// set only after the bind where the kernel chooses the port, because two sockets that both allow it can be given the
// same one. kAddressInUse names the port; kUnreachable: the address is not of this machine.
Result<UniqueFd> open_listener(const Endpoint& at, bool shared_reuse);

// A socket for a connection to `remote`, bound to the address of `local` when given (the port is chosen when
// connecting).
Result<UniqueFd> open_client(const Endpoint& remote, const std::optional<Endpoint>& local);

// TCP_NODELAY, and on request keep-alive that finds a dead host within a minute (10 s when bytes are under way to it).
void tune_connection(int fd, bool keep_alive);

// errno_status with a remedy for used-up descriptors and ports.
Status socket_status(int error, const std::string& what);

}  // namespace tidewire::control
