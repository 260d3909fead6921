// SPDX-License-Identifier: Apache-2.0
//
// The planner cuts slices from a job when a channel has room: neighbouring transfers become one piece, large ones are cut, and the size of a
// slice follows what is left, so that all channels finish together.
#pragma once

#include <vector>

#include "engine/job.h"

namespace tidewire::engine {

struct SliceLimits {
  uint64_t bytes;
  uint64_t pieces;
};

// Bytes for the next slice when `left` bytes remain and `channels` channels share them: a half of an even share (guided
// self-scheduling, Polychronopoulos and Kuck 1987), within [least, most] and cut at multiples of 4 KiB.
uint64_t slice_bytes(uint64_t left, uint64_t channels, uint64_t least, uint64_t most);

// Takes the longest prefix of `range` within the limits off it: fills `slice` (pieces, bytes, range). Transfers that already failed and empty ones
// are left out. slice.bytes is 0 when nothing was left.
void cut_slice(const Job& job, Range& range, const SliceLimits& limits, JobSlice& slice);

// Splits a range of several transfers into two of about as many transfers each.
std::pair<Range, Range> split(const Range& range);

}  // namespace tidewire::engine
