// SPDX-License-Identifier: Apache-2.0
//
// Which local rail talks to which rail of a peer. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/peer_record.h"

namespace tidewire::transport::tcp {

struct RailAddress {
  bool v6 = false;
  std::array<uint8_t, 16> bytes{};  // network order; v4 uses the first four
  std::string host;                 // the literal, without brackets and port
};
// "10.0.0.1:4000", "[fe80::1%eth0]:4000", also without a port. nullopt when it is no address literal.
std::optional<RailAddress> parse_rail_address(const std::string& text);

// One pair (index in `local`, index in `remote`) for each local tcp rail that has a remote one of its family: the one
// with the longest common prefix up to a usual subnet (24 bits, v6: 64), each remote rail once as far as they go, by
// index where addresses don't decide. Best first: shared subnets, then by index.
std::vector<std::pair<uint32_t, uint32_t>> pair_rails(const std::vector<RailRecord>& local,
                                                      const std::vector<RailRecord>& remote);

}  // namespace tidewire::transport::tcp
