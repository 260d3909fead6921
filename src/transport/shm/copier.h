// SPDX-License-Identifier: Apache-2.0
//
// Copying a run of a slice's pieces: mapped pool memory by plain copies, other host memory through the kernel
// (process_vm_readv and writev). Each copy holds a reference in the target's guard page and a pin of the local region
// for at most one chunk.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "transport/shm/guard.h"
#include "transport/shm/remote_map.h"
#include "transport/transport.h"

namespace tidewire::transport::shm {

// A run of bytes of a slice; advanced while it is copied, so that it can be resumed.
struct Chunk {
  uint32_t piece = 0;
  uint64_t offset = 0;   // in the piece
  uint64_t left = 0;     // bytes from there on
  uint32_t lookups = 0;  // how often it had to ask for regions
};

// A slice for several threads: each has a stretch of about the same number of bytes, whose chunks get smaller towards
// its end, so that all threads end together.
struct Stretches {
  std::vector<Chunk> chunks;
  std::vector<uint32_t> ends;  // of each stretch, in chunks
};
Stretches cut(const Slice& slice, size_t threads);

// The target, as far as copies need to know it.
struct RemoteSide {
  std::string name;  // for messages
  pid_t pid = 0;
  Status foreign;  // why process_vm does not work; OK when it does
  std::unique_ptr<StatePage> state;
  std::unique_ptr<ReferencePage> references;
  RemoteMap map;
};

struct CopyResult {
  enum Kind { kDone, kFailed, kMissing, kStopped } kind;
  Status status;                  // kFailed
  std::vector<uint64_t> missing;  // kMissing: remote addresses whose regions must be asked for
};

// Looks at all ranges of a slice before any byte of it moves, so that a refused one writes nothing: kPermissionDenied
// or kUnsupported where a known region forbids it; `unknown` receives the first address of each piece (at most one
// question's worth) that no known region covers.
Status admit(const RemoteSide& remote, const Slice& slice, std::vector<uint64_t>* unknown);

// Copies until the chunk is done. `stop` is looked at between steps of at most kStepBytes.
constexpr uint64_t kStepBytes = uint64_t{4} << 20;
CopyResult copy_chunk(RemoteSide& remote, const Slice& slice, Chunk& chunk, const std::atomic<bool>& stop);

}  // namespace tidewire::transport::shm
