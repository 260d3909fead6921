// SPDX-License-Identifier: Apache-2.0
//
// CudaDriver: the functions of NVIDIA's driver interface that Tidewire calls, from a libcuda that the process has
// loaded already (whoever has a device pointer has one). Nothing is linked, nothing is loaded: without libcuda get() is
// null and no CUDA path exists. The types and numbers are those of the public interface, which keeps them stable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace tidewire::cuda {

using Error = int;  // CUresult; 0 = success
using Device = int;
using DevicePointer = unsigned long long;
using Context = struct ContextTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;

constexpr Error kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kDeinitialized = 4,
                kNoDevice = 100, kInvalidDevice = 101, kInvalidContext = 201, kEccUncorrectable = 214,
                kIllegalAddress = 700, kContextIsDestroyed = 709, kLaunchFailed = 719, kNotPermitted = 800,
                kNotSupported = 801;

// Pointer attributes.
constexpr int kPointerMemoryType = 2, kPointerSyncMemops = 6, kPointerIsManaged = 8, kPointerDeviceOrdinal = 9,
              kPointerIpcCapable = 10, kPointerRangeStart = 11, kPointerRangeSize = 12, kPointerMempool = 17;
constexpr unsigned kMemoryTypeHost = 1, kMemoryTypeDevice = 2;
// Device attributes.
constexpr int kDeviceGpuDirect = 116, kDeviceWritesOrdering = 118, kDeviceDmaBuf = 124;
// Flags.
constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2, kHostAllocPortable = 1;
constexpr int kHandleDmaBuf = 1;
constexpr int kFlushCurrentContext = 0, kFlushToAllDevices = 200;
constexpr int kOrderedForAllDevices = 200;

struct CudaDriver {
  // Null when the process has no libcuda, or one that lacks a required function (said once in the log). Cheap: a
  // library that was found stays; a search happens again only when some library was loaded since. Any thread.
  static const CudaDriver* get();

  Error (*init)(unsigned flags);
  Error (*error_name)(Error error, const char** text);
  Error (*device_count)(int* count);
  Error (*device_get)(Device* device, int ordinal);
  Error (*device_attribute)(int* value, int attribute, Device device);
  Error (*primary_retain)(Context* context, Device device);
  Error (*context_push)(Context context);
  Error (*context_pop)(Context* context);
  Error (*pointer_attribute)(void* data, int attribute, DevicePointer pointer);
  Error (*stream_create)(Stream* stream, unsigned flags);
  Error (*stream_wait_event)(Stream stream, Event event, unsigned flags);
  Error (*stream_synchronize)(Stream stream);
  Error (*event_create)(Event* event, unsigned flags);
  Error (*event_record)(Event event, Stream stream);
  Error (*event_synchronize)(Event event);
  Error (*copy_to_host)(void* host, DevicePointer source, size_t bytes, Stream stream);
  Error (*copy_from_host)(DevicePointer destination, const void* host, size_t bytes, Stream stream);
  Error (*copy)(DevicePointer destination, DevicePointer source, size_t bytes, Stream stream);
  Error (*host_allocate)(void** memory, size_t bytes, unsigned flags);

  // Null in drivers that are too old; whoever needs one says so.
  Error (*retain_allocation)(unsigned long long* handle, void* address);
  Error (*release_allocation)(unsigned long long handle);
  Error (*handle_for_range)(void* handle, DevicePointer pointer, size_t size, int type, unsigned long long flags);
  Error (*set_pointer_attribute)(const void* value, int attribute, DevicePointer pointer);
  Error (*flush_remote_writes)(int target, int scope);
  Error (*launch_host_function)(Stream stream, void (*function)(void*), void* argument);
  Error (*stream_is_capturing)(Stream stream, int* status);

  // "CUDA_ERROR_INVALID_VALUE (1)".
  std::string name_of(Error error) const;
  // The Status of a failed call: "copying 4096 bytes from cuda:0 at 0x7f…: CUDA_ERROR_… (n): remedy".
  Status status(Error error, const std::string& what) const;
};

// Makes a device's primary context the thread's current one, and the caller's current again at the end. The primary
// context is what the CUDA runtime and PyTorch use. It is retained once for the life of the process.
class ContextScope {
 public:
  ContextScope(const CudaDriver& driver, int device);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  const Status& status() const { return status_; }

 private:
  const CudaDriver& driver_;
  bool pushed_ = false;
  Status status_;
};

// How many devices this process sees; kUnsupported without a driver. CUDA_VISIBLE_DEVICES decides it once for a
// process.
Result<int> visible_devices();
// "cuda:5 is not one of the 2 devices that this process sees (CUDA_VISIBLE_DEVICES=0,1)".
Status no_such_device(int device, int visible);

}  // namespace tidewire::cuda
