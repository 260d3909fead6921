// SPDX-License-Identifier: Apache-2.0
//
// Names to addresses through the system's resolver, blocking.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "control/endpoint.h"

namespace tidewire::control {

// In the order that the system prefers (RFC 6724), without duplicates and without a port. "localhost" is both loopback
// addresses, whatever the hosts file says. kUnreachable says what the resolver says. May take as long as the resolver's
// configuration lets it.
Result<std::vector<Endpoint>> look_up(const std::string& host);

// The same, but kTimeout after `timeout`: getaddrinfo() can't be interrupted, so it runs on a thread that is left
// behind when it takes too long. Literals are answered at once.
Result<std::vector<Endpoint>> look_up_within(const std::string& host, Nanos timeout);

}  // namespace tidewire::control
