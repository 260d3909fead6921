// SPDX-License-Identifier: Apache-2.0
#include "topology/rails.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace tidewire::topology {
namespace {

// An address without its spelling: IPv4 and IPv4-mapped are the same, and a scope stands apart.
struct Parsed {
  bool v6 = false;
  in6_addr bytes{};
  std::string scope;
};

std::optional<Parsed> parse(const std::string& text) {
  Parsed parsed;
  const size_t percent = text.find('%');
  const std::string address = text.substr(0, percent);
  if (percent != std::string::npos) parsed.scope = text.substr(percent + 1);
  in_addr v4{};
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1 && percent == std::string::npos) {
    std::memcpy(parsed.bytes.s6_addr, &v4, sizeof v4);
    return parsed;
  }
  if (::inet_pton(AF_INET6, address.c_str(), &parsed.bytes) != 1) return std::nullopt;
  if (IN6_IS_ADDR_V4MAPPED(&parsed.bytes)) {
    in6_addr v4_bytes{};
    std::memcpy(v4_bytes.s6_addr, parsed.bytes.s6_addr + 12, 4);
    parsed.bytes = v4_bytes;
    return parsed;
  }
  parsed.v6 = true;
  return parsed;
}

bool is_loopback_v4(const Parsed& address) {
  return !address.v6 && address.bytes.s6_addr[0] == 127;
}

bool is_wildcard(const Parsed& address) {
  return std::all_of(std::begin(address.bytes.s6_addr), std::end(address.bytes.s6_addr),
                     [](uint8_t byte) { return byte == 0; });
}

bool same_bytes(const Parsed& a, const Parsed& b) {
  return a.v6 == b.v6 && std::memcmp(&a.bytes, &b.bytes, sizeof a.bytes) == 0;
}

const Nic* carrier_of(const Machine& machine, const Parsed& wanted) {
  const Nic* found = nullptr;
  for (const Nic& nic : machine.nics) {
    if (is_loopback_v4(wanted)) {
      if (nic.kind == NicKind::kLoopback) return &nic;
      continue;
    }
    if (!wanted.scope.empty() && wanted.scope != nic.name && wanted.scope != std::to_string(nic.index)) continue;
    for (const NicAddress& address : nic.addresses) {
      const std::optional<Parsed> own = parse(address.text);
      if (!own || !same_bytes(*own, wanted)) continue;
      if (found && found != &nic && address.link_local) return nullptr;  // ambiguous without a scope
      if (!found) found = &nic;
    }
  }
  return found;
}

std::string nic_list(const Machine& machine) {
  std::string text;
  for (const Nic& nic : machine.nics) {
    if (!nic.up || nic.addresses.empty()) continue;
    text += (text.empty() ? "" : ", ") + nic.name + " (";
    for (size_t index = 0; index < nic.addresses.size(); ++index)
      text += (index ? " " : "") + nic.addresses[index].text;
    text += ")";
  }
  return text.empty() ? "none with an address" : text;
}

RailAddress rail_of(const Nic& nic, const std::string& address, bool v6) {
  return {nic.name, address, v6, nic.bits_per_second, nic.numa_node};
}

// The best address of a named interface: the wanted family before the other, routable before link-local.
const NicAddress* address_of(const Nic& nic, bool v6) {
  const NicAddress* best = nullptr;
  int best_score = -1;
  for (const NicAddress& address : nic.addresses) {
    const int score = (address.v6 == v6 ? 2 : 0) + (address.link_local ? 0 : 1);
    if (score > best_score) {
      best = &address;
      best_score = score;
    }
  }
  return best;
}

Result<const Nic*> named_nic(const Machine& machine, const std::string& name) {
  if (const Nic* nic = machine.nic(name)) return nic;
  if (const FabricDevice* device = machine.fabric(name)) {
    for (const std::string& each : device->nics) {
      if (const Nic* nic = machine.nic(each)) return nic;
    }
    return Status::error(Code::kInvalidArgument,
                         "device '{}' ({}) has no network interface, so TCP can't use it; name an interface of: {}",
                         name, kind_name(device->kind), nic_list(machine));
  }
  return Status::error(Code::kInvalidArgument, "no device '{}' on this machine; there are: {}", name,
                       nic_list(machine));
}

}  // namespace

std::vector<std::string> parse_device_list(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view name = list.substr(0, comma);
    while (!name.empty() && (name.front() == ' ' || name.front() == '\t')) name.remove_prefix(1);
    while (!name.empty() && (name.back() == ' ' || name.back() == '\t')) name.remove_suffix(1);
    if (!name.empty()) names.emplace_back(name);
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return names;
}

const Nic* nic_with_address(const Machine& machine, const std::string& address) {
  const std::optional<Parsed> wanted = parse(address);
  return wanted ? carrier_of(machine, *wanted) : nullptr;
}

Result<std::vector<RailAddress>> choose_rails(const Machine& machine, const std::string& advertised,
                                              const std::vector<std::string>& device_names) {
  const std::optional<Parsed> wanted = parse(advertised);
  if (!wanted)
    return Status::error(Code::kInvalidArgument, "bad address '{}': it is no IPv4 or IPv6 address", advertised);
  const Nic* const carrier = carrier_of(machine, *wanted);
  std::vector<RailAddress> rails;
  if (device_names.empty()) {
    if (is_wildcard(*wanted)) {
      return Status::error(Code::kInvalidArgument, "'{}' can't be advertised: choose one address of: {}", advertised,
                           nic_list(machine));
    }
    if (!carrier) {
      return Status::error(
          Code::kInvalidArgument,
          "no interface of this machine has the advertised address '{}'; there are: {}. Advertise one of these, "
          "or name the interfaces to use in `devices`",
          advertised, nic_list(machine));
    }
    rails.push_back(rail_of(*carrier, advertised, wanted->v6));
    return rails;
  }
  for (const std::string& name : device_names) {
    TW_ASSIGN_OR_RETURN(const Nic* const nic, named_nic(machine, name));
    if (std::any_of(rails.begin(), rails.end(), [&](const RailAddress& rail) { return rail.nic == nic->name; }))
      continue;
    if (!nic->up)
      return Status::error(Code::kInvalidArgument, "interface '{}' is down; bring it up (ip link set {} up)", name,
                           name);
    if (nic == carrier) {
      rails.push_back(rail_of(*nic, advertised, wanted->v6));
      continue;
    }
    const NicAddress* address = address_of(*nic, wanted->v6);
    if (!address)
      return Status::error(Code::kInvalidArgument, "interface '{}' has no IP address; there are: {}", name,
                           nic_list(machine));
    rails.push_back(rail_of(*nic, address->text, address->v6));
  }
  return rails;
}

}  // namespace tidewire::topology
