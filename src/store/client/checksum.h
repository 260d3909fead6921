// SPDX-License-Identifier: Apache-2.0
//
// The checksum of an object's bytes: XXH3, 64 bits. 0 means "none"; a sum of 0 is stored as 1.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace tidewire::store {

struct Part;

// Of the parts' bytes, one after the other. `between` is called every 64 MiB.
uint64_t checksum(const std::vector<Part>& parts, const std::function<void()>& between = [] {});

}  // namespace tidewire::store
