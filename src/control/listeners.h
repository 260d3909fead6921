// SPDX-License-Identifier: Apache-2.0
//
// Where a node listens: from the advertised name and the rails' addresses to open sockets. Blocking, used once at
// start.
//
// The advertised name is resolved; every address of it that is this machine's gets a listener on the same port (peers
// that resolve it may take any of them). When none is local (a name in front of address translation), the node listens
// on the wildcard address of the first one's family, and says so.
#pragma once

#include <string>
#include <vector>

#include "base/settings.h"
#include "control/endpoint.h"

namespace tidewire::control {

struct Listening {
  struct Entry {
    UniqueFd fd;
    int family = 0;
    uint32_t rail = 0;  // 0: the advertised address
  };
  std::vector<Entry> sockets;
  uint16_t port = 0;
  std::vector<Endpoint> rails;  // as peers dial them: index 0 advertised, then the further rails
};

// port 0: automatic, within settings.port_min … port_max when set.
Result<Listening> listen_all(const std::string& host, uint16_t port, const std::vector<std::string>& rail_addresses,
                             const Settings& settings);

}  // namespace tidewire::control
