// SPDX-License-Identifier: Apache-2.0
#include "memory/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>

namespace tidewire::numa {
namespace {

constexpr int kMaxNodes = 1024;  // the kernel's own limit on common configurations

std::vector<int> read_nodes() {
  std::vector<int> found;
  std::ifstream file("/sys/devices/system/node/online");
  std::string text;
  std::getline(file, text);
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int first = 0, last = 0;
    const int read = sscanf(part.c_str(), "%d-%d", &first, &last);
    if (read < 1 || first < 0) continue;
    if (read == 1) last = first;
    for (int node = first; node <= std::min(last, kMaxNodes - 1); ++node) found.push_back(node);
  }
  if (found.empty()) found.push_back(0);
  return found;
}

}  // namespace

const std::vector<int>& nodes() {
  static const std::vector<int>* const all = new std::vector<int>(read_nodes());
  return *all;
}

int node_of(uint64_t address) {
  if (nodes().size() == 1) return nodes().front();
  void* page = reinterpret_cast<void*>(address & ~uint64_t{4095});
  int status = -1;
  // Without target nodes move_pages only reports, and reports ENOENT for a page that has not been touched.
  if (syscall(SYS_move_pages, 0, 1UL, &page, nullptr, &status, 0) != 0 || status < 0) return nodes().front();
  return status;
}

Status place(uint64_t address, uint64_t length, int node) {
  if (node >= 0 && std::find(nodes().begin(), nodes().end(), node) == nodes().end()) {
    return Status::error(Code::kInvalidArgument,
                         "location 'cpu:{}': this machine has no such NUMA node; use 'cpu:{}' or '*'", node,
                         nodes().front());
  }
  if (nodes().size() == 1) return {};
  unsigned long mask[kMaxNodes / (8 * sizeof(unsigned long))] = {};
  constexpr int kBits = 8 * sizeof(unsigned long);
  for (int each : nodes()) {
    if (node < 0 || each == node) mask[each / kBits] |= 1UL << (each % kBits);
  }
  const int mode = node < 0 ? MPOL_INTERLEAVE : MPOL_BIND;
  if (syscall(SYS_mbind, address, length, mode, mask, kMaxNodes + 1UL, 0) == 0) return {};
  // Placement is a wish when no node was named, and a kernel or container may forbid the call.
  if (node < 0) return {};
  return errno_status(errno, fmt::format("mbind of {} bytes to NUMA node {}", length, node));
}

}  // namespace tidewire::numa
