// SPDX-License-Identifier: Apache-2.0
//
// Machine: what this host has that matters to transfers: network interfaces with their addresses, InfiniBand-class
// devices (EFA, RoCE, InfiniBand), NUMA nodes and accelerators, each with its place on the PCI bus. Discovery reads
// sysfs and getifaddrs, takes a few milliseconds, runs no driver code and never fails: what can't be read is empty or
// unknown. A Machine is a value, a picture of one moment.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tidewire::topology {

enum class NicKind {
  kEthernet,    // has hardware (or a paravirtual device) of its own
  kInfiniband,  // IP over InfiniBand
  kLoopback,
  kBridge,
  kBond,
  kVlan,
  kVeth,
  kVirtual,  // any other without hardware: tunnel, dummy, macvlan …
};
const char* kind_name(NicKind kind);  // "ethernet", …

struct NicAddress {
  std::string text;  // "10.0.0.1", "2001:db8::1", "fe80::1%eth0"
  bool v6 = false;
  bool link_local = false;
};

struct Nic {
  std::string name;
  NicKind kind = NicKind::kVirtual;
  int index = 0;  // as in %<index> of scoped addresses; 0 unknown
  bool up = false;
  std::vector<NicAddress> addresses;
  uint64_t bits_per_second = 0;  // 0 = unknown (virtual interfaces tell none)
  int mtu = 0;
  int numa_node = -1;  // -1 = unknown
  std::string pci;     // "0000:00:03.0"; empty without hardware
  std::string master;  // the bridge or bond that it is a port of
};

enum class FabricKind { kEfa, kInfiniband, kRoce, kUnknown };
const char* kind_name(FabricKind kind);  // "efa", "infiniband", "roce", "unknown"

struct FabricPort {
  int number = 0;
  std::string state;       // "ACTIVE", "DOWN" …
  std::string link_layer;  // "InfiniBand", "Ethernet", "Unspecified"
  uint64_t bits_per_second = 0;
};

struct FabricDevice {
  std::string name;  // "mlx5_0", "rdmap0s6"
  FabricKind kind = FabricKind::kUnknown;
  std::string driver;  // "mlx5_core", "efa", "rdma_rxe" …
  int numa_node = -1;
  std::string pci;
  std::vector<FabricPort> ports;
  std::vector<std::string> nics;  // network interfaces on the same device
};

struct NumaNode {
  int id = 0;
  std::string cpus;  // "0-15,32-47"
  int cpu_count = 0;
  uint64_t memory_bytes = 0;
  std::vector<int> distances;  // to each node, in order of id
};

enum class AcceleratorKind { kCuda, kNeuron };
const char* kind_name(AcceleratorKind kind);  // "cuda", "neuron"

struct Accelerator {
  AcceleratorKind kind = AcceleratorKind::kCuda;
  std::string pci;
  int numa_node = -1;
  std::string vendor_id, device_id;  // "0x10de", "0x2335"
  std::string driver;                // empty when no driver holds it
};

struct Machine {
  std::string boot_id;  // of the kernel; empty when unknown
  std::vector<Nic> nics;
  std::vector<FabricDevice> fabrics;
  std::vector<NumaNode> numa;
  std::vector<Accelerator> accelerators;

  const Nic* nic(const std::string& name) const;
  const FabricDevice* fabric(const std::string& name) const;
};

// Interface addresses by interface name.
using AddressMap = std::map<std::string, std::vector<NicAddress>>;
AddressMap system_addresses();

// Where discovery looks; tests give a tree and addresses of their own.
struct Sources {
  std::string sysfs = "/sys";
  std::string boot_id_file = "/proc/sys/kernel/random/boot_id";
  std::function<AddressMap()> addresses = system_addresses;
};

Machine discover(const Sources& sources = {});

}  // namespace tidewire::topology
