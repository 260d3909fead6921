// SPDX-License-Identifier: Apache-2.0
#include "memory/staging_pool.h"

#include <mutex>
#include <new>
#include <vector>

#include "base/log.h"
#include "memory/memory_kind.h"

namespace tidewire {
namespace {

struct Pool {
  std::mutex mutex;
  std::vector<uint8_t*> free;
  size_t made = 0;
};
Pool& pool() {
  static Pool* const only = new Pool;
  return *only;
}

uint8_t* make_chunk() {
  for (const MemoryKind* kind : memory_kinds()) {
    if (void* pinned = kind->allocate_staging(kStagingBytes)) return static_cast<uint8_t*>(pinned);
  }
  log::debug("staging", "a staging chunk of {} bytes is not pinned", kStagingBytes);
  return static_cast<uint8_t*>(::operator new (kStagingBytes, std::align_val_t{4096}));
}

}  // namespace

StagingChunk StagingChunk::take() {
  StagingChunk chunk;
  Pool& all = pool();
  {
    std::lock_guard lock(all.mutex);
    if (!all.free.empty()) {
      chunk.bytes_ = all.free.back();
      all.free.pop_back();
      return chunk;
    }
    ++all.made;
    all.free.reserve(all.made);
  }
  chunk.bytes_ = make_chunk();
  return chunk;
}

StagingChunk::~StagingChunk() {
  if (bytes_ == nullptr) return;
  Pool& all = pool();
  std::lock_guard lock(all.mutex);
  all.free.push_back(bytes_);
}

size_t staging_chunks() {
  Pool& all = pool();
  std::lock_guard lock(all.mutex);
  return all.made;
}

}  // namespace tidewire
