// SPDX-License-Identifier: Apache-2.0
//
// Which interfaces become rails of the TCP transport. The rule: the interface that carries the advertised address, and
// no other; more only when they are named. So a container bridge, which often has an address that no other host can
// reach, never becomes a rail by itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "topology/machine.h"

namespace tidewire::topology {

struct RailAddress {
  std::string nic;      // "eth0"
  std::string address;  // numeric, without port and brackets: "10.0.0.1", "fe80::1%eth0"
  bool v6 = false;
  uint64_t bits_per_second = 0;  // 0 = unknown
  int numa_node = -1;
};

// Names of a comma list, without blanks and empty ones: "ib0, ib1" gives two.
std::vector<std::string> parse_device_list(std::string_view list);

// The interface that carries a numeric address ("10.0.0.1", "::1", "fe80::1%eth0", "fe80::1%2"; every 127.x.y.z is on
// the loopback interface); nullptr when none does, or when a link-local address without scope could be on several.
const Nic* nic_with_address(const Machine& machine, const std::string& address);

// `advertised`: the numeric address that peers are told, without port. `device_names`: interface names, or
// InfiniBand-class devices that have an interface. Named devices are taken in their order, each once, with an address
// of the advertised address's family where they have one, otherwise of the other family. kInvalidArgument names the
// address or device that can't be used, why, and what there is instead.
Result<std::vector<RailAddress>> choose_rails(const Machine& machine, const std::string& advertised,
                                              const std::vector<std::string>& device_names);

}  // namespace tidewire::topology
