// SPDX-License-Identifier: Apache-2.0
#include "store/client/staging.h"

#include <utility>

#include "memory/copy.h"

namespace tidewire::store {
namespace {
constexpr uint64_t kCopyUpTo = 256 << 10;  // a copy is cheaper than registering and unregistering
}

Status Staging::start(engine::Engine& engine, uint64_t bytes) {
  engine_ = &engine;
  if (bytes == 0) return Status();
  TW_ASSIGN_OR_RETURN(base_, engine.allocate(bytes, "*"));
  size_ = bytes;
  space_.grow(bytes);
  return Status();
}

void Staging::stop() {
  if (engine_ == nullptr) return;
  if (base_ != 0) (void)engine_->free(std::exchange(base_, 0));
  for (const auto& [address, length] : std::exchange(large_, {})) (void)engine_->free(address);
}

uint64_t Staging::allocate(uint64_t length) {
  if (length == 0 || engine_ == nullptr) return 0;
  {
    std::lock_guard lock(mutex_);
    if (const auto offset = space_.allocate(length)) {
      used_[base_ + *offset] = length;
      return base_ + *offset;
    }
  }
  const Result<uint64_t> own = engine_->allocate(length, "*");
  if (!own.ok()) return 0;
  std::lock_guard lock(mutex_);
  large_[*own] = length;
  return *own;
}

bool Staging::release(uint64_t address) {
  std::unique_lock lock(mutex_);
  if (const auto used = used_.find(address); used != used_.end()) {
    space_.free(address - base_, used->second);
    used_.erase(used);
    return true;
  }
  if (large_.erase(address) == 0) return false;
  lock.unlock();
  (void)engine_->free(address);
  return true;
}

Usable::Usable(engine::Engine& engine, Staging& staging, uint64_t address, uint64_t length, bool copy_in)
    : engine_(&engine), staging_(&staging), original_(address), length_(length) {
  if (length == 0 || staging.registered(address, length)) {
    address_ = address;
    return;
  }
  if (length > kCopyUpTo && engine.register_memory(address, length, "*", Permission::kNone).ok()) {
    registered_here_ = true;
    address_ = address;
    return;
  }
  address_ = staging.allocate(length);
  staged_ = address_ != 0;
  if (staged_ && copy_in) copy_bytes(reinterpret_cast<void*>(address_), reinterpret_cast<const void*>(address), length);
}

Usable::Usable(Usable&& other) noexcept
    : engine_(other.engine_),
      staging_(other.staging_),
      original_(other.original_),
      length_(other.length_),
      address_(other.address_),
      registered_here_(std::exchange(other.registered_here_, false)),
      staged_(std::exchange(other.staged_, false)) {}

Usable::~Usable() {
  if (registered_here_) (void)engine_->unregister_memory(original_);
  if (staged_) staging_->release(address_);
}

void Usable::copy_out() const {
  if (staged_) copy_bytes(reinterpret_cast<void*>(original_), reinterpret_cast<const void*>(address_), length_);
}

}  // namespace tidewire::store
