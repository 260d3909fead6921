// SPDX-License-Identifier: Apache-2.0
#include "store/client/checksum.h"

#include "store/client/client.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tidewire::store {

uint64_t checksum(const std::vector<Part>& parts) {
  uint64_t sum = 0;
  if (parts.size() == 1) {
    sum = XXH3_64bits(reinterpret_cast<const void*>(parts[0].address), parts[0].length);
  } else {
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (const Part& part : parts) XXH3_64bits_update(&state, reinterpret_cast<const void*>(part.address), part.length);
    sum = XXH3_64bits_digest(&state);
  }
  return sum == 0 ? 1 : sum;
}

}  // namespace tidewire::store
