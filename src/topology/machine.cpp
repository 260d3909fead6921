// SPDX-License-Identifier: Apache-2.0
#include "topology/machine.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>

#include "topology/sysfs.h"

namespace tidewire::topology {
namespace {

constexpr char kNvidia[] = "0x10de";
constexpr char kAmazon[] = "0x1d0f";
// Inferentia, Trainium: Inf1, Trn1, Inf2, Trn2, Trn3.
constexpr const char* kNeuronDevices[] = {"0x7064", "0x7164", "0x7264", "0x7364", "0x7464"};

int numa_node_of(const std::string& pci_folder) {
  return pci_folder.empty() ? -1 : static_cast<int>(sysfs::read_integer(pci_folder + "/numa_node", -1));
}

std::string name_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

std::string device_type(const std::string& folder) {
  const std::string uevent = sysfs::read_text(folder + "/uevent");
  const size_t at = uevent.find("DEVTYPE=");
  if (at == std::string::npos) return "";
  return uevent.substr(at + 8, uevent.find('\n', at) - at - 8);
}

NicKind kind_of(const std::string& folder) {
  const int64_t type = sysfs::read_integer(folder + "/type", -1);
  if (type == ARPHRD_LOOPBACK) return NicKind::kLoopback;
  if (type == ARPHRD_INFINIBAND) return NicKind::kInfiniband;
  const std::string device = device_type(folder);
  if (sysfs::exists(folder + "/bridge") || device == "bridge") return NicKind::kBridge;
  if (sysfs::exists(folder + "/bonding") || device == "bond") return NicKind::kBond;
  if (device == "vlan") return NicKind::kVlan;
  if (sysfs::exists(folder + "/device")) return NicKind::kEthernet;
  // The peer of a veth pair lies elsewhere, and no other kind without a device type has that.
  const int64_t own = sysfs::read_integer(folder + "/ifindex", 0);
  const int64_t link = sysfs::read_integer(folder + "/iflink", own);
  return device.empty() && type == ARPHRD_ETHER && own != link ? NicKind::kVeth : NicKind::kVirtual;
}

Nic read_nic(const std::string& folder, const AddressMap& addresses) {
  Nic nic;
  nic.name = name_of(folder);
  nic.kind = kind_of(folder);
  nic.index = static_cast<int>(sysfs::read_integer(folder + "/ifindex", 0));
  const std::string flags = sysfs::read_text(folder + "/flags");
  nic.up = (std::strtoul(flags.c_str(), nullptr, 16) & IFF_UP) != 0;
  nic.mtu = static_cast<int>(sysfs::read_integer(folder + "/mtu", 0));
  // Megabits; virtual interfaces say -1 or fail.
  nic.bits_per_second =
      static_cast<uint64_t>(std::max<int64_t>(sysfs::read_integer(folder + "/speed", 0), 0)) * 1'000'000;
  nic.master = sysfs::link_name(folder + "/master");
  const std::string pci = sysfs::pci_folder(sysfs::resolve(folder + "/device"));
  nic.numa_node = numa_node_of(pci);
  nic.pci = pci.empty() ? "" : name_of(pci);
  if (const auto found = addresses.find(nic.name); found != addresses.end()) nic.addresses = found->second;
  return nic;
}

FabricPort read_port(const std::string& folder) {
  FabricPort port;
  port.number = std::atoi(name_of(folder).c_str());
  const std::string state = sysfs::read_text(folder + "/state");  // "4: ACTIVE"
  port.state = state.substr(state.find(' ') == std::string::npos ? 0 : state.find(' ') + 1);
  port.link_layer = sysfs::read_text(folder + "/link_layer");
  const std::string rate = sysfs::read_text(folder + "/rate");  // "100 Gb/sec (4X EDR)"
  double gigabits = 0;
  std::from_chars(rate.data(), rate.data() + rate.size(), gigabits);
  port.bits_per_second = gigabits > 0 ? static_cast<uint64_t>(gigabits * 1e9) : 0;
  return port;
}

FabricKind fabric_kind(const FabricDevice& device, const std::string& pci_folder) {
  if (device.driver == "efa" || (sysfs::read_text(pci_folder + "/vendor") == kAmazon &&
                                 sysfs::read_text(pci_folder + "/device").starts_with("0xefa"))) {
    return FabricKind::kEfa;
  }
  for (const FabricPort& port : device.ports) {
    if (port.link_layer == "InfiniBand") return FabricKind::kInfiniband;
    if (port.link_layer == "Ethernet") return FabricKind::kRoce;
  }
  return FabricKind::kUnknown;
}

FabricDevice read_fabric(const std::string& folder) {
  FabricDevice device;
  device.name = name_of(folder);
  const std::string resolved = sysfs::resolve(folder + "/device");
  const std::string pci = sysfs::pci_folder(resolved);
  device.pci = pci.empty() ? "" : name_of(pci);
  device.numa_node = numa_node_of(pci);
  device.driver = sysfs::link_name(folder + "/device/driver");
  for (const std::string& port : sysfs::list(folder + "/ports"))
    device.ports.push_back(read_port(folder + "/ports/" + port));
  device.nics = sysfs::list(folder + "/device/net");
  // Software RoCE names its interface here.
  if (const std::string parent = sysfs::read_text(folder + "/parent"); device.nics.empty() && !parent.empty()) {
    device.nics.push_back(parent);
  }
  device.kind = fabric_kind(device, pci);
  return device;
}

std::vector<NumaNode> read_numa(const std::string& folder) {
  std::vector<NumaNode> nodes;
  for (const std::string& name : sysfs::list(folder)) {
    if (!name.starts_with("node") || name.find_first_not_of("0123456789", 4) != std::string::npos || name.size() == 4)
      continue;
    NumaNode node;
    node.id = std::atoi(name.c_str() + 4);
    const std::string path = folder + "/" + name;
    node.cpus = sysfs::read_text(path + "/cpulist");
    node.cpu_count = sysfs::count_cpus(node.cpus);
    const std::string memory = sysfs::read_text(path + "/meminfo");
    if (const size_t at = memory.find("MemTotal:"); at != std::string::npos) {
      node.memory_bytes = std::strtoull(memory.c_str() + at + 9, nullptr, 10) * 1024;
    }
    const std::string distances = sysfs::read_text(path + "/distance");
    for (char *at = const_cast<char*>(distances.c_str()), *next = nullptr;; at = next) {
      const long distance = std::strtol(at, &next, 10);
      if (next == at) break;
      node.distances.push_back(static_cast<int>(distance));
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<Accelerator> read_accelerators(const std::string& folder) {
  std::vector<Accelerator> found;
  for (const std::string& name : sysfs::list(folder)) {
    const std::string path = folder + "/" + name;
    Accelerator device;
    device.vendor_id = sysfs::read_text(path + "/vendor");
    device.device_id = sysfs::read_text(path + "/device");
    device.driver = sysfs::link_name(path + "/driver");
    const std::string kind =
        sysfs::read_text(path + "/class");  // 0x03xxxx: display; the audio part of a card has another class
    if (device.vendor_id == kNvidia && kind.starts_with("0x03")) {
      device.kind = AcceleratorKind::kCuda;
    } else if (device.vendor_id == kAmazon &&
               (device.driver == "neuron" || std::find(std::begin(kNeuronDevices), std::end(kNeuronDevices),
                                                       device.device_id) != std::end(kNeuronDevices))) {
      device.kind = AcceleratorKind::kNeuron;
    } else {
      continue;
    }
    device.pci = name;
    device.numa_node = static_cast<int>(sysfs::read_integer(path + "/numa_node", -1));
    found.push_back(std::move(device));
  }
  return found;
}

}  // namespace

const char* kind_name(NicKind kind) {
  switch (kind) {
    case NicKind::kEthernet:
      return "ethernet";
    case NicKind::kInfiniband:
      return "infiniband";
    case NicKind::kLoopback:
      return "loopback";
    case NicKind::kBridge:
      return "bridge";
    case NicKind::kBond:
      return "bond";
    case NicKind::kVlan:
      return "vlan";
    case NicKind::kVeth:
      return "veth";
    case NicKind::kVirtual:
      return "virtual";
  }
  return "virtual";
}

const char* kind_name(FabricKind kind) {
  switch (kind) {
    case FabricKind::kEfa:
      return "efa";
    case FabricKind::kInfiniband:
      return "infiniband";
    case FabricKind::kRoce:
      return "roce";
    case FabricKind::kUnknown:
      return "unknown";
  }
  return "unknown";
}

const char* kind_name(AcceleratorKind kind) {
  return kind == AcceleratorKind::kCuda ? "cuda" : "neuron";
}

const Nic* Machine::nic(const std::string& name) const {
  const auto found = std::find_if(nics.begin(), nics.end(), [&](const Nic& nic) { return nic.name == name; });
  return found == nics.end() ? nullptr : &*found;
}

const FabricDevice* Machine::fabric(const std::string& name) const {
  const auto found =
      std::find_if(fabrics.begin(), fabrics.end(), [&](const FabricDevice& device) { return device.name == name; });
  return found == fabrics.end() ? nullptr : &*found;
}

AddressMap system_addresses() {
  AddressMap addresses;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return addresses;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, ::freeifaddrs);
  for (const ifaddrs* each = first; each; each = each->ifa_next) {
    if (!each->ifa_addr) continue;
    char text[INET6_ADDRSTRLEN];
    NicAddress address;
    if (each->ifa_addr->sa_family == AF_INET) {
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
      ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
      address.link_local = (ntohl(v4->sin_addr.s_addr) >> 16) == 0xa9fe;  // 169.254/16
      address.text = text;
    } else if (each->ifa_addr->sa_family == AF_INET6) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr);
      ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
      address.v6 = true;
      address.link_local = IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
      address.text = text;
      if (address.link_local) address.text += std::string("%") + each->ifa_name;
    } else {
      continue;
    }
    const std::string label = each->ifa_name;  // an IPv4 alias is labelled "eth0:1"
    addresses[label.substr(0, label.find(':'))].push_back(std::move(address));
  }
  return addresses;
}

Machine discover(const Sources& sources) {
  Machine machine;
  machine.boot_id = sysfs::read_text(sources.boot_id_file);
  const AddressMap addresses = sources.addresses();
  const std::string nics = sources.sysfs + "/class/net";
  for (const std::string& name : sysfs::list(nics)) {
    // Files such as bonding_masters stand between the interfaces.
    if (sysfs::exists(nics + "/" + name + "/type")) machine.nics.push_back(read_nic(nics + "/" + name, addresses));
  }
  const std::string fabrics = sources.sysfs + "/class/infiniband";
  for (const std::string& name : sysfs::list(fabrics)) machine.fabrics.push_back(read_fabric(fabrics + "/" + name));
  machine.numa = read_numa(sources.sysfs + "/devices/system/node");
  machine.accelerators = read_accelerators(sources.sysfs + "/bus/pci/devices");
  return machine;
}

}  // namespace tidewire::topology
