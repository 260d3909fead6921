// SPDX-License-Identifier: Apache-2.0
#include "memory/cuda_probe.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <atomic>

namespace tidewire {
namespace {

// From the CUDA driver interface, whose numbers are stable.
constexpr int kAttributeMemoryType = 2;
constexpr int kAttributeIsManaged = 8;
constexpr int kAttributeDeviceOrdinal = 9;
constexpr unsigned int kMemoryTypeDevice = 2;
using GetAttribute = int (*)(void* data, int attribute, unsigned long long pointer);

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

// libcuda can arrive at any time (import torch) and never leaves. Asking dlopen searches the library path each time, 15
// µs, so that is done again only when some library came.
GetAttribute get_attribute() {
  static std::atomic<GetAttribute> known{nullptr};
  if (GetAttribute function = known.load(std::memory_order_acquire)) return function;
  static std::atomic<unsigned long long> searched_at{0};
  const unsigned long long loaded = libraries_loaded();
  if (searched_at.load(std::memory_order_relaxed) == loaded) return nullptr;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) {
    searched_at.store(loaded, std::memory_order_relaxed);
    return nullptr;
  }
  auto function = reinterpret_cast<GetAttribute>(dlsym(library, "cuPointerGetAttribute"));
  if (function != nullptr) known.store(function, std::memory_order_release);
  return function;
}

}  // namespace

std::optional<std::string> cuda_location(uint64_t address) {
  GetAttribute query = get_attribute();
  if (query == nullptr) return std::nullopt;
  unsigned int type = 0, managed = 0;
  int device = 0;
  if (query(&type, kAttributeMemoryType, address) != 0) return std::nullopt;
  const bool is_managed = query(&managed, kAttributeIsManaged, address) == 0 && managed != 0;
  if (type != kMemoryTypeDevice && !is_managed) return std::nullopt;
  if (query(&device, kAttributeDeviceOrdinal, address) != 0) device = 0;
  return fmt::format("cuda:{}", device);
}

}  // namespace tidewire
