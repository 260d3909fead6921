// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/rail_pairs.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>

namespace tidewire::transport::tcp {
namespace {

int common_prefix(const RailAddress& a, const RailAddress& b) {
  const int most = a.v6 ? 64 : 24;
  for (int bit = 0; bit < most; ++bit) {
    const uint8_t mask = static_cast<uint8_t>(0x80 >> (bit % 8));
    if ((a.bytes[bit / 8] ^ b.bytes[bit / 8]) & mask) return bit;
  }
  return most;
}

}  // namespace

std::optional<RailAddress> parse_rail_address(const std::string& text) {
  RailAddress address;
  if (!text.empty() && text[0] == '[') {
    const size_t close = text.find(']');
    if (close == std::string::npos) return std::nullopt;
    address.host = text.substr(1, close - 1);
  } else if (std::count(text.begin(), text.end(), ':') == 1) {
    address.host = text.substr(0, text.find(':'));
  } else {
    address.host = text;
  }
  const std::string bare = address.host.substr(0, address.host.find('%'));
  if (inet_pton(AF_INET, bare.c_str(), address.bytes.data()) == 1) return address;
  address.v6 = true;
  if (inet_pton(AF_INET6, bare.c_str(), address.bytes.data()) == 1) return address;
  return std::nullopt;
}

std::vector<std::pair<uint32_t, uint32_t>> pair_rails(const std::vector<RailRecord>& local,
                                                      const std::vector<RailRecord>& remote) {
  struct Candidate {
    int prefix;
    uint32_t distance;  // of the positions among the tcp rails of each side
    uint32_t local;
    uint32_t remote;
  };
  std::vector<Candidate> candidates;
  uint32_t local_position = 0;
  for (uint32_t i = 0; i < local.size(); ++i) {
    if (local[i].transport != "tcp") continue;
    const auto from = parse_rail_address(local[i].address);
    uint32_t remote_position = 0;
    for (uint32_t j = 0; j < remote.size(); ++j) {
      if (remote[j].transport != "tcp") continue;
      const auto to = parse_rail_address(remote[j].address);
      if (from && to && from->v6 == to->v6) {
        const auto distance =
            static_cast<uint32_t>(std::abs(static_cast<int>(local_position) - static_cast<int>(remote_position)));
        candidates.push_back({common_prefix(*from, *to), distance, i, j});
      }
      ++remote_position;
    }
    ++local_position;
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tuple(-a.prefix, a.distance, a.local, a.remote) < std::tuple(-b.prefix, b.distance, b.local, b.remote);
  });

  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  std::vector<bool> local_used(local.size());
  std::vector<bool> remote_used(remote.size());
  // First each remote rail once, then the local rails that are left take what suits them best.
  for (const bool again : {false, true}) {
    for (const Candidate& candidate : candidates) {
      if (local_used[candidate.local] || (!again && remote_used[candidate.remote])) continue;
      local_used[candidate.local] = remote_used[candidate.remote] = true;
      pairs.emplace_back(candidate.local, candidate.remote);
    }
  }
  return pairs;
}

}  // namespace tidewire::transport::tcp
