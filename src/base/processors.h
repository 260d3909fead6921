// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <algorithm>
#include <thread>

namespace tidewire {

// Processors that this process may use, at least 1: a container's share, not the machine's. Asked once.
inline unsigned processors() {
  static const unsigned count = [] {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return std::max(1u, static_cast<unsigned>(CPU_COUNT(&allowed)));
    return std::max(1u, std::thread::hardware_concurrency());  // more processors than cpu_set_t holds
  }();
  return count;
}

}  // namespace tidewire
