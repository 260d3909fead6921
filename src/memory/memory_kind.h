// SPDX-License-Identifier: Apache-2.0
//
// MemoryKind: one kind of memory (host, test device, later CUDA and Neuron) behind the three things the engine needs of
// it: whether a pointer belongs to it, whether the processor may touch the bytes, and copies to and from host memory. A
// path that moves bytes asks the kind instead of assuming that the processor can read them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tidewire {

class MemoryKind {
 public:
  virtual ~MemoryKind() = default;
  virtual std::string_view name() const = 0;  // "cpu", "testdev"
  // Whether loads, stores and system calls on these addresses work.
  virtual bool host_accessible() const = 0;
  // The location ("cpu:0", "testdev:0") of [address, address+length) when it belongs to this kind. Never touches the
  // bytes.
  virtual std::optional<std::string> locate(uint64_t address, uint64_t length) const = 0;
  // Synchronous copies; any thread.
  virtual Status copy_to_host(void* host, uint64_t address, uint64_t length) const = 0;
  virtual Status copy_from_host(uint64_t address, const void* host, uint64_t length) const = 0;
};

// The kinds that this process knows, devices first, host last. Leaky process fact: kinds are never destroyed.
const std::vector<const MemoryKind*>& memory_kinds();
const MemoryKind& host_memory();
// Finds the kind of a range. `location` "*" or "" = find out; "cpu:N", "testdev:N" must agree with what is found. CUDA
// pointers are recognised through a libcuda that the process has already loaded and refused by name (kUnsupported)
// without being dereferenced.
struct LocatedMemory {
  const MemoryKind* kind;
  std::string location;
};
Result<LocatedMemory> locate_memory(uint64_t address, uint64_t length, const std::string& location);

// Whether the processor may touch the range, as far as that can be told without a look at its location: it belongs to
// no device that this process knows. Cheap enough for each piece of a call.
bool processor_may_touch(uint64_t address, uint64_t length);

}  // namespace tidewire
