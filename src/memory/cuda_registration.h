// SPDX-License-Identifier: Apache-2.0
//
// What a fabric needs to register CUDA memory so that a NIC reads and writes it: a dma-buf file for a range, or what
// the peer-memory way asks for; or a refusal that names the allocator's setting. For src/transport/fabric and verbs.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "base/unique_fd.h"

namespace tidewire::cuda {

struct FabricMemory {
  int device = 0;            // for FI_HMEM_CUDA
  UniqueFd dmabuf;           // invalid: register by address (peer memory)
  uint64_t dmabuf_base = 0;  // the address at offset 0 of the file; pages of 4 KiB
  uint64_t dmabuf_length = 0;
  bool needs_flush = false;  // remote writes are ordered only after flush_remote_writes()
};

// For a range inside one registration. `sync_memops`: the provider insists on the attribute SYNC_MEMOPS (EFA does),
// which is set here. kUnsupported names device, pointer, kind of memory and remedy. Any thread.
Result<FabricMemory> fabric_memory(uint64_t address, uint64_t length, bool sync_memops);

// Makes what NICs wrote to the device visible to it; for needs_flush, before a write is reported.
Status flush_remote_writes(int device);

}  // namespace tidewire::cuda
