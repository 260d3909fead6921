// SPDX-License-Identifier: Apache-2.0
#include "store/owner/place_order.h"

#include <algorithm>

namespace tidewire::store {

uint32_t PlaceOrder::Block::position(uint64_t offset) const {
  return static_cast<uint32_t>(std::lower_bound(offsets, offsets + used, offset) - offsets);
}

void PlaceOrder::Block::insert(uint32_t at, uint64_t offset, uint32_t id) {
  std::copy_backward(offsets + at, offsets + used, offsets + used + 1);
  std::copy_backward(ids + at, ids + used, ids + used + 1);
  offsets[at] = offset;
  ids[at] = id;
  ++used;
}

size_t PlaceOrder::Segment::block_of(uint64_t offset) const {
  const auto after = std::upper_bound(firsts.begin(), firsts.end(), offset);
  return after == firsts.begin() ? 0 : static_cast<size_t>(after - firsts.begin()) - 1;
}

void PlaceOrder::insert(Place place, uint32_t id) {
  Segment& segment = segments_[place.segment];
  if (segment.blocks.empty()) {
    segment.blocks.push_back(std::make_unique<Block>());
    segment.firsts.push_back(place.offset);
  }
  size_t number = segment.block_of(place.offset);
  Block* block = segment.blocks[number].get();
  uint32_t at = block->position(place.offset);
  if (at < block->used && block->offsets[at] == place.offset) {
    block->ids[at] = id;
    return;
  }
  if (block->used == kEntries) {
    // What is filled from front to back leaves full blocks behind.
    const uint32_t keep = at == kEntries ? kEntries : kEntries / 2;
    auto upper = std::make_unique<Block>();
    upper->used = kEntries - keep;
    std::copy(block->offsets + keep, block->offsets + kEntries, upper->offsets);
    std::copy(block->ids + keep, block->ids + kEntries, upper->ids);
    block->used = keep;
    const auto next = static_cast<ptrdiff_t>(number) + 1;
    segment.firsts.insert(segment.firsts.begin() + next, keep == kEntries ? place.offset : upper->offsets[0]);
    segment.blocks.insert(segment.blocks.begin() + next, std::move(upper));
    if (at >= keep) {
      ++number;
      block = segment.blocks[number].get();
      at -= keep;
    }
  }
  block->insert(at, place.offset, id);
  segment.firsts[number] = block->offsets[0];
}

void PlaceOrder::erase(Place place) {
  const auto found = segments_.find(place.segment);
  if (found == segments_.end()) return;
  Segment& segment = found->second;
  const size_t number = segment.block_of(place.offset);
  Block& block = *segment.blocks[number];
  const uint32_t at = block.position(place.offset);
  if (at == block.used || block.offsets[at] != place.offset) return;
  std::copy(block.offsets + at + 1, block.offsets + block.used, block.offsets + at);
  std::copy(block.ids + at + 1, block.ids + block.used, block.ids + at);
  if (--block.used > 0) {
    segment.firsts[number] = block.offsets[0];
    return;
  }
  segment.firsts.erase(segment.firsts.begin() + static_cast<ptrdiff_t>(number));
  segment.blocks.erase(segment.blocks.begin() + static_cast<ptrdiff_t>(number));
  if (segment.blocks.empty()) segments_.erase(found);
}

std::optional<PlaceOrder::Found> PlaceOrder::from(Place place) const {
  auto found = segments_.lower_bound(place.segment);
  if (found == segments_.end()) return std::nullopt;
  size_t number = 0;
  uint32_t at = 0;
  if (found->first == place.segment) {
    const Segment& segment = found->second;
    number = segment.block_of(place.offset);
    at = segment.blocks[number]->position(place.offset);
    if (at == segment.blocks[number]->used) {
      ++number;
      at = 0;
    }
    if (number == segment.blocks.size()) {
      if (++found == segments_.end()) return std::nullopt;
      number = 0;
    }
  }
  const Block& block = *found->second.blocks[number];
  return Found{{found->first, block.offsets[at]}, block.ids[at]};
}

std::optional<PlaceOrder::Found> PlaceOrder::before(Place place) const {
  const auto found = segments_.find(place.segment);
  if (found == segments_.end()) return std::nullopt;
  const Segment& segment = found->second;
  size_t number = segment.block_of(place.offset);
  uint32_t at = segment.blocks[number]->position(place.offset);
  if (at == 0) {
    if (number == 0) return std::nullopt;
    --number;
    at = segment.blocks[number]->used;
  }
  const Block& block = *segment.blocks[number];
  return Found{{place.segment, block.offsets[at - 1]}, block.ids[at - 1]};
}

}  // namespace tidewire::store
