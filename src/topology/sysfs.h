// SPDX-License-Identifier: Apache-2.0
//
// Small reads of sysfs that never fail: what is missing is empty or the given default.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tidewire::topology::sysfs {

// The file's first 4096 bytes without white space at the end.
std::string read_text(const std::string& path);
int64_t read_integer(const std::string& path, int64_t otherwise);
// Names in a folder, without "." and "..", in natural order (eth2 before eth10).
std::vector<std::string> list(const std::string& path);
bool exists(const std::string& path);
// The path behind all links, empty when there is none.
std::string resolve(const std::string& path);
// The last component of a link's target: the driver's name of ".../device/driver".
std::string link_name(const std::string& path);
// The folder of the nearest PCI device at or above a device's resolved path; empty when there is none (a software
// device).
std::string pci_folder(const std::string& resolved);
// Number of members of a list such as "0-3,8".
int count_cpus(const std::string& cpus);

}  // namespace tidewire::topology::sysfs
