// SPDX-License-Identifier: Apache-2.0
#include "store/client/checksum.h"

#include <algorithm>

#include "store/client/client.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tidewire::store {

namespace {
constexpr uint64_t kStep = 64 << 20;

uint64_t not_none(uint64_t sum) {
  return sum == 0 ? 1 : sum;
}
}  // namespace

struct Checksum::State {
  XXH3_state_t hash;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->hash);
}

Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;

void Checksum::add(uint64_t address, uint64_t length) {
  XXH3_64bits_update(&state_->hash, reinterpret_cast<const void*>(address), length);
}

uint64_t Checksum::value() const {
  return not_none(XXH3_64bits_digest(&state_->hash));
}

uint64_t checksum(const std::vector<Part>& parts, const std::function<void()>& between) {
  if (parts.size() == 1 && parts[0].length <= kStep)
    return not_none(XXH3_64bits(reinterpret_cast<const void*>(parts[0].address), parts[0].length));
  Checksum sum;
  for (const Part& part : parts)
    for (uint64_t at = 0; at < part.length; at += kStep) {
      sum.add(part.address + at, std::min(kStep, part.length - at));
      if (part.length > kStep) between();
    }
  return sum.value();
}

}  // namespace tidewire::store
