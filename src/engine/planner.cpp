// SPDX-License-Identifier: Apache-2.0
#include "engine/planner.h"

#include <algorithm>

namespace tidewire::engine {

uint64_t slice_bytes(uint64_t left, uint64_t channels, uint64_t least, uint64_t most) {
  if (channels <= 1 || least >= most) return most;
  constexpr uint64_t kGrain = 4096;
  const uint64_t share = (left / (2 * channels) + kGrain - 1) / kGrain * kGrain;
  return std::clamp(share, least, most);
}

void cut_slice(const Job& job, Range& range, const SliceLimits& limits, JobSlice& slice) {
  slice.range = {range.begin, range.begin, range.attempts};
  while (!range.empty() && slice.bytes < limits.bytes) {
    const Transfer& transfer = job.transfers[range.begin.transfer];
    const uint64_t end = range.end.transfer == range.begin.transfer ? range.end.offset : transfer.length;
    const uint64_t offset = range.begin.offset;
    if (transfer.code.load(std::memory_order_relaxed) != TW_OK || offset >= end) {
      range.begin = {range.begin.transfer + 1, 0};
      slice.range.end = range.begin;
      continue;
    }
    const uint64_t length = std::min(end - offset, limits.bytes - slice.bytes);
    const uint64_t local = transfer.local + offset;
    const uint64_t remote = transfer.remote + offset;
    transport::Piece* last = slice.pieces.empty() ? nullptr : &slice.pieces.back();
    if (last && last->local + last->length == local && last->remote + last->length == remote) {
      last->length += length;
    } else if (slice.pieces.size() < limits.pieces) {
      slice.pieces.push_back({local, remote, length});
    } else {
      break;
    }
    slice.bytes += length;
    range.begin = offset + length == transfer.length ? Position{range.begin.transfer + 1, 0}
                                                     : Position{range.begin.transfer, offset + length};
    slice.range.end = range.begin;
  }
}

std::pair<Range, Range> split(const Range& range) {
  const uint64_t last = range.end.offset == 0 ? range.end.transfer : range.end.transfer + 1;
  const Position middle{range.begin.transfer + (last - range.begin.transfer) / 2, 0};
  return {Range{range.begin, middle, range.attempts}, Range{middle, range.end, range.attempts}};
}

}  // namespace tidewire::engine
