// SPDX-License-Identifier: Apache-2.0
//
// CUDA device memory as a kind of memory ("cuda:N"), and what else is to be known of a CUDA pointer. Copies run on
// streams of Tidewire's own, one in each direction for each device, which never wait for the default stream: whoever
// wrote the memory with kernels of another stream orders that first (a synchronise, an event, or cuda_stream.h).
#pragma once

#include "memory/memory_kind.h"

namespace tidewire::cuda {

enum class PointerKind : uint8_t {
  kNone,     // not known to the driver: plain host memory, or memory of a device that is hidden from this process
  kPinned,   // host memory that the driver allocated or registered: the processor may touch it
  kManaged,  // migrates between host and device; treated as device memory
  kDevice,   // one allocation of cuMemAlloc (cudaMalloc): can be shared with other processes of the host
  kVirtual,  // mapped by the virtual memory functions (PyTorch's expandable segments)
  kPooled,   // of a memory pool (cudaMallocAsync)
};
const char* kind_name(PointerKind kind);  // "device", …

struct PointerFacts {
  PointerKind kind = PointerKind::kNone;
  int device = -1;    // -1 for kNone
  uint64_t base = 0;  // of the allocation; 0 where the driver doesn't tell
  uint64_t size = 0;
  bool on_device() const { return kind != PointerKind::kNone && kind != PointerKind::kPinned; }
};

// Asks the driver; never touches the bytes. kNone without a driver. An error when the driver can't answer (device lost,
// forked child): then nobody may assume host memory. About a microsecond: not for the path of each transfer, where the
// region remembers it. Any thread.
Result<PointerFacts> classify(uint64_t address);

// The kind "cuda". Any thread; the right context is entered for each call.
const MemoryKind& memory();

// Copies between device memory of `device` and other memory that its driver reaches (of another device, or of another
// process through IPC), and waits. `device` is the one whose stream does it.
Status copy_within(uint64_t destination, uint64_t source, uint64_t length, int device);

}  // namespace tidewire::cuda
