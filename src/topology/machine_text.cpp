// SPDX-License-Identifier: Apache-2.0
#include "topology/machine_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

namespace tidewire::topology {
namespace {

using nlohmann::ordered_json;

ordered_json known(bool is_known, auto value) {
  return is_known ? ordered_json(value) : ordered_json(nullptr);
}

std::string rate_text(uint64_t bits_per_second) {
  if (bits_per_second == 0) return "-";
  return fmt::format("{} Gbit/s", static_cast<double>(bits_per_second) / 1e9);
}

std::string number(int value) {
  return value < 0 ? "-" : std::to_string(value);
}
std::string text(const std::string& value) {
  return value.empty() ? "-" : value;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : " ") + part;
  return text(all);
}

// Columns as wide as their widest cell.
std::string columns(const std::string& title, const std::vector<std::vector<std::string>>& rows) {
  if (rows.size() < 2) return title + ": none\n";
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (size_t index = 0; index < row.size(); ++index) widths[index] = std::max(widths[index], row[index].size());
  }
  std::string out = title + "\n";
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t index = 0; index < row.size(); ++index) line += fmt::format(" {:<{}} ", row[index], widths[index]);
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

}  // namespace

std::string machine_json(const Machine& machine) {
  ordered_json root;
  root["boot_id"] = machine.boot_id;
  root["nics"] = ordered_json::array();
  for (const Nic& nic : machine.nics) {
    ordered_json addresses = ordered_json::array();
    for (const NicAddress& address : nic.addresses) addresses.push_back(address.text);
    root["nics"].push_back({{"name", nic.name},
                            {"kind", kind_name(nic.kind)},
                            {"up", nic.up},
                            {"addresses", addresses},
                            {"bits_per_second", known(nic.bits_per_second > 0, nic.bits_per_second)},
                            {"mtu", nic.mtu},
                            {"numa_node", known(nic.numa_node >= 0, nic.numa_node)},
                            {"pci", known(!nic.pci.empty(), nic.pci)},
                            {"master", known(!nic.master.empty(), nic.master)}});
  }
  root["fabric_devices"] = ordered_json::array();
  for (const FabricDevice& device : machine.fabrics) {
    ordered_json ports = ordered_json::array();
    for (const FabricPort& port : device.ports) {
      ports.push_back({{"number", port.number},
                       {"state", port.state},
                       {"link_layer", port.link_layer},
                       {"bits_per_second", known(port.bits_per_second > 0, port.bits_per_second)}});
    }
    root["fabric_devices"].push_back({{"name", device.name},
                                      {"kind", kind_name(device.kind)},
                                      {"driver", device.driver},
                                      {"numa_node", known(device.numa_node >= 0, device.numa_node)},
                                      {"pci", known(!device.pci.empty(), device.pci)},
                                      {"ports", ports},
                                      {"nics", device.nics}});
  }
  root["numa_nodes"] = ordered_json::array();
  for (const NumaNode& node : machine.numa) {
    root["numa_nodes"].push_back({{"id", node.id},
                                  {"cpus", node.cpus},
                                  {"cpu_count", node.cpu_count},
                                  {"memory_bytes", node.memory_bytes},
                                  {"distances", node.distances}});
  }
  root["accelerators"] = ordered_json::array();
  for (const Accelerator& device : machine.accelerators) {
    root["accelerators"].push_back({{"kind", kind_name(device.kind)},
                                    {"pci", device.pci},
                                    {"numa_node", known(device.numa_node >= 0, device.numa_node)},
                                    {"vendor_id", device.vendor_id},
                                    {"device_id", device.device_id},
                                    {"driver", device.driver}});
  }
  return root.dump(2, ' ', false, ordered_json::error_handler_t::replace);
}

std::string machine_table(const Machine& machine) {
  std::vector<std::vector<std::string>> rows = {{"NAME", "KIND", "STATE", "RATE", "NUMA", "PCI", "ADDRESSES"}};
  for (const Nic& nic : machine.nics) {
    std::vector<std::string> addresses;
    for (const NicAddress& address : nic.addresses) addresses.push_back(address.text);
    rows.push_back({nic.name, kind_name(nic.kind), nic.up ? "up" : "down", rate_text(nic.bits_per_second),
                    number(nic.numa_node), text(nic.pci), joined(addresses)});
  }
  std::string out = columns("Network interfaces", rows);

  rows = {{"NAME", "KIND", "DRIVER", "STATE", "RATE", "NUMA", "PCI", "INTERFACES"}};
  for (const FabricDevice& device : machine.fabrics) {
    const FabricPort port = device.ports.empty() ? FabricPort{} : device.ports[0];
    rows.push_back({device.name, kind_name(device.kind), text(device.driver), text(port.state),
                    rate_text(port.bits_per_second), number(device.numa_node), text(device.pci), joined(device.nics)});
  }
  out += "\n";
  out += columns("InfiniBand-class devices", rows);

  rows = {{"NODE", "CPUS", "MEMORY", "DISTANCES"}};
  for (const NumaNode& node : machine.numa) {
    std::vector<std::string> distances;
    for (const int distance : node.distances) distances.push_back(std::to_string(distance));
    rows.push_back({std::to_string(node.id), text(node.cpus),
                    fmt::format("{:.1f} GiB", static_cast<double>(node.memory_bytes) / (1 << 30)), joined(distances)});
  }
  out += "\n";
  out += columns("NUMA nodes", rows);

  rows = {{"KIND", "PCI", "NUMA", "DRIVER", "VENDOR:DEVICE"}};
  for (const Accelerator& device : machine.accelerators) {
    rows.push_back({kind_name(device.kind), device.pci, number(device.numa_node), text(device.driver),
                    device.vendor_id + ":" + device.device_id});
  }
  out += "\n";
  out += columns("Accelerators", rows);
  return out;
}

}  // namespace tidewire::topology
