// SPDX-License-Identifier: Apache-2.0
//
// First of its program: before any other test loads the driver.
#include <gtest/gtest.h>

#include "memory/cuda_memory.h"
#include "support/cuda.h"

namespace tidewire {
namespace {

// gtest runs suites in the order in which the linker has them; a static initialiser runs before all.
const bool unknown_before = [] {
  int host = 0;
  const auto facts = cuda::classify(reinterpret_cast<uint64_t>(&host));
  return facts.ok() && facts->kind == cuda::PointerKind::kNone && !cuda::memory().locate(0xD00000001000, 1).has_value();
}();

TEST(CudaLate, ALibraryThatComesLateIsFound) {
  EXPECT_TRUE(unknown_before) << "nobody had loaded libcuda";
  auto& cuda = testing::Cuda::get();
  const uint64_t device = cuda.allocate(4096);
  EXPECT_EQ(cuda::memory().locate(device, 4096), "cuda:0");
  cuda.free(device);
}

}  // namespace
}  // namespace tidewire
