// SPDX-License-Identifier: Apache-2.0
#include "control/listeners.h"

#include <algorithm>

#include "base/log.h"
#include "control/address.h"
#include "control/lookup.h"

namespace tidewire::control {
namespace {

constexpr Nanos kLookUpTimeout = 5 * kSecond;
constexpr int kAutomaticTries = 64;  // automatic ports that another address of ours can't have

// The listeners of the advertised name on one port.
Result<Listening> listen_advertised(const std::vector<Endpoint>& addresses, uint16_t port, bool shared_reuse) {
  Listening listening;
  Status failed;
  for (Endpoint address : addresses) {
    // The first one may choose the port, the others follow.
    address.set_port(listening.port != 0 ? listening.port : port);
    Result<UniqueFd> fd = open_listener(address, shared_reuse);
    if (!fd.ok()) {
      failed = fd.status();
      // Not of this machine, or a family that it lacks: the other addresses may do.
      if (failed.code() == Code::kUnreachable || failed.code() == Code::kInternal) continue;
      return failed;
    }
    const Endpoint bound = local_endpoint(fd->get());
    if (listening.sockets.empty()) {
      listening.port = bound.port();
      listening.rails.push_back(bound);
    }
    listening.sockets.push_back({std::move(*fd), address.family(), 0});
  }
  if (!listening.sockets.empty()) return listening;
  // No translation leads from elsewhere to a loopback address.
  if (failed.code() != Code::kUnreachable || addresses.front().loopback()) return failed;
  TW_ASSIGN_OR_RETURN(UniqueFd fd, open_listener(wildcard_endpoint(addresses.front().family(), port), shared_reuse));
  listening.port = local_endpoint(fd.get()).port();
  listening.rails.push_back(addresses.front());
  listening.rails.back().set_port(listening.port);
  listening.sockets.push_back({std::move(fd), addresses.front().family(), 0});
  log::warn("control_wildcard", "{} is not an address of this machine: listening on all {} addresses, port {}",
            addresses.front().ip(), addresses.front().family() == AF_INET6 ? "IPv6" : "IPv4", listening.port);
  return listening;
}

Result<Listening> listen_in_range(const std::vector<Endpoint>& addresses, uint32_t low, uint32_t high) {
  // Engines that start together begin at different places.
  const uint32_t count = high - low + 1;
  const auto offset = static_cast<uint32_t>(monotonic_now() / kMicrosecond) % count;
  for (uint32_t i = 0; i < count; ++i) {
    auto listening = listen_advertised(addresses, static_cast<uint16_t>(low + (offset + i) % count), true);
    if (listening.ok() || listening.status().code() != Code::kAddressInUse) return listening;
  }
  return Status::error(Code::kAddressInUse, "all ports from {} to {} (settings port.min, port.max) are taken on {}",
                       low, high, addresses.front().ip());
}

Result<Listening> listen_automatic(const std::vector<Endpoint>& addresses, const Settings& settings) {
  if (settings.port_min != 0 || settings.port_max != 0) {
    const int64_t low = settings.port_min != 0 ? settings.port_min : 1;
    const int64_t high = settings.port_max != 0 ? settings.port_max : 65'535;
    if (low > high) return Status::error(Code::kInvalidArgument, "setting port.min {} is above port.max {}", low, high);
    return listen_in_range(addresses, static_cast<uint32_t>(low), static_cast<uint32_t>(high));
  }
  for (int i = 0;; ++i) {
    auto listening = listen_advertised(addresses, 0, false);
    if (listening.ok() || listening.status().code() != Code::kAddressInUse || i == kAutomaticTries) return listening;
  }
}

}  // namespace

Result<Listening> listen_all(const std::string& host, uint16_t port, const std::vector<std::string>& rail_addresses,
                             const Settings& settings) {
  TW_ASSIGN_OR_RETURN(const std::vector<Endpoint> addresses, look_up_within(host, kLookUpTimeout));
  // A name that means "everywhere" names no one place either.
  for (const Endpoint& address : addresses)
    if (is_wildcard(address.ip()))
      return Status::error(Code::kInvalidArgument, "bad address '{}': it means {}, which peers can't reach", host,
                           address.ip());
  Result<Listening> first =
      port != 0 ? listen_advertised(addresses, port, true) : listen_automatic(addresses, settings);
  if (!first.ok()) return first.status();
  Listening listening = std::move(*first);

  for (const std::string& text : rail_addresses) {
    const auto rail = static_cast<uint32_t>(listening.rails.size());
    TW_ASSIGN_OR_RETURN(Endpoint address, literal_endpoint(text, listening.port));
    // The advertised address again: its listener serves this rail as well.
    const auto same = std::find(listening.rails.begin(), listening.rails.end(), address);
    if (same != listening.rails.end()) {
      listening.rails.push_back(*same);
      continue;
    }
    Result<UniqueFd> fd = open_listener(address, true);
    if (!fd.ok() && fd.status().code() == Code::kAddressInUse) {
      address.set_port(0);
      fd = open_listener(address, false);
    }
    if (!fd.ok()) return fd.status().with_context("rail " + text);
    listening.rails.push_back(local_endpoint(fd->get()));
    listening.sockets.push_back({std::move(*fd), address.family(), rail});
  }
  return listening;
}

}  // namespace tidewire::control
