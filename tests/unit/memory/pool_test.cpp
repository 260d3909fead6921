// SPDX-License-Identifier: Apache-2.0
#include "memory/pool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "memory/test_device.h"

namespace tidewire {
namespace {

size_t open_descriptors() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += !entry.path().empty();
  return count;
}

TEST(Pool, MemoryIsZeroedAlignedAndPresent) {
  Pool pool;
  auto allocation = pool.allocate(3 * 4096 + 1, "*");
  ASSERT_TRUE(allocation.ok()) << allocation.status().to_string();
  EXPECT_EQ(allocation->address % 4096, 0u);
  EXPECT_EQ(allocation->length, 3u * 4096 + 1);
  EXPECT_EQ(allocation->location, "cpu:0");
  std::vector<unsigned char> present(4);
  ASSERT_EQ(mincore(reinterpret_cast<void*>(allocation->address), 4 * 4096, present.data()), 0);
  for (auto flag : present) EXPECT_EQ(flag & 1, 1);
  const auto* bytes = reinterpret_cast<const char*>(allocation->address);
  for (size_t i = 0; i < allocation->length; ++i) ASSERT_EQ(bytes[i], 0);
}

TEST(Pool, LargeAllocationsAreFullyPresent) {
  Pool pool;
  constexpr uint64_t kLength = (uint64_t{200} << 20) + 4096;
  auto allocation = pool.allocate(kLength, "*");
  ASSERT_TRUE(allocation.ok()) << allocation.status().to_string();
  std::vector<unsigned char> present(kLength / 4096);
  ASSERT_EQ(mincore(reinterpret_cast<void*>(allocation->address), kLength, present.data()), 0);
  for (auto flag : present) ASSERT_EQ(flag & 1, 1);
}

TEST(Pool, APeerCanMapTheFileAndNobodyCanResizeIt) {
  Pool pool;
  auto allocation = pool.allocate(8192, "*");
  ASSERT_TRUE(allocation.ok());
  const int memfd = allocation->backing.memfd;
  EXPECT_EQ(ftruncate(memfd, 4096), -1);
  EXPECT_EQ(ftruncate(memfd, 1 << 20), -1);
  EXPECT_EQ(fcntl(memfd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), -1);
  const int seals = fcntl(memfd, F_GET_SEALS);
  EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW), F_SEAL_SHRINK | F_SEAL_GROW);
  EXPECT_EQ(fcntl(memfd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  auto* view = static_cast<char*>(mmap(nullptr, 8192, PROT_READ, MAP_SHARED, memfd, 0));
  ASSERT_NE(view, MAP_FAILED);
  reinterpret_cast<char*>(allocation->address)[5000] = 'x';
  EXPECT_EQ(view[5000], 'x');
  munmap(view, 8192);
}

TEST(Pool, FreeGivesEverythingBack) {
  Pool pool;
  const size_t before = open_descriptors();
  std::vector<uint64_t> addresses;
  for (int i = 0; i < 50; ++i) addresses.push_back(pool.allocate(4096, "*").value().address);
  EXPECT_EQ(open_descriptors(), before + 50);
  for (uint64_t address : addresses) EXPECT_TRUE(pool.free(address).ok());
  EXPECT_EQ(open_descriptors(), before);
  unsigned char present;
  EXPECT_EQ(mincore(reinterpret_cast<void*>(addresses[0]), 4096, &present), -1);
  EXPECT_EQ(pool.free(addresses[0]).code(), Code::kNotFound);
}

TEST(Pool, DestructionFreesWhatIsLeft) {
  const size_t before = open_descriptors();
  uint64_t device;
  {
    Pool pool;
    ASSERT_TRUE(pool.allocate(4096, "*").ok());
    device = pool.allocate(4096, "testdev:0").value().address;
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(test_device_free(device).code(), Code::kNotFound);
}

TEST(Pool, ServesTheTestDevice) {
  Pool pool;
  auto allocation = pool.allocate(5000, "testdev:0");
  ASSERT_TRUE(allocation.ok());
  EXPECT_EQ(allocation->backing.memfd, -1);
  EXPECT_EQ(allocation->location, "testdev:0");
  EXPECT_TRUE(test_device().locate(allocation->address, 5000).has_value());
  EXPECT_TRUE(pool.free(allocation->address).ok());
}

TEST(Pool, BadRequestsAreRefusedByName) {
  Pool pool;
  EXPECT_EQ(pool.allocate(0, "*").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(pool.allocate(UINT64_MAX, "*").status().code(), Code::kNoMemory);
  EXPECT_EQ(pool.allocate(4096, "cpu:4000").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(pool.allocate(4096, "cpu:x").status().code(), Code::kInvalidArgument);
  const Status cuda = pool.allocate(4096, "cuda:0").status();
  EXPECT_EQ(cuda.code(), Code::kUnsupported);
  EXPECT_NE(cuda.message().find("cuda:0"), std::string::npos);
}

TEST(Pool, MoreThanTheMachineHasIsAnErrorAndNoSignal) {
  Pool pool;
  const Status status = pool.allocate(uint64_t{1} << 45, "*").status();
  EXPECT_EQ(status.code(), Code::kNoMemory);
  EXPECT_NE(status.message().find("35184372088832"), std::string::npos) << status.message();
  EXPECT_TRUE(pool.allocate(4096, "*").ok());
}

TEST(Pool, WithoutDescriptorsTheErrorSaysSo) {
  Pool pool;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit none = limit;
  none.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const Status status = pool.allocate(4096, "*").status();
  setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_TRUE(status.code() == Code::kNoResources || status.code() == Code::kNoMemory) << status.to_string();
  EXPECT_TRUE(pool.allocate(4096, "*").ok());
}

TEST(Pool, DescribesItself) {
  Pool pool;
  ASSERT_TRUE(pool.allocate(8192, "*").ok());
  auto json = nlohmann::json::parse(pool.describe());
  EXPECT_EQ(json["allocations"], 1);
  EXPECT_EQ(json["bytes"], 8192);
}

}  // namespace
}  // namespace tidewire
