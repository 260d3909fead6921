// SPDX-License-Identifier: Apache-2.0
#include "memory/cuda_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "fake_cuda/fake_cuda.h"
#include "memory/copy_group.h"
#include "memory/region.h"
#include "support/cuda.h"

namespace tidewire {
namespace {

using ::testing::HasSubstr;

class CudaMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_.fake()) GTEST_SKIP() << "needs the stand-in";
    cuda_.enter(0);
  }
  void TearDown() override {
    if (!cuda_.fake()) return;
    for (const char* each : {"cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2", "cuPointerGetAttribute", "cuEventSynchronize", "cuStreamCreate"})
      cuda_.call<decltype(fake_cuda_fail)>("fake_cuda_fail")(each, 0, 0);
    cuda_.call<decltype(fake_cuda_set_rate)>("fake_cuda_set_rate")(0);
  }
  uint64_t special(const char* kind, uint64_t bytes = 8192, int device = 0) {
    return cuda_.call<decltype(fake_cuda_allocate)>("fake_cuda_allocate")(device, bytes, kind);
  }
  void discard(uint64_t address) { cuda_.call<decltype(fake_cuda_free)>("fake_cuda_free")(address); }
  void fail(const char* function, int error, int skip = 0) { cuda_.call<decltype(fake_cuda_fail)>("fake_cuda_fail")(function, error, skip); }
  testing::Cuda& cuda_ = testing::Cuda::get();
};

TEST_F(CudaMemory, EveryKindOfPointerIsToldApart) {
  const std::vector<std::pair<const char*, cuda::PointerKind>> kinds{{"device", cuda::PointerKind::kDevice},
                                                                     {"virtual", cuda::PointerKind::kVirtual},
                                                                     {"pooled", cuda::PointerKind::kPooled},
                                                                     {"managed", cuda::PointerKind::kManaged},
                                                                     {"pinned", cuda::PointerKind::kPinned}};
  for (const auto& [name, kind] : kinds) {
    const uint64_t address = special(name, 8192, 1);
    const auto facts = cuda::classify(address + 100);
    ASSERT_TRUE(facts.ok()) << facts.status().to_string();
    EXPECT_EQ(facts->kind, kind) << name;
    EXPECT_STREQ(cuda::kind_name(facts->kind), name);
    EXPECT_EQ(facts->device, 1);
    EXPECT_EQ(facts->base, address);
    EXPECT_EQ(facts->size, 8192u);
    const auto located = locate_memory(address, 8192, "*");
    ASSERT_TRUE(located.ok()) << located.status().to_string();
    const bool pinned = kind == cuda::PointerKind::kPinned;
    EXPECT_EQ(located->kind->host_accessible(), pinned) << "the processor may touch pinned memory";
    EXPECT_EQ(located->location == "cuda:1", !pinned) << located->location;
    discard(address);
  }
  int host = 0;
  EXPECT_EQ(cuda::classify(reinterpret_cast<uint64_t>(&host))->kind, cuda::PointerKind::kNone);
}

TEST_F(CudaMemory, CopiesBothWaysFromAThreadWithoutAContext) {
  for (int device = 0; device < cuda_.devices(); ++device) {
    const uint64_t address = cuda_.allocate(100'000, device);
    std::string in(100'000, 'x'), out(100'000, ' ');
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<char>(i * 7 + i / 256);
    std::thread([&] {
      EXPECT_TRUE(cuda::memory().copy_from_host(address, in.data(), in.size()).ok());
      EXPECT_TRUE(cuda::memory().copy_to_host(out.data(), address, out.size()).ok());
      void* current = nullptr;
      cuda_.call<int(void**)>("cuCtxGetCurrent")(&current);
      EXPECT_EQ(current, nullptr) << "the thread has the context that it had";
    }).join();
    EXPECT_EQ(in, out);
    cuda_.free(address);
  }
}

TEST_F(CudaMemory, ARangeThatLeavesItsAllocationIsRefused) {
  const uint64_t address = cuda_.allocate(8192);
  EXPECT_FALSE(cuda::memory().locate(address + 4096, 8192).has_value());
  const auto located = locate_memory(address + 4096, 8192, "*");
  EXPECT_EQ(located.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(located.status().message(), HasSubstr("leaves its cuda allocation"));
  cuda_.free(address);
}

TEST_F(CudaMemory, TheWrongOrAHiddenDeviceIsNamed) {
  const uint64_t address = cuda_.allocate(4096, 1);
  const auto wrong = locate_memory(address, 4096, "cuda:0");
  EXPECT_EQ(wrong.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(wrong.status().message(), HasSubstr("cuda:1"));
  int host = 0;
  const auto hidden = locate_memory(reinterpret_cast<uint64_t>(&host), 4, "cuda:7");
  EXPECT_EQ(hidden.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(hidden.status().message(), HasSubstr("CUDA_VISIBLE_DEVICES"));
  EXPECT_THAT(hidden.status().message(), HasSubstr("cuda:7"));
  const auto unknown = locate_memory(reinterpret_cast<uint64_t>(&host), 4, "cuda:0");
  EXPECT_THAT(unknown.status().message(), HasSubstr("hides"));
  cuda_.free(address);
}

TEST_F(CudaMemory, ErrorsNameDeviceAndPointerAndTheRemedy) {
  const uint64_t address = cuda_.allocate(4096);
  char byte = 0;
  fail("cuMemcpyDtoHAsync_v2", 700);
  const Status failed = cuda::memory().copy_to_host(&byte, address, 1);
  EXPECT_EQ(failed.code(), Code::kNotRegistered);
  EXPECT_THAT(failed.message(), HasSubstr(fmt::format("cuda:0 at {:#x}", address)));
  EXPECT_THAT(failed.message(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
  EXPECT_THAT(failed.message(), HasSubstr("unregister memory before it is freed"));
  fail("cuMemcpyHtoDAsync_v2", 719);
  EXPECT_THAT(cuda::memory().copy_from_host(address, &byte, 1).message(), HasSubstr("device is lost"));
  cuda_.free(address);
}

TEST_F(CudaMemory, WithADriverThatCantAnswerNothingIsTakenForHostMemory) {
  const uint64_t address = cuda_.allocate(4096);
  int host = 0;
  fail("cuPointerGetAttribute", 214);
  for (const uint64_t each : {address, reinterpret_cast<uint64_t>(&host)}) {
    EXPECT_THAT(locate_memory(each, 4, "*").status().message(), HasSubstr("device is lost")) << "all that the driver might own";
    EXPECT_FALSE(processor_may_touch(each, 4));
  }
  fail("cuPointerGetAttribute", 0);
  EXPECT_TRUE(locate_memory(reinterpret_cast<uint64_t>(&host), 4, "*").ok());
  cuda_.free(address);
}

TEST_F(CudaMemory, MemoryFreedUnderItsRegistrationFailsTheCopyAndNothingElse) {
  RegionTable table;
  const uint64_t address = cuda_.allocate(4096);
  ASSERT_TRUE(table.add(address, 4096, "*", Permission::kReadWrite).ok());
  cuda_.free(address);
  RangeHold hold;
  ASSERT_TRUE(table.use(address, 100, Access::kLocal, hold).ok());
  char bytes[100];
  const Region* region = hold.find(address);
  ASSERT_NE(region, nullptr);
  const Status status = region->kind->copy_to_host(bytes, address, 100);
  EXPECT_EQ(status.code(), Code::kNotRegistered) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr(fmt::format("{:#x}", address)));
  hold.release();
  EXPECT_TRUE(table.remove(address).ok());
}

TEST_F(CudaMemory, StartedCopiesOfSeveralDevicesAreAwaitedTogether) {
  RegionTable table;
  const uint64_t first = cuda_.allocate(1 << 20, 0), second = cuda_.allocate(1 << 20, 1);
  ASSERT_TRUE(table.add_many({{first, 1 << 20}, {second, 1 << 20}}, "*", Permission::kReadWrite).ok());
  cuda_.call<decltype(fake_cuda_set_rate)>("fake_cuda_set_rate")(200 << 20);  // 5 ms each
  const std::string in(1 << 20, 'a');
  std::string out(2 << 20, ' ');
  RangeHold hold;
  ASSERT_TRUE(table.use(first, 1 << 20, Access::kLocal, hold).ok());
  ASSERT_TRUE(table.use(second, 1 << 20, Access::kLocal, hold).ok());
  {
    CopyGroup group;
    for (const uint64_t address : {first, second}) ASSERT_TRUE(group.from_host(*hold.find(address), address, in.data(), in.size()).ok());
    EXPECT_TRUE(group.pending());
    EXPECT_TRUE(group.wait().ok());
  }
  CopyGroup group;
  ASSERT_TRUE(group.to_host(*hold.find(first), out.data(), first, 1 << 20).ok());
  ASSERT_TRUE(group.to_host(*hold.find(second), out.data() + (1 << 20), second, 1 << 20).ok());
  ASSERT_TRUE(group.wait().ok());
  EXPECT_EQ(out, in + in);
  fail("cuEventSynchronize", 719);
  ASSERT_TRUE(group.to_host(*hold.find(second), out.data(), second, 1).ok());
  const Status lost = group.wait();
  EXPECT_THAT(lost.message(), HasSubstr(fmt::format("cuda:1 from {:#x} on", second)));
  fail("cuEventSynchronize", 0);
  hold.release();
  table.clear();
  cuda_.free(first);
  cuda_.free(second);
}

TEST_F(CudaMemory, AForkedChildIsToldNotToUseItsParentsDevice) {
  const uint64_t address = cuda_.allocate(4096);
  ASSERT_TRUE(cuda::classify(address)->on_device());
  const pid_t child = fork();
  if (child == 0) {
    const auto located = locate_memory(address, 4096, "*");
    const bool told = !located.ok() && located.status().message().find("fork") != std::string::npos;
    _exit(told ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  cuda_.free(address);
}

TEST_F(CudaMemory, RegistrationOfHostAndDeviceRangesIsAllOrNothing) {
  RegionTable table;
  std::vector<char> host(4096);
  const uint64_t first = cuda_.allocate(4096, 0), second = cuda_.allocate(4096, 1);
  const auto at = reinterpret_cast<uint64_t>(host.data());
  const Status bad = table.add_many({{at, 4096}, {first, 4096}, {second, 8192}}, "*", Permission::kReadWrite);
  EXPECT_EQ(bad.code(), Code::kInvalidArgument);
  EXPECT_THAT(bad.message(), HasSubstr("range 2 of 3"));
  EXPECT_EQ(table.size(), 0u);
  EXPECT_TRUE(table.add_many({{at, 4096}, {first, 4096}, {second, 4096}}, "*", Permission::kReadWrite).ok());
  EXPECT_EQ(table.find(second)->location, "cuda:1");
  EXPECT_EQ(table.find(second)->device, 1);
  table.clear();
  cuda_.free(first);
  cuda_.free(second);
}

}  // namespace
}  // namespace tidewire
