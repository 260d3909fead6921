// SPDX-License-Identifier: Apache-2.0
#include "memory/pool.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <charconv>
#include <optional>
#include <utility>

#include "memory/numa.h"
#include "memory/pool_populate.h"
#include "memory/test_device.h"

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif

namespace tidewire {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = uint64_t{2} << 20;

// The NUMA node of "cpu:N"; -1 for any.
Result<int> node_of_location(const std::string& location) {
  if (location.empty() || location == "*" || location == "cpu") return -1;
  int node = -1;
  if (location.starts_with("cpu:")) {
    const char* end = location.data() + location.size();
    const auto [stop, error] = std::from_chars(location.data() + 4, end, node);
    if (error == std::errc{} && stop == end && node >= 0) return node;
    return Status::error(Code::kInvalidArgument, "bad location '{}': expected 'cpu:N'", location.substr(0, 64));
  }
  return Status::error(Code::kUnsupported, "can't allocate at location '{}'; use '*', 'cpu:N' or 'testdev:0'",
                       location.substr(0, 64));
}

}  // namespace

Pool::~Pool() {
  for (auto& [address, entry] : entries_) {
    if (entry.test_device) {
      (void)test_device_free(address);
    } else {
      munmap(reinterpret_cast<void*>(address), entry.mapped);
    }
  }
  for (const auto& [address, length] : reservations_) munmap(reinterpret_cast<void*>(address), length);
}

// Nobody else's mapping may come to lie there, now or when a piece is freed.
Result<uint64_t> Pool::reserve(uint64_t length) {
  if (length == 0 || length > static_cast<uint64_t>(INT64_MAX) - 2 * kHugePage)
    return Status::error(Code::kInvalidArgument, "{} bytes of address space can't be reserved", length);
  const uint64_t mapped = (length + 2 * kHugePage - 1) / kHugePage * kHugePage;
  void* space = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return errno_status(errno, fmt::format("reserving {} bytes of address space", length));
  const uint64_t address = reinterpret_cast<uint64_t>(space);
  std::lock_guard lock(mutex_);
  reservations_[address] = mapped;
  return (address + kHugePage - 1) / kHugePage * kHugePage;
}

bool Pool::reserved(uint64_t address, uint64_t length) const {
  std::lock_guard lock(mutex_);
  auto space = reservations_.upper_bound(address);
  if (space == reservations_.begin()) return false;
  --space;
  return address + length <= space->first + space->second;
}

Result<Pool::Entry> Pool::map(uint64_t length, int node, bool huge, uint64_t* address) {
  const auto failed = [&](const char* step) {
    return errno_status(errno, fmt::format("{} for an allocation of {} bytes", step, length));
  };
  Entry entry;
  entry.huge = huge;
  entry.mapped = length;
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0);
  entry.memfd.reset(memfd_create("tidewire-pool", flags));
  if (!entry.memfd.valid()) return failed("memfd_create");
  if (ftruncate(entry.memfd.get(), static_cast<off_t>(length)) != 0) return failed("ftruncate");
  // No further seals: a peer that holds the descriptor must not be able to forbid writing.
  if (fcntl(entry.memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return failed("sealing");
  void* mapping = mmap(reinterpret_cast<void*>(*address), length, PROT_READ | PROT_WRITE, MAP_SHARED | (*address != 0 ? MAP_FIXED : 0),
                       entry.memfd.get(), 0);
  if (mapping == MAP_FAILED) return failed("mmap");
  *address = reinterpret_cast<uint64_t>(mapping);
  Status status = numa::place(*address, length, node);
  if (!huge)
    madvise(mapping, length, MADV_HUGEPAGE);  // a hint; no effect unless the system permits it for shared memory
  if (status.ok()) status = populate(*address, length, entry.memfd.get());
  if (!status.ok()) {
    unmap(*address, length);
    return status;
  }
  return entry;
}

// Reserved space stays reserved.
void Pool::unmap(uint64_t address, uint64_t length) {
  void* memory = reinterpret_cast<void*>(address);
  if (reserved(address, length)) {
    mmap(memory, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  } else {
    munmap(memory, length);
  }
}

Result<PoolAllocation> Pool::allocate(uint64_t length, const std::string& location, uint64_t at) {
  if (length == 0) return Status(Code::kInvalidArgument, "allocation of 0 bytes; give at least 1");
  PoolAllocation allocation;
  allocation.length = length;
  if (location == "testdev" || location == "testdev:0") {
    TW_ASSIGN_OR_RETURN(allocation.address, test_device_allocate(length));
    allocation.location = "testdev:0";
    std::lock_guard lock(mutex_);
    Entry& entry = entries_[allocation.address];
    entry.mapped = length;
    entry.test_device = true;
    return allocation;
  }
  TW_ASSIGN_OR_RETURN(const int node, node_of_location(location));
  const uint64_t rounded = (length + kPage - 1) / kPage * kPage;
  if (rounded < length || rounded > static_cast<uint64_t>(INT64_MAX)) {
    return Status::error(Code::kNoMemory, "no memory for an allocation of {} bytes", length);
  }
  if (at != 0 && (at % kHugePage != 0 || !reserved(at, rounded)))
    return Status::error(Code::kInvalidArgument, "{:#x} is no multiple of 2 MiB in reserved address space with {} bytes", at, rounded);
  allocation.address = at;
  std::optional<Entry> entry;
  if (rounded % kHugePage == 0) {
    // Fails at once when the system has too few huge pages set aside: the mapping reserves them.
    if (auto huge = map(rounded, node, true, &allocation.address); huge.ok()) entry = std::move(huge).value();
  }
  if (!entry) {
    allocation.address = at;
    TW_RETURN_IF_ERROR(check_available_memory(rounded, "allocation"));
    TW_ASSIGN_OR_RETURN(entry, map(rounded, node, false, &allocation.address));
  }
  allocation.location = fmt::format("cpu:{}", node >= 0 ? node : numa::node_of(allocation.address));
  allocation.backing = {entry->memfd.get(), 0};
  std::lock_guard lock(mutex_);
  entries_[allocation.address] = std::move(*entry);
  return allocation;
}

Status Pool::free(uint64_t address) {
  std::unique_lock lock(mutex_);
  auto node = entries_.extract(address);
  lock.unlock();
  if (node.empty()) {
    return Status::error(Code::kNotFound, "{:#x} is not an allocation of this engine, or is freed already", address);
  }
  if (node.mapped().test_device) return test_device_free(address);
  unmap(address, node.mapped().mapped);
  return {};
}

std::string Pool::describe() const {
  std::lock_guard lock(mutex_);
  uint64_t bytes = 0, huge = 0;
  for (const auto& [address, entry] : entries_) {
    bytes += entry.mapped;
    if (entry.huge) huge += entry.mapped;
  }
  const char* pages = huge == 0 ? "4 KiB" : huge == bytes ? "2 MiB huge" : "mixed";
  return fmt::format(R"({{"allocations": {}, "bytes": {}, "huge_page_bytes": {}, "pages": "{}"}})", entries_.size(),
                     bytes, huge, pages);
}

}  // namespace tidewire
