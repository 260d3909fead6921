// SPDX-License-Identifier: Apache-2.0
#include "memory/test_device.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "base/unique_fd.h"
#include "memory/copy.h"
#include "memory/pool_populate.h"

namespace tidewire {
namespace {

constexpr uint64_t kPage = 4096;

class TestDevice final : public MemoryKind {
 public:
  std::string_view name() const override { return "testdev"; }
  bool host_accessible() const override { return false; }

  std::optional<std::string> locate(uint64_t address, uint64_t length) const override {
    std::shared_lock lock(mutex_);
    return shadow(address, length) == nullptr ? std::nullopt : std::make_optional<std::string>("testdev:0");
  }

  Status copy_to_host(void* host, uint64_t address, uint64_t length) const override {
    std::shared_lock lock(mutex_);
    const char* bytes = shadow(address, length);
    if (bytes == nullptr) return unknown(address, length);
    copy_bytes(host, bytes, length);
    return {};
  }

  Status copy_from_host(uint64_t address, const void* host, uint64_t length) const override {
    std::shared_lock lock(mutex_);
    char* bytes = shadow(address, length);
    if (bytes == nullptr) return unknown(address, length);
    copy_bytes(bytes, host, length);
    return {};
  }

  Result<uint64_t> allocate(uint64_t length) {
    if (length == 0) return Status(Code::kInvalidArgument, "test device: allocation of 0 bytes; give at least 1");
    const uint64_t size = (length + kPage - 1) / kPage * kPage;
    if (size < length) return Status::error(Code::kNoMemory, "test device: no memory for {} bytes", length);
    TW_RETURN_IF_ERROR(check_available_memory(size, "test device"));
    const UniqueFd file(memfd_create("tidewire-testdev", MFD_CLOEXEC));
    // Reserved now, so that a copy can't run into missing pages later.
    if (!file.valid() || ftruncate(file.get(), static_cast<off_t>(size)) != 0 ||
        fallocate(file.get(), 0, 0, static_cast<off_t>(size)) != 0) {
      return no_memory(length, errno);
    }
    void* bytes = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (bytes == MAP_FAILED) return no_memory(length, errno);
    void* device = mmap(nullptr, size, PROT_NONE, MAP_SHARED, file.get(), 0);
    if (device == MAP_FAILED) {
      const int error = errno;
      munmap(bytes, size);
      return no_memory(length, error);
    }
    std::unique_lock lock(mutex_);
    allocations_[reinterpret_cast<uint64_t>(device)] = {size, static_cast<char*>(bytes)};
    return reinterpret_cast<uint64_t>(device);
  }

  Status free(uint64_t address) {
    std::unique_lock lock(mutex_);
    auto found = allocations_.find(address);
    if (found == allocations_.end()) {
      return Status::error(Code::kNotFound, "test device: {:#x} is not an allocation, or is freed already", address);
    }
    munmap(found->second.bytes, found->second.size);
    munmap(reinterpret_cast<void*>(address), found->second.size);
    allocations_.erase(found);
    return {};
  }

 private:
  struct Allocation {
    uint64_t size;
    char* bytes;
  };

  static Status no_memory(uint64_t length, int error) {
    return Status(Code::kNoMemory,
                  errno_status(error, fmt::format("test device: no memory for {} bytes", length)).message());
  }

  static Status unknown(uint64_t address, uint64_t length) {
    return Status::error(Code::kNotFound, "test device: [{:#x}, {:#x}) is not within one allocation", address,
                         address + length);
  }

  // Where the bytes of the range are; nullptr when it is not within one allocation. Under mutex_.
  char* shadow(uint64_t address, uint64_t length) const {
    auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin()) return nullptr;
    const auto& [start, allocation] = *std::prev(after);
    const uint64_t offset = address - start;
    if (offset >= allocation.size || length > allocation.size - offset) return nullptr;
    return allocation.bytes + offset;
  }

  mutable std::shared_mutex mutex_;
  std::map<uint64_t, Allocation> allocations_;
};

TestDevice& device() {
  static TestDevice* const only = new TestDevice;
  return *only;
}

}  // namespace

const MemoryKind& test_device() {
  return device();
}
Result<uint64_t> test_device_allocate(uint64_t length) {
  return device().allocate(length);
}
Status test_device_free(uint64_t address) {
  return device().free(address);
}

}  // namespace tidewire
