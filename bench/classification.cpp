// SPDX-License-Identifier: Apache-2.0
//
// How long it takes to know what a pointer is: of a registered region (what each transfer does) and by asking the driver
// (what registration does). Takes the path of a libcuda; prints JSON.
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <vector>

#include "memory/cuda_memory.h"
#include "memory/region.h"

namespace {

using namespace tidewire;

template <typename Work>
double nanoseconds_each(int count, Work&& work) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) work(i);
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / count;
}

}  // namespace

int main(int count, char** arguments) {
  void* library = count == 2 ? dlopen(arguments[1], RTLD_NOW) : nullptr;
  const auto init = library == nullptr ? nullptr : reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  const auto retain = library == nullptr ? nullptr : reinterpret_cast<int (*)(void**, int)>(dlsym(library, "cuDevicePrimaryCtxRetain"));
  const auto enter = library == nullptr ? nullptr : reinterpret_cast<int (*)(void*)>(dlsym(library, "cuCtxSetCurrent"));
  const auto allocate = library == nullptr ? nullptr : reinterpret_cast<int (*)(unsigned long long*, size_t)>(dlsym(library, "cuMemAlloc_v2"));
  void* context = nullptr;
  unsigned long long device = 0;
  constexpr uint64_t kLength = 64 << 20;
  if (allocate == nullptr || init(0) != 0 || retain(&context, 0) != 0 || enter(context) != 0 || allocate(&device, kLength) != 0) {
    std::fprintf(stderr, "usage: classification PATH_OF_LIBCUDA (with a device)\n");
    return 2;
  }
  std::vector<char> host(kLength);
  RegionTable table;
  if (!table.add(device, kLength, "*", Permission::kReadWrite).ok() ||
      !table.add(reinterpret_cast<uint64_t>(host.data()), kLength, "*", Permission::kReadWrite).ok()) {
    return 1;
  }
  uint64_t on_device = 0;
  RangeHold hold;
  // Pieces of a batch take turns between device and host, the slower case; each is looked up and asked for its kind.
  const double registered = nanoseconds_each(2'000'000, [&](int i) {
    const uint64_t address = (i % 2 == 0 ? device : reinterpret_cast<uint64_t>(host.data())) + static_cast<uint64_t>(i) * 16 % kLength / 2;
    if (table.use(address, 64, Access::kLocal, hold).ok() && !hold.find(address)->kind->host_accessible()) ++on_device;
  });
  const double asked = nanoseconds_each(100'000, [&](int i) { on_device += cuda::classify(device + static_cast<uint64_t>(i))->on_device(); });
  std::printf("{\"registered_ns\": %.1f, \"asked_ns\": %.1f, \"on_device\": %llu}\n", registered, asked, static_cast<unsigned long long>(on_device));
  return on_device == 1'100'000 ? 0 : 1;
}
