// SPDX-License-Identifier: Apache-2.0
#include "store/client/checksum.h"

#include <algorithm>

#include "store/client/client.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tidewire::store {

namespace {
constexpr uint64_t kStep = 64 << 20;
}

uint64_t checksum(const std::vector<Part>& parts, const std::function<void()>& between) {
  uint64_t sum = 0;
  if (parts.size() == 1 && parts[0].length <= kStep) {
    sum = XXH3_64bits(reinterpret_cast<const void*>(parts[0].address), parts[0].length);
  } else {
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (const Part& part : parts)
      for (uint64_t at = 0; at < part.length; at += kStep) {
        XXH3_64bits_update(&state, reinterpret_cast<const void*>(part.address + at), std::min(kStep, part.length - at));
        if (part.length > kStep) between();
      }
    sum = XXH3_64bits_digest(&state);
  }
  return sum == 0 ? 1 : sum;
}

}  // namespace tidewire::store
