// SPDX-License-Identifier: Apache-2.0
//
// Device memory for tests through a libcuda that the test loads: the stand-in of tests/fake_cuda, or the one that
// TIDEWIRE_TEST_LIBCUDA names (libcuda.so.1 on a machine with a GPU).
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace tidewire::testing {

class Cuda {
 public:
  // Loads the library at the first call and makes device 0's primary context current on the calling thread.
  static Cuda& get() {
    static Cuda only;
    only.enter(0);
    return only;
  }
  bool fake() const { return fake_; }
  int devices() const { return devices_; }

  uint64_t allocate(size_t bytes, int device = 0) {
    enter(device);
    unsigned long long address = 0;
    EXPECT_EQ(call<int(unsigned long long*, size_t)>("cuMemAlloc_v2")(&address, bytes), 0);
    return address;
  }
  void free(uint64_t address) { EXPECT_EQ(call<int(unsigned long long)>("cuMemFree_v2")(address), 0); }
  void write(uint64_t address, const void* bytes, size_t size) {
    EXPECT_EQ(call<int(unsigned long long, const void*, size_t)>("cuMemcpyHtoD_v2")(address, bytes, size), 0);
  }
  void read(void* bytes, uint64_t address, size_t size) {
    EXPECT_EQ(call<int(void*, unsigned long long, size_t)>("cuMemcpyDtoH_v2")(bytes, address, size), 0);
  }
  void enter(int device) {
    void* context = nullptr;
    ASSERT_EQ(call<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device), 0);
    ASSERT_EQ(call<int(void*)>("cuCtxSetCurrent")(context), 0);
  }
  // Any function of the library; the test fails when it has none of that name.
  template <typename Signature>
  Signature* call(const char* name) {
    void* function = dlsym(library_, name);
    EXPECT_NE(function, nullptr) << name;
    return reinterpret_cast<Signature*>(function);
  }

 private:
  Cuda() {
    const char* named = std::getenv("TIDEWIRE_TEST_LIBCUDA");
    library_ = dlopen(named != nullptr ? named : FAKE_LIBCUDA, RTLD_NOW);
    if (library_ == nullptr) {
      ADD_FAILURE() << dlerror();
      std::abort();
    }
    fake_ = dlsym(library_, "fake_cuda_allocate") != nullptr;
    EXPECT_EQ(call<int(unsigned)>("cuInit")(0), 0);
    EXPECT_EQ(call<int(int*)>("cuDeviceGetCount")(&devices_), 0);
  }
  void* library_ = nullptr;
  bool fake_ = false;
  int devices_ = 0;
};

}  // namespace tidewire::testing
