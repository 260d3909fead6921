// SPDX-License-Identifier: Apache-2.0
#include "memory/memory_kind.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "memory/test_device.h"

namespace tidewire {
namespace {

uint64_t address_of(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

class DeviceMemory {
 public:
  explicit DeviceMemory(uint64_t length) : address_(test_device_allocate(length).value()) {}
  ~DeviceMemory() { EXPECT_TRUE(test_device_free(address_).ok()); }
  uint64_t address() const { return address_; }

 private:
  uint64_t address_;
};

TEST(MemoryKind, HostMemoryIsFoundAndNamed) {
  std::vector<char> buffer(100);
  for (const char* location : {"", "*", "cpu:0", "cpu"}) {
    auto found = locate_memory(address_of(buffer.data()), buffer.size(), location);
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    EXPECT_EQ(found->kind, &host_memory());
    EXPECT_EQ(found->location, "cpu:0");
  }
}

TEST(MemoryKind, TheCallersNodeIsKept) {
  std::vector<char> buffer(100);
  auto found = locate_memory(address_of(buffer.data()), buffer.size(), "cpu:1");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->location, "cpu:1");
}

TEST(MemoryKind, HostIsTheLastKindAndDevicesComeFirst) {
  ASSERT_GE(memory_kinds().size(), 2u);
  EXPECT_EQ(memory_kinds().back(), &host_memory());
  EXPECT_EQ(memory_kinds().front(), &test_device());
}

TEST(MemoryKind, BadLocationsAreRefusedByName) {
  std::vector<char> buffer(100);
  for (const char* location : {"gpu:0", "cpu:x", "cpu:", "cpu:-1", "cpu:99999", "CPU:0", ":0", "cpu:0 "}) {
    auto found = locate_memory(address_of(buffer.data()), buffer.size(), location);
    ASSERT_FALSE(found.ok()) << location;
    EXPECT_EQ(found.status().code(), Code::kInvalidArgument);
    EXPECT_NE(found.status().message().find(location), std::string::npos) << found.status().message();
  }
}

TEST(MemoryKind, HostMemoryIsNotTakenForDeviceMemory) {
  std::vector<char> buffer(100);
  EXPECT_EQ(locate_memory(address_of(buffer.data()), 100, "cuda:0").status().code(), Code::kUnsupported);
  EXPECT_EQ(locate_memory(address_of(buffer.data()), 100, "neuron:0").status().code(), Code::kUnsupported);
  EXPECT_EQ(locate_memory(address_of(buffer.data()), 100, "testdev:0").status().code(), Code::kInvalidArgument);
}

TEST(MemoryKind, NullEmptyWrappedAndUnmappedRangesAreRefused) {
  std::vector<char> buffer(100);
  EXPECT_EQ(locate_memory(0, 100, "*").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(locate_memory(address_of(buffer.data()), 0, "*").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(locate_memory(UINT64_MAX - 10, 100, "*").status().code(), Code::kInvalidArgument);
  void* page = mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(static_cast<char*>(page) + 4096, 4096);
  auto found = locate_memory(address_of(page), 8192, "*");
  EXPECT_EQ(found.status().code(), Code::kInvalidArgument);
  EXPECT_NE(found.status().message().find("not mapped"), std::string::npos);
  munmap(page, 4096);
}

TEST(TestDevice, CopiesBothWaysAtAnyOffset) {
  DeviceMemory device(10'000);
  std::vector<char> in(5000), out(5000);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<char>(i * 31);
  ASSERT_TRUE(test_device().copy_from_host(device.address() + 1234, in.data(), in.size()).ok());
  ASSERT_TRUE(test_device().copy_to_host(out.data(), device.address() + 1234, out.size()).ok());
  EXPECT_EQ(in, out);
}

TEST(TestDevice, StartsZeroed) {
  DeviceMemory device(4096);
  std::vector<char> out(4096, 1);
  ASSERT_TRUE(test_device().copy_to_host(out.data(), device.address(), out.size()).ok());
  EXPECT_EQ(out, std::vector<char>(4096, 0));
}

TEST(TestDevice, NeitherProcessorNorKernelCanTouchIt) {
  DeviceMemory device(4096);
  char byte = 0;
  const iovec local{&byte, 1}, remote{reinterpret_cast<void*>(device.address()), 1};
  EXPECT_EQ(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), -1);
  EXPECT_EQ(errno, EFAULT);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  EXPECT_EQ(write(pipe_ends[1], reinterpret_cast<void*>(device.address()), 1), -1);
  EXPECT_EQ(errno, EFAULT);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST(TestDevice, IsFoundWholeAndRefusedInParts) {
  DeviceMemory device(8192);
  auto found = locate_memory(device.address() + 100, 8000, "*");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->kind, &test_device());
  EXPECT_FALSE(found->kind->host_accessible());
  EXPECT_EQ(found->location, "testdev:0");
  EXPECT_TRUE(locate_memory(device.address(), 8192, "testdev:0").ok());
  EXPECT_EQ(locate_memory(device.address(), 8192, "testdev:1").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(locate_memory(device.address(), 8192, "cpu:0").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(locate_memory(device.address() + 4096, 8192, "*").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(locate_memory(device.address() - 4096, 8192, "*").status().code(), Code::kInvalidArgument);
}

TEST(TestDevice, CopiesOutsideOfAnAllocationAreRefused) {
  DeviceMemory device(4096);
  char byte[16] = {};
  EXPECT_EQ(test_device().copy_to_host(byte, device.address() + 4090, 16).code(), Code::kNotFound);
  EXPECT_EQ(test_device().copy_from_host(device.address() + 4096, byte, 1).code(), Code::kNotFound);
}

TEST(TestDevice, BadAllocationsAndFreesAreRefused) {
  EXPECT_EQ(test_device_allocate(0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(test_device_allocate(uint64_t{1} << 50).status().code(), Code::kNoMemory);
  EXPECT_EQ(test_device_allocate(UINT64_MAX).status().code(), Code::kNoMemory);
  EXPECT_EQ(test_device_free(0x1000).code(), Code::kNotFound);
  const uint64_t address = test_device_allocate(1).value();
  EXPECT_TRUE(test_device_free(address).ok());
  EXPECT_EQ(test_device_free(address).code(), Code::kNotFound);
}

}  // namespace
}  // namespace tidewire
