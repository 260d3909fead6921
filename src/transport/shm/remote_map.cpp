// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/remote_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

namespace tidewire::transport::shm {
namespace {

constexpr uint64_t kGranule = uint64_t{1} << 20;
constexpr int kPopulateRead = 22, kPopulateWrite = 23;  // MADV_POPULATE_*, Linux 5.14

}  // namespace

Mapping::Mapping(char* base, uint64_t size, bool writable)
    : base_(base), size_(size), writable_(writable), touched_((size + kGranule - 1) / kGranule) {}

Mapping::~Mapping() {
  munmap(base_, size_);
}

Result<std::shared_ptr<Mapping>> Mapping::create(UniqueFd file, bool writable) {
  struct stat facts {};
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(file.get(), &facts) != 0 || facts.st_size <= 0) {
    return Status(Code::kProtocol, "the peer sent a memory file that is not sealed against shrinking");
  }
  const auto size = static_cast<uint64_t>(facts.st_size);
  void* base = mmap(nullptr, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file.get(), 0);
  if (base == MAP_FAILED) return errno_status(errno, fmt::format("mapping {} bytes of a peer's memory", size));
  return std::shared_ptr<Mapping>(new Mapping(static_cast<char*>(base), size, writable));
}

void Mapping::touch(uint64_t offset, uint64_t length) {
  for (uint64_t granule = offset / kGranule; granule * kGranule < offset + length; ++granule) {
    auto& done = touched_[granule];
    if (done.load(std::memory_order_relaxed) || done.exchange(true, std::memory_order_relaxed)) continue;
    const uint64_t start = granule * kGranule;
    // Failure is no harm: the copy then faults page by page.
    (void)madvise(base_ + start, std::min(kGranule, size_ - start), writable_ ? kPopulateWrite : kPopulateRead);
  }
}

RemoteRegionPtr RemoteMap::find(uint64_t address) const {
  std::lock_guard lock(mutex_);
  auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return nullptr;
  const auto& region = std::prev(after)->second;
  return region->covers(address) ? region : nullptr;
}

void RemoteMap::insert(RemoteRegionPtr region) {
  std::lock_guard lock(mutex_);
  auto first = regions_.upper_bound(region->address);
  if (first != regions_.begin() && std::prev(first)->second->covers(region->address)) --first;
  auto last = first;
  while (last != regions_.end() && last->first < region->address + region->length) ++last;
  regions_.erase(first, last);
  regions_.emplace(region->address, std::move(region));
}

void RemoteMap::erase(const RemoteRegionPtr& region) {
  std::lock_guard lock(mutex_);
  auto found = regions_.find(region->address);
  if (found != regions_.end() && found->second == region) regions_.erase(found);
}

void RemoteMap::forget_file(uint32_t file_id) {
  std::lock_guard lock(mutex_);
  std::erase_if(regions_, [&](const auto& entry) {
    return entry.second->backing == Backing::kFile && entry.second->file_id == file_id;
  });
}

void RemoteMap::clear() {
  std::lock_guard lock(mutex_);
  regions_.clear();
}

size_t RemoteMap::size() const {
  std::lock_guard lock(mutex_);
  return regions_.size();
}

}  // namespace tidewire::transport::shm
