// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/staged_payload.h"

#include <algorithm>

namespace tidewire::transport::tcp {

void StagedPayload::fill(Half& half) {
  if (half.chunk.bytes() == nullptr) half.chunk = StagingChunk::take();
  half.begin = 0;
  half.end = std::min<uint64_t>(ahead_.remaining(), kStagingBytes);
  half.filled = true;
  half.status = ahead_.start_gather(half.chunk.bytes(), half.end, pins_, copies_);
  fetching_ = &half;
}

Status StagedPayload::front(const MemoryCursor& payload, const uint8_t*& bytes, uint64_t& count) {
  if (!active_) {
    active_ = true;
    ahead_ = payload;
  }
  Half& half = halves_[front_];
  if (!half.filled) {
    fill(half);
    end_fetch();
  }
  if (!half.status.ok()) return half.status;
  bytes = half.chunk.bytes() + half.begin;
  count = half.end - half.begin;
  return {};
}

void StagedPayload::consume(uint64_t count) {
  Half& half = halves_[front_];
  half.begin += count;
  if (half.begin < half.end) return;
  half.filled = false;
  front_ ^= 1;
}

void StagedPayload::start_fetch() {
  Half& next = halves_[front_ ^ 1];
  if (!active_ || next.filled || ahead_.remaining() == 0 || !halves_[front_].status.ok()) return;
  fill(next);
}

void StagedPayload::end_fetch() {
  if (fetching_ == nullptr) return;
  const Status copied = copies_.wait();
  pins_.clear();
  if (fetching_->status.ok()) fetching_->status = copied;
  fetching_ = nullptr;
}

void StagedPayload::reset() {
  end_fetch();
  for (Half& half : halves_) half = Half();
  front_ = 0;
  active_ = false;
  ahead_ = MemoryCursor();
}

}  // namespace tidewire::transport::tcp
