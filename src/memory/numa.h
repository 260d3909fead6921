// SPDX-License-Identifier: Apache-2.0
//
// NUMA nodes through plain system calls: where a page lies, and where new pages shall come from.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace tidewire::numa {

// Online nodes, ascending; {0} where the system doesn't say.
const std::vector<int>& nodes();
// The node of the page at `address`; the first node when the page does not exist yet. Never touches the bytes.
int node_of(uint64_t address);
// New pages of the mapping come from `node`; with node < 0 from all nodes in turn. kInvalidArgument for a node that
// does not exist.
Status place(uint64_t address, uint64_t length, int node);

}  // namespace tidewire::numa
