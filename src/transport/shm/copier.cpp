// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/copier.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "memory/copy.h"

namespace tidewire::transport::shm {
namespace {

constexpr size_t kMaxParts = 512;  // iovecs in one system call; the kernel takes 1024
// Large enough that claiming a chunk costs nothing (13 µs of copying); all but a stretch's last one end on a page where
// it begins on one.
constexpr uint64_t kMinChunkBytes = 256 * 1024, kChunkGrain = 64 * 1024;
constexpr uint64_t kBounceBytes = 64 * 1024;  // device memory on its way to or from another process's memory

// Whether the operation is possible on a region.
Status check(const RemoteSide& remote, const RemoteRegion& region, bool writing, uint64_t at) {
  const auto where = [&] {
    return fmt::format("[{:#x}, {:#x}) of {}", region.address, region.address + region.length, remote.name);
  };
  if (writing ? region.permission != Permission::kReadWrite : region.permission == Permission::kNone) {
    return Status::error(Code::kPermissionDenied,
                         "address {:#x} lies in region {}, which forbids remote {}; its owner must register it with "
                         "that permission",
                         at, where(), writing ? "writes" : "reads");
  }
  if (region.backing == Backing::kDevice) {
    return Status::error(Code::kUnsupported, "region {} is device memory, which the same-host path can't reach",
                         where());
  }
  if (region.backing == Backing::kForeign && !remote.foreign.ok()) {
    return Status::error(Code::kUnsupported, "region {} is not pool memory, and {}", where(), remote.foreign.message());
  }
  return {};
}

// Moves one chunk. Holds at most one remote reference and one local pin at a time, and both for one step.
class Mover {
 public:
  Mover(RemoteSide& remote, const Slice& slice, Chunk& chunk, const std::atomic<bool>& stop)
      : remote_(remote), slice_(slice), chunk_(chunk), stop_(stop), writing_(slice.opcode == Opcode::kWrite) {}

  CopyResult run() {
    while (chunk_.left > 0) {
      const Piece& piece = slice_.pieces[chunk_.piece];
      const uint64_t at = piece.remote + chunk_.offset;
      if (reference_ && (!region_->covers(at) || step_ >= kStepBytes)) {
        if (Status status = release(); !status.ok()) return {CopyResult::kFailed, status, {}};
      }
      if (!reference_) {
        if (stop_.load(std::memory_order_relaxed)) return {CopyResult::kStopped, {}, {}};
        if (!region_ || !region_->covers(at)) region_ = remote_.map.find(at);
        if (!region_) return {CopyResult::kMissing, {}, missing_from_here()};
        reference_.emplace(*remote_.references, *remote_.state, region_->slot, region_->state);
        if (!reference_->valid()) {
          // Gone, or registered anew: ask again.
          reference_.reset();
          remote_.map.erase(region_);
          region_.reset();
          return {CopyResult::kMissing, {}, missing_from_here()};
        }
        step_ = 0;
        if (Status status = check(remote_, *region_, writing_, at); !status.ok()) return fail(status);
      }
      uint64_t n =
          std::min({chunk_.left, piece.length - chunk_.offset, region_->address + region_->length - at, kStepBytes});
      const uint64_t local = piece.local + chunk_.offset;
      if (!pin_ || local - local_->address >= local_->length) {
        if (Status status = flush(); !status.ok()) return fail(status);
        pin_.reset();
        local_ = slice_.hold.find(local);
        if (local_ == nullptr)
          return fail(Status::error(Code::kInternal, "the slice does not hold local address {:#x}", local));
        pin_.emplace(*local_);
        if (!pin_->valid()) {
          return fail(Status::error(Code::kNotRegistered,
                                    "the local region [{:#x}, {:#x}) was unregistered during the transfer",
                                    local_->address, local_->end()));
        }
      }
      n = std::min(n, local_->end() - local);
      if (Status status = move(local, at, n); !status.ok()) return fail(status);
      step_ += n;
      chunk_.left -= n;
      chunk_.offset += n;
      if (chunk_.offset == piece.length) {
        ++chunk_.piece;
        chunk_.offset = 0;
      }
    }
    if (Status status = release(); !status.ok()) return {CopyResult::kFailed, status, {}};
    return {CopyResult::kDone, {}, {}};
  }

 private:
  CopyResult fail(const Status& status) {
    parts_ = 0;
    (void)release();
    return {CopyResult::kFailed, status, {}};
  }

  // Ends the step: all of it is done and visible before the reference is given back.
  Status release() {
    Status status = flush();
    copy_fence();
    pin_.reset();
    reference_.reset();
    return status;
  }

  Status move(uint64_t local, uint64_t at, uint64_t n) {
    if (region_->backing == Backing::kFile) {
      const uint64_t offset = region_->file_offset + (at - region_->address);
      if (slice_.bytes >= kStreamingBytes) region_->mapping->touch(offset, n);
      char* remote = region_->mapping->at(offset);
      if (local_->kind->host_accessible()) {
        void* here = reinterpret_cast<void*>(local);
        copy_piece(writing_ ? remote : here, writing_ ? here : remote, n, slice_.bytes);
        return {};
      }
      return writing_ ? local_->kind->copy_to_host(remote, local, n) : local_->kind->copy_from_host(local, remote, n);
    }
    if (!local_->kind->host_accessible()) return bounce(local, at, n);
    if (parts_ > 0 && end_of(local_parts_[parts_ - 1]) == local && end_of(remote_parts_[parts_ - 1]) == at) {
      local_parts_[parts_ - 1].iov_len += n;
      remote_parts_[parts_ - 1].iov_len += n;
      return {};
    }
    local_parts_[parts_] = {reinterpret_cast<void*>(local), n};
    remote_parts_[parts_] = {reinterpret_cast<void*>(at), n};
    return ++parts_ == kMaxParts ? flush() : Status{};
  }

  static uint64_t end_of(const iovec& part) { return reinterpret_cast<uint64_t>(part.iov_base) + part.iov_len; }

  Status bounce(uint64_t local, uint64_t at, uint64_t n) {
    thread_local std::unique_ptr<char[]> buffer(new char[kBounceBytes]);
    while (n > 0) {
      const uint64_t step = std::min(n, kBounceBytes);
      if (writing_) TW_RETURN_IF_ERROR(local_->kind->copy_to_host(buffer.get(), local, step));
      local_parts_[0] = {buffer.get(), step};
      remote_parts_[0] = {reinterpret_cast<void*>(at), step};
      parts_ = 1;
      TW_RETURN_IF_ERROR(flush());
      if (!writing_) TW_RETURN_IF_ERROR(local_->kind->copy_from_host(local, buffer.get(), step));
      local += step;
      at += step;
      n -= step;
    }
    return {};
  }

  // Hands the gathered parts to the kernel. It may stop anywhere, also within a part.
  Status flush() {
    iovec* local = local_parts_.data();
    iovec* remote = remote_parts_.data();
    size_t parts = std::exchange(parts_, 0);
    while (parts > 0) {
      const ssize_t moved = writing_ ? process_vm_writev(remote_.pid, local, parts, remote, parts, 0)
                                     : process_vm_readv(remote_.pid, local, parts, remote, parts, 0);
      if (moved <= 0) {
        if (moved < 0 && errno == EINTR) continue;
        const int error = moved < 0 ? errno : EFAULT;
        const auto address = reinterpret_cast<uint64_t>(remote->iov_base);
        if (error == EFAULT) {
          return Status::error(Code::kNotRegistered,
                               "memory at {:#x} of {}, or at {:#x} here, is registered but not mapped", address,
                               remote_.name, reinterpret_cast<uint64_t>(local->iov_base));
        }
        if (error == ESRCH)
          return Status::error(Code::kPeerGone, "process {} of {} is gone", remote_.pid, remote_.name);
        return Status(error == EPERM ? Code::kUnsupported : Code::kInternal,
                      errno_status(error, fmt::format("copying memory at {:#x} of {} (process {})", address,
                                                      remote_.name, remote_.pid))
                          .message());
      }
      auto left = static_cast<uint64_t>(moved);
      while (parts > 0 && left >= local->iov_len) {
        left -= local->iov_len;
        ++local;
        ++remote;
        --parts;
      }
      if (left > 0) {
        local->iov_base = static_cast<char*>(local->iov_base) + left;
        remote->iov_base = static_cast<char*>(remote->iov_base) + left;
        local->iov_len -= left;
        remote->iov_len -= left;
      }
    }
    return {};
  }

  // The unknown addresses of this piece and, as far as one question goes, of those after it.
  std::vector<uint64_t> missing_from_here() {
    (void)release();
    std::vector<uint64_t> missing;
    RemoteRegionPtr known;
    uint64_t expected = 0;  // where the next piece starts if it continues the one before
    for (size_t i = chunk_.piece; i < slice_.pieces.size() && missing.size() < kMaxLookups; ++i) {
      const uint64_t at = slice_.pieces[i].remote + (i == chunk_.piece ? chunk_.offset : 0);
      const bool continues = !missing.empty() && at == expected;
      expected = slice_.pieces[i].remote + slice_.pieces[i].length;
      if (continues || (known && known->covers(at))) continue;
      known = remote_.map.find(at);
      if (!known) missing.push_back(at);
    }
    return missing;
  }

  RemoteSide& remote_;
  const Slice& slice_;
  Chunk& chunk_;
  const std::atomic<bool>& stop_;
  const bool writing_;

  RemoteRegionPtr region_;
  std::optional<CopyReference> reference_;  // of region_
  uint64_t step_ = 0;                       // bytes under this reference
  Region* local_ = nullptr;
  std::optional<RegionPin> pin_;  // of local_
  size_t parts_ = 0;
  std::array<iovec, kMaxParts> local_parts_;
  std::array<iovec, kMaxParts> remote_parts_;
};

}  // namespace

Stretches cut(const Slice& slice, size_t threads) {
  Stretches cut;
  uint64_t at = 0, end = slice.bytes / threads, wanted = 0;
  Chunk chunk;
  const auto finish = [&] {
    if (chunk.left > 0) cut.chunks.push_back(chunk);
    chunk.left = 0;
  };
  for (uint32_t i = 0; i < slice.pieces.size(); ++i) {
    for (uint64_t offset = 0; offset < slice.pieces[i].length;) {
      if (at == end && cut.ends.size() + 1 < threads) {
        finish();
        cut.ends.push_back(static_cast<uint32_t>(cut.chunks.size()));
        end = slice.bytes * (cut.ends.size() + 1) / threads;
      }
      if (chunk.left == 0) {
        chunk = {i, offset, 0, 0};
        wanted = std::clamp((end - at) / 4 / kChunkGrain * kChunkGrain, kMinChunkBytes, kStepBytes);
      }
      const uint64_t n = std::min({slice.pieces[i].length - offset, wanted - chunk.left, end - at});
      chunk.left += n;
      offset += n;
      at += n;
      if (chunk.left == wanted) finish();
    }
  }
  finish();
  cut.ends.resize(threads, static_cast<uint32_t>(cut.chunks.size()));
  cut.ends.back() = static_cast<uint32_t>(cut.chunks.size());
  return cut;
}

Status admit(const RemoteSide& remote, const Slice& slice, std::vector<uint64_t>* unknown) {
  const bool writing = slice.opcode == Opcode::kWrite;
  RemoteRegionPtr region;
  for (const Piece& piece : slice.pieces) {
    const uint64_t end = piece.remote + piece.length;
    uint64_t at = piece.remote;
    while (at < end) {
      if (!region || !region->covers(at)) {
        region = remote.map.find(at);
        if (!region) {
          unknown->push_back(at);
          if (unknown->size() == kMaxLookups) return {};
          break;
        }
        TW_RETURN_IF_ERROR(check(remote, *region, writing, at));
      }
      at = region->address + region->length;
    }
  }
  return {};
}

CopyResult copy_chunk(RemoteSide& remote, const Slice& slice, Chunk& chunk, const std::atomic<bool>& stop) {
  return Mover(remote, slice, chunk, stop).run();
}

}  // namespace tidewire::transport::shm
