// SPDX-License-Identifier: Apache-2.0
//
// Order with the caller's streams, and what a fabric is told of device memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <vector>

#include "fake_cuda/fake_cuda.h"
#include "memory/cuda_memory.h"
#include "memory/cuda_registration.h"
#include "memory/cuda_stream.h"
#include "support/cuda.h"

namespace tidewire {
namespace {

using ::testing::HasSubstr;

class CudaOrder : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_.fake()) GTEST_SKIP() << "needs the stand-in";
    ASSERT_EQ(cuda_.call<int(void**, unsigned)>("cuStreamCreate")(&stream_, 1), 0);
    address_ = cuda_.allocate(1 << 20);
  }
  void TearDown() override {
    if (!cuda_.fake()) return;
    rate(0);
    cuda_.call<int(void*)>("cuStreamDestroy_v2")(stream_);
    cuda_.free(address_);
    attribute(124, 1), attribute(116, 1), attribute(118, 200);
  }
  void rate(uint64_t bytes) { cuda_.call<decltype(fake_cuda_set_rate)>("fake_cuda_set_rate")(bytes); }
  void attribute(int which, int value) { cuda_.call<decltype(fake_cuda_set_attribute)>("fake_cuda_set_attribute")(which, value); }
  void synchronize() { ASSERT_EQ(cuda_.call<int(void*)>("cuStreamSynchronize")(stream_), 0); }
  void copy_later(const std::vector<char>& bytes) {
    ASSERT_EQ(cuda_.call<int(unsigned long long, const void*, size_t, void*)>("cuMemcpyHtoDAsync_v2")(address_, bytes.data(), bytes.size(), stream_), 0);
  }

  testing::Cuda& cuda_ = testing::Cuda::get();
  void* stream_ = nullptr;
  uint64_t address_ = 0;
};

TEST_F(CudaOrder, WorkSeesWhatTheStreamWroteBeforeAndTheStreamGoesOnAfterIt) {
  const std::vector<char> first(1 << 20, 'a'), second(1 << 20, 'b');
  std::vector<char> seen(1 << 20);
  Status copied(Code::kInternal, "did not run");
  rate(50 << 20);  // 20 ms
  copy_later(first);
  ASSERT_TRUE(cuda::run_in_stream(reinterpret_cast<uint64_t>(stream_), [&] {
                copied = cuda::memory().copy_to_host(seen.data(), address_, seen.size());
              }).ok());
  copy_later(second);
  synchronize();
  EXPECT_TRUE(copied.ok()) << copied.to_string();
  EXPECT_EQ(seen, first) << "neither too early nor too late";
  ASSERT_TRUE(cuda::memory().copy_to_host(seen.data(), address_, seen.size()).ok());
  EXPECT_EQ(seen, second);
}

TEST_F(CudaOrder, AStreamUnderCaptureIsRefused) {
  ASSERT_EQ(cuda_.call<int(void*, int)>("cuStreamBeginCapture_v2")(stream_, 0), 0);
  std::atomic<bool> ran{false};
  const Status refused = cuda::run_in_stream(reinterpret_cast<uint64_t>(stream_), [&] { ran = true; });
  EXPECT_EQ(refused.code(), Code::kUnsupported);
  EXPECT_THAT(refused.message(), HasSubstr("captured"));
  synchronize();
  EXPECT_FALSE(ran);
}

TEST_F(CudaOrder, AStreamThatRefusesTheWorkIsAnErrorAndTheWorkNeverRuns) {
  cuda_.call<decltype(fake_cuda_fail)>("fake_cuda_fail")("cuLaunchHostFunc", 201, 0);
  std::atomic<bool> ran{false};
  const Status refused = cuda::run_in_stream(reinterpret_cast<uint64_t>(stream_), [&] { ran = true; });
  cuda_.call<decltype(fake_cuda_fail)>("fake_cuda_fail")("cuLaunchHostFunc", 0, 0);
  EXPECT_THAT(refused.message(), HasSubstr("CUDA_ERROR_INVALID_CONTEXT"));
  synchronize();
  EXPECT_FALSE(ran);
}

TEST_F(CudaOrder, AFabricGetsADmaBufOfWholePagesAroundTheRange) {
  const auto memory = cuda::fabric_memory(address_ + 5000, 100, true);
  ASSERT_TRUE(memory.ok()) << memory.status().to_string();
  EXPECT_TRUE(memory->dmabuf.valid());
  EXPECT_EQ(memory->dmabuf_base, address_ + 4096);
  EXPECT_EQ(memory->dmabuf_length, 4096u);
  EXPECT_FALSE(memory->needs_flush);
  EXPECT_TRUE(cuda::flush_remote_writes(0).ok());
}

TEST_F(CudaOrder, WithoutDmaBufTheRangeIsRegisteredByAddressAndWithoutEitherRefused) {
  attribute(124, 0), attribute(118, 0);
  const auto by_address = cuda::fabric_memory(address_, 100, false);
  ASSERT_TRUE(by_address.ok());
  EXPECT_FALSE(by_address->dmabuf.valid());
  EXPECT_TRUE(by_address->needs_flush) << "the platform does not order remote writes";
  attribute(116, 0);
  const auto refused = cuda::fabric_memory(address_, 100, false);
  EXPECT_EQ(refused.status().code(), Code::kUnsupported);
  EXPECT_THAT(refused.status().message(), HasSubstr("nvidia-peermem"));
}

TEST_F(CudaOrder, MemoryThatAFabricCantTakeIsRefusedWithTheSettingToChange) {
  const std::vector<std::pair<const char*, const char*>> refusals{
      {"virtual", "expandable_segments:False"}, {"pooled", "cudaMallocAsync"}, {"managed", "cudaMalloc"}};
  for (const auto& [kind, remedy] : refusals) {
    const uint64_t address = cuda_.call<decltype(fake_cuda_allocate)>("fake_cuda_allocate")(1, 4096, kind);
    const auto refused = cuda::fabric_memory(address, 4096, true);
    EXPECT_EQ(refused.status().code(), Code::kUnsupported) << kind;
    EXPECT_THAT(refused.status().message(), HasSubstr(remedy));
    EXPECT_THAT(refused.status().message(), HasSubstr(fmt::format("cuda:1 memory at {:#x}", address)));
    cuda_.call<decltype(fake_cuda_free)>("fake_cuda_free")(address);
  }
  int host = 0;
  EXPECT_EQ(cuda::fabric_memory(reinterpret_cast<uint64_t>(&host), 4, true).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tidewire
