// SPDX-License-Identifier: Apache-2.0
#include "fake_memory.h"

#include <sys/mman.h>
#include <unistd.h>

namespace fake_cuda {

Memory& Memory::get() {
  static Memory* const only = new Memory;
  return *only;
}

uint64_t Memory::allocate(uint64_t size, int device, Kind kind) {
  size = (size + 4095) / 4096 * 4096;
  const int file = memfd_create("fake-cuda", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(size)) != 0) {
    if (file >= 0) close(file);
    return 0;
  }
  return map(file, size, device, kind, false);
}

uint64_t Memory::import(int file, uint64_t size, int device) {
  return map(file, size, device, Kind::kDevice, true);
}

uint64_t Memory::map(int file, uint64_t size, int device, Kind kind, bool imported) {
  void* shadow = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const bool host = kind == Kind::kPinned || kind == Kind::kManaged;
  void* address = host ? shadow : mmap(nullptr, size, PROT_NONE, MAP_SHARED, file, 0);
  if (shadow == MAP_FAILED || address == MAP_FAILED) {
    if (shadow != MAP_FAILED) munmap(shadow, size);
    close(file);
    return 0;
  }
  std::lock_guard lock(mutex_);
  const auto base = reinterpret_cast<uint64_t>(address);
  blocks_[base] = Block{base, size, device, kind, static_cast<char*>(shadow), file, next_id_++, imported};
  return base;
}

bool Memory::free(uint64_t base) {
  std::lock_guard lock(mutex_);
  const auto found = blocks_.find(base);
  if (found == blocks_.end()) return false;
  const Block& block = found->second;
  munmap(block.shadow, block.size);
  if (reinterpret_cast<uint64_t>(block.shadow) != block.base) munmap(reinterpret_cast<void*>(block.base), block.size);
  close(block.file);
  blocks_.erase(found);
  return true;
}

std::optional<Block> Memory::find(uint64_t address) {
  std::lock_guard lock(mutex_);
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return std::nullopt;
  const Block& block = std::prev(after)->second;
  return address - block.base < block.size ? std::make_optional(block) : std::nullopt;
}

char* Memory::bytes(uint64_t address, uint64_t length) {
  const auto block = find(address);
  if (!block) return reinterpret_cast<char*>(address);
  if (length > block->size - block->offset(address)) return nullptr;
  return block->shadow + block->offset(address);
}

}  // namespace fake_cuda
