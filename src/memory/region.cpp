// SPDX-License-Identifier: Apache-2.0
#include "memory/region.h"

#include "memory/drain_signal.h"

namespace tidewire {

bool Region::allows(Access access) const {
  switch (access) {
    case Access::kLocal:
      return true;
    case Access::kRemoteRead:
      return permission != Permission::kNone;
    case Access::kRemoteWrite:
      return permission == Permission::kReadWrite;
  }
  return false;
}

// The pin is counted before `cut` is read, and the remover sets `cut` before it reads the count: one of the two sees
// the other.
RegionPin::RegionPin(Region& region) : region_(region) {
  region_.pins.fetch_add(1, std::memory_order_seq_cst);
  valid_ = !region_.cut.load(std::memory_order_seq_cst);
}

RegionPin::~RegionPin() {
  if (region_.pins.fetch_sub(1, std::memory_order_seq_cst) == 1 && region_.cut.load(std::memory_order_seq_cst)) {
    DrainSignal::get().notify();
  }
}

RangeHold::RangeHold(RangeHold&& other) noexcept
    : regions_(std::move(other.regions_)), last_(std::exchange(other.last_, nullptr)) {}

RangeHold& RangeHold::operator=(RangeHold&& other) noexcept {
  if (this != &other) {
    release();
    regions_ = std::move(other.regions_);
    other.regions_.clear();
    last_ = std::exchange(other.last_, nullptr);
  }
  return *this;
}

RangeHold::~RangeHold() {
  release();
}

void RangeHold::release() {
  for (const auto& region : regions_) {
    if (region->uses.fetch_sub(1, std::memory_order_seq_cst) == 1 && region->draining.load(std::memory_order_seq_cst)) {
      DrainSignal::get().notify();
    }
  }
  regions_.clear();
  last_ = nullptr;
}

Region* RangeHold::find(uint64_t address) const {
  auto after = std::upper_bound(regions_.begin(), regions_.end(), address,
                                [](uint64_t value, const auto& region) { return value < region->address; });
  // One step back finds it, except when a region was replaced by a smaller one while this hold kept the first in use.
  while (after != regions_.begin()) {
    Region* region = (--after)->get();
    if (address - region->address < region->length) return region;
  }
  return nullptr;
}

bool RangeHold::all_host_accessible() const {
  return std::all_of(regions_.begin(), regions_.end(),
                     [](const auto& region) { return region->kind->host_accessible(); });
}

}  // namespace tidewire
