// SPDX-License-Identifier: Apache-2.0
//
// MemoryKind: one kind of memory (host, test device, CUDA, Neuron) behind the things the engine needs of it: whether a
// pointer belongs to it, whether the processor may touch the bytes, and copies to and from host memory, at once or
// started now and awaited later. A path that moves bytes asks the kind instead of assuming that the processor can read
// them.
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

  // The same, started: host memory and range stay valid and untouched until await() returned, also when a later start
  // fails. `device` is the number in the location. Kinds without such copies do it at once. CopyGroup keeps count.
  virtual Status start_to_host(void* host, uint64_t address, uint64_t length, int device) const {
    (void)device;
    return copy_to_host(host, address, length);
  }
  virtual Status start_from_host(uint64_t address, const void* host, uint64_t length, int device) const {
    (void)device;
    return copy_from_host(address, host, length);
  }
  // Marks what this thread has started on the device in that direction so far; await() waits for it and takes the mark
  // back. A null mark needs no waiting.
  virtual Status mark(int device, bool from_host, void** mark) const {
    (void)device, (void)from_host;
    *mark = nullptr;
    return {};
  }
  virtual Status await(int device, void* mark) const {
    (void)device, (void)mark;
    return {};
  }
  // Host memory from which copies of this kind are fastest (pinned); lives as long as the process. Null: any will do.
  virtual void* allocate_staging(uint64_t bytes) const {
    (void)bytes;
    return nullptr;
  }
  // Why the kind can't tell whether an address is its own (its device is lost); OK when it can. Then nobody may assume
  // that the processor can touch it.
  virtual Status trouble(uint64_t address) const {
    (void)address;
    return {};
  }
  // Whether this process can have such memory at all; kUnsupported says what is missing (the driver).
  virtual Status available() const { return {}; }
  // For the error of a range that was given as `location` but is no memory of this kind: "; why that may be".
  virtual std::string hint(const std::string& location) const {
    (void)location;
    return "; name its location or '*'";
  }
};

// The kinds that this process knows, devices first, host last. Leaky process fact: kinds are never destroyed.
const std::vector<const MemoryKind*>& memory_kinds();
const MemoryKind& host_memory();
// Finds the kind of a range. `location` "*" or "" = find out; "cpu:N", "cuda:N", "neuron:N", "testdev:N" must agree with what is found. Device
// pointers are recognised through drivers that the process has already loaded; nothing is dereferenced.
struct LocatedMemory {
  const MemoryKind* kind;
  std::string location;
  int device = 0;  // the number in `location`
};
Result<LocatedMemory> locate_memory(uint64_t address, uint64_t length, const std::string& location);

// Whether the processor may touch the range, as far as that can be told without a look at its location: it belongs to
// no device that this process knows. Cheap enough for each piece of a call.
bool processor_may_touch(uint64_t address, uint64_t length);

}  // namespace tidewire
