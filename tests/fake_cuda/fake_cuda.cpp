// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for the driver's libcuda.so.1, as strict as the real one where a program can go wrong.
#include "fake_cuda.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "fake_memory.h"
#include "fake_stream.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace fake_cuda {
namespace {

constexpr int kOk = 0, kInvalid = 1, kNoMemory = 2, kNotInitialized = 3, kNoSuchDevice = 101, kNoContext = 201, kBadHandle = 400,
              kNotReady = 600, kNotPermitted = 800, kNotSupported = 801;

struct Context {
  int device;
};

struct Driver {
  std::mutex mutex;
  std::vector<int> physical;  // of each visible device
  std::vector<std::unique_ptr<Context>> primaries;
  std::vector<std::unique_ptr<Stream>> defaults;
  pid_t owner = 0;
  std::map<std::string, std::pair<int, int>> failures;  // error, calls until then
  std::atomic<bool> any_failure{false};
  std::map<int, int> attributes;
  std::set<uint64_t> imported;
  std::atomic<uint64_t> copies{0};
};
Driver& driver() {
  static Driver* const only = new Driver;
  return *only;
}

thread_local std::vector<Context*> contexts;

int number_of(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

void start() {
  Driver& d = driver();
  std::lock_guard lock(d.mutex);
  if (d.owner != 0) return;
  d.owner = getpid();
  const int devices = number_of("FAKE_CUDA_DEVICES", 2);
  if (const char* filter = std::getenv("CUDA_VISIBLE_DEVICES")) {
    std::stringstream list(filter);
    for (std::string part; std::getline(list, part, ',');) {
      const int device = std::atoi(part.c_str());
      if (device < 0 || device >= devices) break;
      d.physical.push_back(device);
    }
  } else {
    for (int i = 0; i < devices; ++i) d.physical.push_back(i);
  }
  for (size_t i = 0; i < d.physical.size(); ++i) {
    d.primaries.push_back(std::make_unique<Context>(Context{static_cast<int>(i)}));
    d.defaults.push_back(std::make_unique<Stream>(static_cast<int>(i)));
  }
  if (const char* rate = std::getenv("FAKE_CUDA_RATE")) Stream::set_rate(std::strtoull(rate, nullptr, 10));
}

// What every call checks: errors on demand, initialised in this very process, not within a host function.
int enter(const char* function, bool needs_context) {
  Driver& d = driver();
  if (d.any_failure.load()) {
    std::lock_guard lock(d.mutex);
    auto failure = d.failures.find(function);
    if (failure != d.failures.end() && failure->second.second-- <= 0) {
      failure->second.second = 0;
      return failure->second.first;
    }
  }
  if (d.owner != getpid()) return kNotInitialized;
  if (in_host_function()) return kNotPermitted;
  if (needs_context && (contexts.empty() || contexts.back() == nullptr)) return kNoContext;
  return kOk;
}

#define ENTER(needs_context) \
  if (const int refused_ = enter(__func__, needs_context)) return refused_

Stream* stream_or_default(void* stream) {
  return stream != nullptr ? static_cast<Stream*>(stream) : driver().defaults[static_cast<size_t>(contexts.back()->device)].get();
}

// A copy whose device side is `device_side`; `host` when the other side is host memory.
int start_copy(uint64_t to, uint64_t from, size_t bytes, void* stream_handle) {
  Stream* stream = stream_or_default(stream_handle);
  if (stream->device() != contexts.back()->device) return kBadHandle;
  Memory& memory = Memory::get();
  char* target = memory.bytes(to, bytes);
  const char* source = memory.bytes(from, bytes);
  if (target == nullptr || source == nullptr) return kInvalid;
  driver().copies.fetch_add(1);
  stream->push([=] { Stream::timed_copy(target, source, bytes); });
  return kOk;
}

bool is_device(uint64_t address) {
  const auto block = Memory::get().find(address);
  return block && block->kind != Kind::kPinned;
}

struct Handle {  // in the 64 bytes of CUipcMemHandle
  char magic[8];
  pid_t process;
  int file;
  uint64_t size;
  int physical;
};

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;

EXPORT int cuInit(unsigned) {
  start();
  if (driver().owner != getpid()) return kNotInitialized;
  return driver().physical.empty() ? 100 : kOk;
}
EXPORT int cuDriverGetVersion(int* version) {
  *version = 12040;
  return kOk;
}
EXPORT int cuGetErrorName(int error, const char** text) {
  static const std::map<int, const char*> names{
      {0, "CUDA_SUCCESS"}, {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {3, "CUDA_ERROR_NOT_INITIALIZED"},
      {101, "CUDA_ERROR_INVALID_DEVICE"}, {201, "CUDA_ERROR_INVALID_CONTEXT"}, {214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
      {400, "CUDA_ERROR_INVALID_HANDLE"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
      {719, "CUDA_ERROR_LAUNCH_FAILED"}, {800, "CUDA_ERROR_NOT_PERMITTED"}, {801, "CUDA_ERROR_NOT_SUPPORTED"}};
  const auto found = names.find(error);
  *text = found == names.end() ? nullptr : found->second;
  return found == names.end() ? kInvalid : kOk;
}
EXPORT int cuGetErrorString(int error, const char** text) {
  return cuGetErrorName(error, text);
}
EXPORT int cuDeviceGetCount(int* count) {
  ENTER(false);
  *count = static_cast<int>(driver().physical.size());
  return kOk;
}
EXPORT int cuDeviceGet(int* device, int ordinal) {
  ENTER(false);
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= driver().physical.size()) return kNoSuchDevice;
  *device = ordinal;
  return kOk;
}
EXPORT int cuDeviceGetName(char* name, int size, int device) {
  std::snprintf(name, static_cast<size_t>(size), "Fake GPU %d", driver().physical[static_cast<size_t>(device)]);
  return kOk;
}
EXPORT int cuDeviceGetUuid(unsigned char* uuid, int device) {
  std::memset(uuid, 0xFA, 16);
  uuid[15] = static_cast<unsigned char>(driver().physical[static_cast<size_t>(device)]);
  return kOk;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER(false);
  std::lock_guard lock(driver().mutex);
  const auto set = driver().attributes.find(attribute);
  static const std::map<int, int> defaults{{34, 0}, {50, 0}, {116, 1}, {117, 1}, {118, 200}, {124, 1}};
  const auto usual = defaults.find(attribute);
  *value = set != driver().attributes.end() ? set->second : usual != defaults.end() ? usual->second : 0x10 + device;
  return kOk;
}
EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
  ENTER(false);
  if (device < 0 || static_cast<size_t>(device) >= driver().primaries.size()) return kNoSuchDevice;
  *context = driver().primaries[static_cast<size_t>(device)].get();
  return kOk;
}
EXPORT int cuCtxPushCurrent_v2(void* context) {
  ENTER(false);
  contexts.push_back(static_cast<Context*>(context));
  return kOk;
}
EXPORT int cuCtxPopCurrent_v2(void** context) {
  if (contexts.empty()) return kNoContext;
  *context = contexts.back();
  contexts.pop_back();
  return kOk;
}
EXPORT int cuCtxSetCurrent(void* context) {
  ENTER(false);
  if (!contexts.empty()) contexts.pop_back();
  contexts.push_back(static_cast<Context*>(context));
  return kOk;
}
EXPORT int cuCtxGetCurrent(void** context) {
  *context = contexts.empty() ? nullptr : contexts.back();
  return kOk;
}

EXPORT int cuPointerGetAttribute(void* data, int attribute, unsigned long long pointer) {
  ENTER(false);
  const auto block = Memory::get().find(pointer);
  if (!block) return kInvalid;
  const auto give = [&](auto value) {
    std::memcpy(data, &value, sizeof value);
    return kOk;
  };
  switch (attribute) {
    case 2:
      return give(block->kind == Kind::kPinned ? 1u : 2u);
    case 8:
      return give(block->kind == Kind::kManaged ? 1u : 0u);
    case 9:
      return give(block->device);
    case 10:
      return give(block->kind == Kind::kDevice && !block->imported ? 1u : 0u);
    case 11:
      return give(static_cast<unsigned long long>(block->base));
    case 12:
      return give(static_cast<size_t>(block->size));
    case 17:
      return give(block->kind == Kind::kPooled ? reinterpret_cast<void*>(0x1) : nullptr);
    default:
      return kInvalid;
  }
}
EXPORT int cuPointerSetAttribute(const void*, int attribute, unsigned long long pointer) {
  ENTER(false);
  const auto block = Memory::get().find(pointer);
  if (!block || attribute != 6) return kInvalid;
  return block->kind == Kind::kDevice ? kOk : kNotSupported;  // no SYNC_MEMOPS on virtual or pooled memory
}
EXPORT int cuMemGetAddressRange_v2(unsigned long long* base, size_t* size, unsigned long long pointer) {
  ENTER(false);
  const auto block = Memory::get().find(pointer);
  if (!block) return kInvalid;
  if (base != nullptr) *base = block->base;
  if (size != nullptr) *size = block->size;
  return kOk;
}
EXPORT int cuMemRetainAllocationHandle(unsigned long long* handle, void* address) {
  ENTER(false);
  const auto block = Memory::get().find(reinterpret_cast<uint64_t>(address));
  if (!block || block->kind != Kind::kVirtual) return kInvalid;
  *handle = block->id;
  return kOk;
}
EXPORT int cuMemRelease(unsigned long long) {
  return kOk;
}
EXPORT int cuMemGetHandleForAddressRange(void* handle, unsigned long long pointer, size_t size, int type, unsigned long long) {
  ENTER(true);
  const auto block = Memory::get().find(pointer);
  if (!block || type != 1 || pointer % 4096 != 0 || size % 4096 != 0 || size > block->size - block->offset(pointer)) return kInvalid;
  if (block->kind == Kind::kManaged || block->kind == Kind::kPinned) return kNotSupported;
  const int file = fcntl(block->file, F_DUPFD_CLOEXEC, 0);
  if (file < 0) return kNoMemory;
  std::memcpy(handle, &file, sizeof file);
  return kOk;
}
EXPORT int cuFlushGPUDirectRDMAWrites(int, int) {
  ENTER(true);
  return kOk;
}

EXPORT int cuMemAlloc_v2(unsigned long long* pointer, size_t bytes) {
  ENTER(true);
  *pointer = bytes == 0 ? 0 : Memory::get().allocate(bytes, contexts.back()->device, Kind::kDevice);
  return bytes == 0 ? kInvalid : *pointer == 0 ? kNoMemory : kOk;
}
EXPORT int cuMemFree_v2(unsigned long long pointer) {
  ENTER(true);
  return Memory::get().free(pointer) ? kOk : kInvalid;
}
EXPORT int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  ENTER(true);
  *memory = reinterpret_cast<void*>(Memory::get().allocate(bytes, contexts.back()->device, Kind::kPinned));
  return *memory == nullptr ? kNoMemory : kOk;
}
EXPORT int cuMemFreeHost(void* memory) {
  ENTER(true);
  return Memory::get().free(reinterpret_cast<uint64_t>(memory)) ? kOk : kInvalid;
}

EXPORT int cuStreamCreate(void** stream, unsigned) {
  ENTER(true);
  *stream = new Stream(contexts.back()->device);
  return kOk;
}
EXPORT int cuStreamDestroy_v2(void* stream) {
  ENTER(true);
  delete static_cast<Stream*>(stream);
  return kOk;
}
EXPORT int cuStreamSynchronize(void* stream) {
  ENTER(true);
  stream_or_default(stream)->drain();
  return kOk;
}
EXPORT int cuStreamQuery(void* stream) {
  ENTER(true);
  return stream_or_default(stream)->idle() ? kOk : kNotReady;
}
EXPORT int cuStreamIsCapturing(void* stream, int* status) {
  ENTER(true);
  *status = stream_or_default(stream)->capturing ? 1 : 0;
  return kOk;
}
EXPORT int cuStreamBeginCapture_v2(void* stream, int) {
  ENTER(true);
  stream_or_default(stream)->capturing = true;
  return kOk;
}
EXPORT int cuStreamWaitEvent(void* stream, void* handle, unsigned) {
  ENTER(true);
  auto* event = static_cast<fake_cuda::Event*>(handle);
  uint64_t number = 0;
  {
    std::lock_guard lock(event->mutex);
    number = event->recorded;
  }
  stream_or_default(stream)->push([event, number] { event->wait(number); });
  return kOk;
}
EXPORT int cuLaunchHostFunc(void* stream, void (*function)(void*), void* argument) {
  ENTER(true);
  stream_or_default(stream)->push([function, argument] {
    in_host_function() = true;
    function(argument);
    in_host_function() = false;
  });
  return kOk;
}
EXPORT int cuEventCreate(void** event, unsigned) {
  ENTER(true);
  auto* made = new fake_cuda::Event;
  made->device = contexts.back()->device;
  *event = made;
  return kOk;
}
EXPORT int cuEventDestroy_v2(void* event) {
  ENTER(true);
  delete static_cast<fake_cuda::Event*>(event);
  return kOk;
}
EXPORT int cuEventRecord(void* handle, void* stream_handle) {
  ENTER(true);
  auto* event = static_cast<fake_cuda::Event*>(handle);
  Stream* stream = stream_or_default(stream_handle);
  if (event->device != stream->device()) return kBadHandle;
  uint64_t number = 0;
  {
    std::lock_guard lock(event->mutex);
    number = ++event->recorded;
  }
  stream->push([event, number] { event->finish(number); });
  return kOk;
}
EXPORT int cuEventQuery(void* handle) {
  ENTER(false);
  auto* event = static_cast<fake_cuda::Event*>(handle);
  std::lock_guard lock(event->mutex);
  return event->done >= event->recorded ? kOk : kNotReady;
}
EXPORT int cuEventSynchronize(void* handle) {
  ENTER(false);
  auto* event = static_cast<fake_cuda::Event*>(handle);
  uint64_t number = 0;
  {
    std::lock_guard lock(event->mutex);
    number = event->recorded;
  }
  event->wait(number);
  return kOk;
}

EXPORT int cuMemcpyDtoHAsync_v2(void* host, unsigned long long source, size_t bytes, void* stream) {
  ENTER(true);
  return is_device(source) ? start_copy(reinterpret_cast<uint64_t>(host), source, bytes, stream) : kInvalid;
}
EXPORT int cuMemcpyHtoDAsync_v2(unsigned long long destination, const void* host, size_t bytes, void* stream) {
  ENTER(true);
  return is_device(destination) ? start_copy(destination, reinterpret_cast<uint64_t>(host), bytes, stream) : kInvalid;
}
EXPORT int cuMemcpyAsync(unsigned long long destination, unsigned long long source, size_t bytes, void* stream) {
  ENTER(true);
  return start_copy(destination, source, bytes, stream);
}
EXPORT int cuMemcpyDtoH_v2(void* host, unsigned long long source, size_t bytes) {
  const int started = cuMemcpyDtoHAsync_v2(host, source, bytes, nullptr);
  return started != kOk ? started : cuStreamSynchronize(nullptr);
}
EXPORT int cuMemcpyHtoD_v2(unsigned long long destination, const void* host, size_t bytes) {
  const int started = cuMemcpyHtoDAsync_v2(destination, host, bytes, nullptr);
  return started != kOk ? started : cuStreamSynchronize(nullptr);
}
EXPORT int cuMemsetD8Async(unsigned long long destination, unsigned char value, size_t bytes, void* stream) {
  ENTER(true);
  char* target = is_device(destination) ? Memory::get().bytes(destination, bytes) : nullptr;
  if (target == nullptr) return kInvalid;
  stream_or_default(stream)->push([=] { std::memset(target, value, bytes); });
  return kOk;
}

EXPORT int cuIpcGetMemHandle(char* handle, unsigned long long pointer) {
  ENTER(true);
  const auto block = Memory::get().find(pointer);
  if (!block || block->kind != Kind::kDevice || block->imported) return kInvalid;
  Handle inside{{'f', 'a', 'k', 'e'}, getpid(), block->file, block->size, driver().physical[static_cast<size_t>(block->device)]};
  std::memset(handle, 0, 64);
  std::memcpy(handle, &inside, sizeof inside);
  return kOk;
}
struct IpcBytes {
  char bytes[64];
};
EXPORT int cuIpcOpenMemHandle_v2(unsigned long long* pointer, IpcBytes bytes, unsigned) {
  ENTER(true);
  Handle handle;
  std::memcpy(&handle, bytes.bytes, sizeof handle);
  if (std::strncmp(handle.magic, "fake", 4) != 0) return kInvalid;
  if (handle.process == getpid()) return kNoContext;  // as the real one: not in the process that exported it
  if (handle.physical != driver().physical[static_cast<size_t>(contexts.back()->device)]) return kInvalid;
  const std::string path = "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return kInvalid;
  *pointer = Memory::get().import(file, handle.size, contexts.back()->device);
  return *pointer == 0 ? kNoMemory : kOk;
}
EXPORT int cuIpcCloseMemHandle(unsigned long long pointer) {
  ENTER(true);
  const auto block = Memory::get().find(pointer);
  return block && block->imported && Memory::get().free(pointer) ? kOk : kInvalid;
}

EXPORT unsigned long long fake_cuda_allocate(int device, uint64_t bytes, const char* kind) {
  const std::map<std::string, Kind> kinds{
      {"device", Kind::kDevice}, {"virtual", Kind::kVirtual}, {"pooled", Kind::kPooled}, {"managed", Kind::kManaged}, {"pinned", Kind::kPinned}};
  return Memory::get().allocate(bytes, device, kinds.at(kind));
}
EXPORT void fake_cuda_free(unsigned long long address) {
  Memory::get().free(address);
}
EXPORT void fake_cuda_set_rate(uint64_t bytes_per_second) {
  Stream::set_rate(bytes_per_second);
}
EXPORT void fake_cuda_fail(const char* function, int error, int skip) {
  std::lock_guard lock(driver().mutex);
  if (error == 0) {
    driver().failures.erase(function);
  } else {
    driver().failures[function] = {error, skip};
  }
  driver().any_failure = !driver().failures.empty();
}
EXPORT void fake_cuda_set_attribute(int attribute, int value) {
  std::lock_guard lock(driver().mutex);
  driver().attributes[attribute] = value;
}
EXPORT uint64_t fake_cuda_copies() {
  return driver().copies.load();
}
