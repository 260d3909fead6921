// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_cuda.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "cli/bench_common.h"

namespace tidewire::cli::bench {
namespace {

// One of the driver's functions; they return 0 on success.
template <typename... Arguments>
void call(void* library, const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
  const int error = function == nullptr ? -1 : function(arguments...);
  if (error != 0) throw BenchError(fmt::format("device memory: {} gave error {}", name, error));
}

}  // namespace

void* allocate_cuda(uint64_t length) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) throw BenchError(fmt::format("--memory cuda needs NVIDIA's driver: {}", dlerror()));
  void* context = nullptr;
  unsigned long long address = 0;
  call(library, "cuInit", 0u);
  call(library, "cuDevicePrimaryCtxRetain", &context, 0);
  call(library, "cuCtxSetCurrent", context);
  call(library, "cuMemAlloc_v2", &address, static_cast<size_t>(length));
  return reinterpret_cast<void*>(address);
}

}  // namespace tidewire::cli::bench
