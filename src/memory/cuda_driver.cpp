// SPDX-License-Identifier: Apache-2.0
#include "memory/cuda_driver.h"

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>

#include "base/log.h"

namespace tidewire::cuda {
namespace {

constexpr int kMaxDevices = 64;

// The number of libraries that the process has loaded so far.
unsigned long long libraries_loaded() {
  unsigned long long loaded = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* result) {
        *static_cast<unsigned long long*>(result) = info->dlpi_adds;
        return 1;  // the first says it
      },
      &loaded);
  return loaded;
}

template <typename Function>
bool bind(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// The first required function that the library lacks; null when it has all.
const char* bind_all(void* library, CudaDriver& d) {
  const char* missing = nullptr;
  const auto required = [&](const char* name, auto& function) {
    if (!bind(library, name, function) && missing == nullptr) missing = name;
  };
  required("cuInit", d.init);
  required("cuGetErrorName", d.error_name);
  required("cuDeviceGetCount", d.device_count);
  required("cuDeviceGet", d.device_get);
  required("cuDeviceGetAttribute", d.device_attribute);
  required("cuDevicePrimaryCtxRetain", d.primary_retain);
  required("cuCtxPushCurrent_v2", d.context_push);
  required("cuCtxPopCurrent_v2", d.context_pop);
  required("cuPointerGetAttribute", d.pointer_attribute);
  required("cuStreamCreate", d.stream_create);
  required("cuStreamWaitEvent", d.stream_wait_event);
  required("cuStreamSynchronize", d.stream_synchronize);
  required("cuEventCreate", d.event_create);
  required("cuEventRecord", d.event_record);
  required("cuEventSynchronize", d.event_synchronize);
  required("cuMemcpyDtoHAsync_v2", d.copy_to_host);
  required("cuMemcpyHtoDAsync_v2", d.copy_from_host);
  required("cuMemcpyAsync", d.copy);
  required("cuMemHostAlloc", d.host_allocate);
  bind(library, "cuMemRetainAllocationHandle", d.retain_allocation);
  bind(library, "cuMemRelease", d.release_allocation);
  bind(library, "cuMemGetHandleForAddressRange", d.handle_for_range);
  bind(library, "cuPointerSetAttribute", d.set_pointer_attribute);
  bind(library, "cuFlushGPUDirectRDMAWrites", d.flush_remote_writes);
  bind(library, "cuLaunchHostFunc", d.launch_host_function);
  bind(library, "cuStreamIsCapturing", d.stream_is_capturing);
  return missing;
}

const CudaDriver* search() {
  static std::mutex mutex;
  static CudaDriver* found = nullptr;
  std::lock_guard lock(mutex);
  if (found != nullptr) return found;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  static CudaDriver driver{};
  if (const char* missing = bind_all(library, driver)) {
    log::warn("memory", "libcuda.so.1 of this process has no {}: its driver is too old, device memory is not supported",
              missing);
    return nullptr;
  }
  found = &driver;
  return found;
}

struct Primaries {
  std::mutex mutex;
  std::array<std::atomic<Context>, kMaxDevices> contexts{};
};
Primaries& primaries() {
  static Primaries* const all = new Primaries;
  return *all;
}

Status primary_context(const CudaDriver& driver, int device, Context* context) {
  Primaries& all = primaries();
  TW_ASSIGN_OR_RETURN(const int visible, visible_devices());
  if (device < 0 || device >= visible || device >= kMaxDevices) return no_such_device(device, visible);
  *context = all.contexts[device].load(std::memory_order_acquire);
  if (*context != nullptr) return {};
  std::lock_guard lock(all.mutex);
  Device handle = 0;
  Error error = driver.device_get(&handle, device);
  if (error == kSuccess) error = driver.primary_retain(context, handle);
  if (error != kSuccess) return driver.status(error, fmt::format("the primary context of cuda:{}", device));
  all.contexts[device].store(*context, std::memory_order_release);
  return {};
}

const char* remedy(Error error) {
  switch (error) {
    case kInvalidValue:
    case kIllegalAddress:
      return "the memory is not (or no longer) allocated there: unregister memory before it is freed";
    case kOutOfMemory:
      return "the device or the host has no memory left for it";
    case kNotInitialized:
    case kDeinitialized:
      return "the driver can't be used in this process; a child of fork must not use CUDA that its parent initialised "
             "(start it with spawn)";
    case kNoDevice:
    case kInvalidDevice:
      return "no such device is visible; see CUDA_VISIBLE_DEVICES and the permissions of /dev/nvidia*";
    case kInvalidContext:
    case kContextIsDestroyed:
      return "the context of the device is gone (cuDevicePrimaryCtxReset, cudaDeviceReset)";
    case kEccUncorrectable:
    case kLaunchFailed:
      return "the device is lost to this process; restart it, and see dmesg for Xid errors";
    case kNotPermitted:
      return "not permitted here";
    case kNotSupported:
      return "the driver or device does not support it";
    default:
      return nullptr;
  }
}

Code code_of(Error error) {
  switch (error) {
    case kInvalidValue:
    case kIllegalAddress:
      return Code::kNotRegistered;
    case kOutOfMemory:
      return Code::kNoMemory;
    case kNotPermitted:
      return Code::kPermissionDenied;
    case kNotInitialized:
    case kNoDevice:
    case kInvalidDevice:
    case kNotSupported:
      return Code::kUnsupported;
    default:
      return Code::kInternal;
  }
}

}  // namespace

const CudaDriver* CudaDriver::get() {
  static std::atomic<const CudaDriver*> known{nullptr};
  if (const CudaDriver* driver = known.load(std::memory_order_acquire)) return driver;
  // Asking dlopen searches the library path each time, 15 µs: done again only when some library came.
  static std::atomic<unsigned long long> searched_at{0};
  const unsigned long long loaded = libraries_loaded();
  if (searched_at.load(std::memory_order_relaxed) == loaded) return nullptr;
  const CudaDriver* driver = search();
  if (driver == nullptr) {
    searched_at.store(loaded, std::memory_order_relaxed);
  } else {
    known.store(driver, std::memory_order_release);
  }
  return driver;
}

std::string CudaDriver::name_of(Error error) const {
  const char* text = nullptr;
  if (error_name(error, &text) != kSuccess || text == nullptr) text = "CUDA error";
  return fmt::format("{} ({})", text, error);
}

Status CudaDriver::status(Error error, const std::string& what) const {
  if (error == kSuccess) return {};
  const char* advice = remedy(error);
  return Status::error(code_of(error), "{}: {}{}{}", what, name_of(error), advice == nullptr ? "" : ": ",
                       advice == nullptr ? "" : advice);
}

ContextScope::ContextScope(const CudaDriver& driver, int device) : driver_(driver) {
  Context context = nullptr;
  status_ = primary_context(driver, device, &context);
  if (!status_.ok()) return;
  const Error error = driver.context_push(context);
  pushed_ = error == kSuccess;
  status_ = driver.status(error, fmt::format("entering the context of cuda:{}", device));
}

ContextScope::~ContextScope() {
  Context gone = nullptr;
  if (pushed_) driver_.context_pop(&gone);
}

Result<int> visible_devices() {
  static std::atomic<int> known{-1};
  if (const int count = known.load(std::memory_order_relaxed); count > 0) return count;
  const CudaDriver* driver = CudaDriver::get();
  if (driver == nullptr) {
    return Status(Code::kUnsupported, "this process has loaded no libcuda.so.1, so that it can have no CUDA memory");
  }
  int count = 0;
  Error error = driver->init(0);
  if (error == kSuccess) error = driver->device_count(&count);
  if (error != kSuccess) return driver->status(error, "starting the CUDA driver");
  known.store(count, std::memory_order_relaxed);
  return count;
}

Status no_such_device(int device, int visible) {
  const char* filter = std::getenv("CUDA_VISIBLE_DEVICES");
  return Status::error(Code::kInvalidArgument,
                       "cuda:{} is not one of the {} devices that this process sees (CUDA_VISIBLE_DEVICES {})", device,
                       visible, filter == nullptr ? std::string("is not set") : fmt::format("= '{:.64}'", filter));
}

}  // namespace tidewire::cuda
