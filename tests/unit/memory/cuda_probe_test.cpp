// SPDX-License-Identifier: Apache-2.0
#include "memory/cuda_probe.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memory/region.h"

namespace tidewire {
namespace {

constexpr uint64_t kDevice = 0xD00000001000, kManaged = 0xD00200000000;

// One test, because a library that was loaded stays.
TEST(CudaProbe, DevicePointersAreRefusedByNameOnceTheProcessHasLibcuda) {
  int host = 0;
  EXPECT_EQ(cuda_location(kDevice), std::nullopt) << "nobody loaded libcuda";
  ASSERT_NE(dlopen(FAKE_LIBCUDA, RTLD_NOW), nullptr) << dlerror();
  EXPECT_EQ(cuda_location(kDevice), "cuda:3") << "seen although it came later";
  EXPECT_EQ(cuda_location(kManaged), "cuda:3");
  EXPECT_EQ(cuda_location(reinterpret_cast<uint64_t>(&host)), std::nullopt);

  RegionTable table;
  for (const char* location : {"*", "cuda:3", "cpu:0"}) {
    const Status status = table.add(kDevice, 4096, location, Permission::kReadWrite);
    EXPECT_EQ(status.code(), Code::kUnsupported);
    EXPECT_THAT(status.message(), ::testing::HasSubstr("cuda:3"));
  }
  RangeHold hold;
  const Status later = table.use(kDevice + 100, 10, Access::kLocal, hold);
  EXPECT_EQ(later.code(), Code::kUnsupported) << "a transfer that touches it returns that failure";
  EXPECT_TRUE(table.add(reinterpret_cast<uint64_t>(&host), sizeof host, "*", Permission::kReadWrite).ok());
}

}  // namespace
}  // namespace tidewire
