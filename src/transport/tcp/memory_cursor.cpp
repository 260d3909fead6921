// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/memory_cursor.h"

#include <algorithm>
#include <cstring>

namespace tidewire::transport::tcp {
namespace {

Status cut_status(uint64_t address) {
  return Status::error(Code::kNotRegistered, "the region of {:#x} was unregistered during the transfer", address);
}

}  // namespace

PinSet::Outcome PinSet::pin(Region& region) {
  for (size_t i = 0; i < count_; ++i) {
    if (regions_[i] == &region) return Outcome::kPinned;
  }
  if (count_ == kMost) return Outcome::kFull;
  pins_[count_].emplace(region);
  if (!pins_[count_]->valid()) {
    pins_[count_].reset();
    return Outcome::kCut;
  }
  regions_[count_++] = &region;
  return Outcome::kPinned;
}

void PinSet::clear() {
  for (size_t i = 0; i < count_; ++i) pins_[i].reset();
  count_ = 0;
}

MemoryCursor::MemoryCursor(PieceView view, const RangeHold& hold, uint64_t bytes)
    : view_(view), hold_(&hold), remaining_(bytes) {
  staged_ = !hold.all_host_accessible();
  direct_ = !staged_ && bytes >= kDirectFrom * view.count;
}

// Calls visit(region, address, length) -> Status for the parts of the next `bytes`, each in a pinned region, and moves
// on.
template <typename Visit>
Status MemoryCursor::walk(uint64_t bytes, PinSet& pins, CopyGroup& copies, Visit&& visit) {
  Region* region = nullptr;
  while (bytes > 0) {
    const uint64_t address = view_.address(index_) + offset_;
    const uint64_t piece = view_.length(index_) - offset_;
    if (region == nullptr || address - region->address >= region->length) {
      region = hold_->find(address);
      if (region == nullptr) return Status::error(Code::kInternal, "{:#x} is not held", address);
      PinSet::Outcome outcome = pins.pin(*region);
      if (outcome == PinSet::Outcome::kFull) {
        TW_RETURN_IF_ERROR(copies.wait());
        pins.clear();
        outcome = pins.pin(*region);
      }
      if (outcome == PinSet::Outcome::kCut) return cut_status(address);
    }
    const uint64_t part = std::min({bytes, piece, region->end() - address});
    TW_RETURN_IF_ERROR(visit(*region, address, part));
    bytes -= part;
    remaining_ -= part;
    offset_ += part;
    if (part == piece) {
      ++index_;
      offset_ = 0;
    }
  }
  return {};
}

void MemoryCursor::advance(uint64_t bytes) {
  remaining_ -= bytes;
  while (bytes > 0) {
    const uint64_t piece = view_.length(index_) - offset_;
    if (bytes < piece) {
      offset_ += bytes;
      return;
    }
    bytes -= piece;
    ++index_;
    offset_ = 0;
  }
}

Status MemoryCursor::map(iovec* out, size_t most_vectors, uint64_t most_bytes, PinSet& pins, Mapped& mapped) const {
  mapped = {};
  Region* region = nullptr;
  size_t index = index_;
  uint64_t offset = offset_;
  uint64_t left = std::min(remaining_, most_bytes);
  while (left > 0 && mapped.vectors < most_vectors) {
    const uint64_t address = view_.address(index) + offset;
    const uint64_t piece = view_.length(index) - offset;
    if (region == nullptr || address - region->address >= region->length) {
      region = hold_->find(address);
      if (region == nullptr) return Status::error(Code::kInternal, "{:#x} is not held", address);
      const PinSet::Outcome outcome = pins.pin(*region);
      if (outcome == PinSet::Outcome::kFull) break;
      if (outcome == PinSet::Outcome::kCut) return cut_status(address);
    }
    const uint64_t part = std::min({left, piece, region->end() - address});
    out[mapped.vectors++] = {reinterpret_cast<void*>(address), part};
    mapped.bytes += part;
    left -= part;
    offset += part;
    if (part == piece) {
      ++index;
      offset = 0;
    }
  }
  return {};
}

Status MemoryCursor::start_gather(uint8_t* out, uint64_t bytes, PinSet& pins, CopyGroup& copies) {
  return walk(bytes, pins, copies, [&](Region& region, uint64_t address, uint64_t part) -> Status {
    if (region.kind->host_accessible()) {
      std::memcpy(out, reinterpret_cast<const void*>(address), part);
    } else {
      TW_RETURN_IF_ERROR(copies.to_host(region, out, address, part));
    }
    out += part;
    return {};
  });
}

Status MemoryCursor::start_scatter(const uint8_t* in, uint64_t bytes, PinSet& pins, CopyGroup& copies) {
  return walk(bytes, pins, copies, [&](Region& region, uint64_t address, uint64_t part) -> Status {
    if (region.kind->host_accessible()) {
      std::memcpy(reinterpret_cast<void*>(address), in, part);
    } else {
      TW_RETURN_IF_ERROR(copies.from_host(region, address, in, part));
    }
    in += part;
    return {};
  });
}

// Device copies of all pieces are started first and awaited once, before a pinned region is let go.
Status MemoryCursor::gather(uint8_t* out, uint64_t bytes) {
  PinSet pins;
  CopyGroup copies;  // destroyed before the pins
  const Status status = start_gather(out, bytes, pins, copies);
  const Status copied = copies.wait();
  return status.ok() ? copied : status;
}

Status MemoryCursor::scatter(const uint8_t* in, uint64_t bytes) {
  PinSet pins;
  CopyGroup copies;
  const Status status = start_scatter(in, bytes, pins, copies);
  const Status copied = copies.wait();
  return status.ok() ? copied : status;
}

}  // namespace tidewire::transport::tcp
