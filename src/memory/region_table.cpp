// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "memory/drain_signal.h"
#include "memory/region.h"

namespace tidewire {
namespace {

constexpr size_t kMaxRememberedFailures = 1024;

std::string range_text(uint64_t address, uint64_t length) {
  return fmt::format("[{:#x}, {:#x})", address, address + length);
}

bool identical(const Region& a, const Region& b) {
  return a.address == b.address && a.length == b.length && a.permission == b.permission && a.location == b.location;
}

Status check_range(uint64_t address, uint64_t length) {
  if (address == 0) return Status(Code::kInvalidArgument, "the address of a range must not be null");
  if (length == 0)
    return Status::error(Code::kInvalidArgument, "the range at {:#x} has length 0; give at least 1 byte", address);
  if (address + length < address) {
    return Status::error(Code::kInvalidArgument, "the range at {:#x} of {} bytes wraps around the address space",
                         address, length);
  }
  return {};
}

}  // namespace

DrainSignal& DrainSignal::get() {
  static DrainSignal* const signal = new DrainSignal;
  return *signal;
}

void RegionTable::set_observer(Observer* observer) {
  std::vector<std::shared_ptr<Region>> existing;
  {
    std::unique_lock lock(mutex_);
    observer_ = observer;
    for (const auto& [address, entry] : entries_) existing.push_back(entry.region);
  }
  if (observer == nullptr) return;
  for (const auto& region : existing) (void)observer->region_added(*region);
}

Status RegionTable::add(uint64_t address, uint64_t length, const std::string& location, Permission permission,
                        PoolBacking backing) {
  return add_all({{address, length}}, location, permission, backing);
}

Status RegionTable::add_many(const std::vector<Range>& ranges, const std::string& location, Permission permission) {
  return add_all(ranges, location, permission, {});
}

Status RegionTable::check_free(const Region& region) const {
  auto next = entries_.lower_bound(region.address);
  for (const auto* side :
       {next == entries_.begin() ? nullptr : &*std::prev(next), next == entries_.end() ? nullptr : &*next}) {
    if (side == nullptr) continue;
    const Region& other = *side->second.region;
    if (identical(region, other)) return Status(Code::kBusy, "registered already");
    if (region.address < other.end() && other.address < region.end()) {
      return Status::error(Code::kOverlap,
                           "range {} at {} (permission {}) overlaps the registered range {} at {} (permission {}); "
                           "register the identical range, or unregister the other first",
                           range_text(region.address, region.length), region.location,
                           static_cast<int>(region.permission), range_text(other.address, other.length), other.location,
                           static_cast<int>(other.permission));
    }
  }
  return {};
}

void RegionTable::assign_slot(Region& region) {
  if (free_slots_.empty()) {
    region.slot = static_cast<uint32_t>(slot_epochs_.size());
    slot_epochs_.push_back(0);
  } else {
    region.slot = free_slots_.back();
    free_slots_.pop_back();
  }
  if (++slot_epochs_[region.slot] == 0) slot_epochs_[region.slot] = 1;
  region.epoch = slot_epochs_[region.slot];
}

// Inserts all or none. Identical ranges are counted, and their new Region objects are handed back in *counted.
Status RegionTable::insert(const std::vector<std::shared_ptr<Region>>& regions,
                           std::vector<std::shared_ptr<Region>>* counted, size_t* failed_at) {
  std::unique_lock lock(mutex_);
  Status status;
  size_t done = 0;
  for (; done < regions.size(); ++done) {
    const auto& region = regions[done];
    status = check_free(*region);
    if (status.code() == Code::kBusy) {
      status = {};
      ++entries_.find(region->address)->second.count;
      counted->push_back(region);
      continue;
    }
    if (!status.ok()) break;
    region->number = next_number_++;
    entries_.emplace(region->address, Entry{region, 1});
    if (region->permission != Permission::kNone) by_number_.emplace_hint(by_number_.end(), region->number, region);
    registered_bytes_ += region->length;
  }
  if (status.ok()) {
    for (const auto& region : regions) failed_.erase(region->address);
    return {};
  }
  *failed_at = done;
  for (size_t i = 0; i < done; ++i) {
    auto entry = entries_.find(regions[i]->address);
    if (--entry->second.count > 0) continue;
    registered_bytes_ -= entry->second.region->length;
    by_number_.erase(entry->second.region->number);
    entries_.erase(entry);
  }
  return status;
}

Status RegionTable::add_all(const std::vector<Range>& ranges, const std::string& location, Permission permission,
                            PoolBacking backing) {
  const auto fail = [&](size_t index, const Status& status) {
    // Null, empty and wrapped ranges can't be touched by a transfer, so there is nothing to remember of them.
    if (check_range(ranges[index].address, ranges[index].length).ok()) remember(ranges[index], status);
    if (ranges.size() == 1) return status;
    return status.with_context(fmt::format("range {} of {} at {:#x}", index, ranges.size(), ranges[index].address));
  };

  std::vector<std::shared_ptr<Region>> regions;
  regions.reserve(ranges.size());
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (Status status = check_range(ranges[i].address, ranges[i].length); !status.ok()) return fail(i, status);
    auto located = locate_memory(ranges[i].address, ranges[i].length, location);
    if (!located.ok()) return fail(i, located.status());
    auto region = std::make_shared<Region>();
    region->address = ranges[i].address;
    region->length = ranges[i].length;
    region->location = located->location;
    region->kind = located->kind;
    region->device = located->device;
    region->permission = permission;
    region->backing = backing;
    regions.push_back(std::move(region));
  }

  // A slot is needed before the observer is told, the observer is told before the region can be found, and all that
  // happens outside of the lock: so look first, and look again when inserting.
  std::vector<std::shared_ptr<Region>> fresh;
  {
    std::unique_lock lock(mutex_);
    for (size_t i = 0; i < regions.size(); ++i) {
      Status status = check_free(*regions[i]);
      if (status.code() == Code::kBusy) continue;
      if (!status.ok()) {
        for (const auto& region : fresh) free_slots_.push_back(region->slot);
        lock.unlock();
        return fail(i, status);
      }
      assign_slot(*regions[i]);
      fresh.push_back(regions[i]);
    }
  }
  Observer* const observer = observer_;
  const auto withdraw = [&](size_t told, const std::vector<std::shared_ptr<Region>>& unwanted) {
    for (size_t i = 0; i < told && observer != nullptr; ++i) observer->region_removing(*unwanted[i], monotonic_now());
    std::unique_lock lock(mutex_);
    for (const auto& region : unwanted) {
      if (region->epoch != 0) free_slots_.push_back(region->slot);
    }
  };
  if (observer != nullptr) {
    for (size_t i = 0; i < fresh.size(); ++i) {
      Status status = observer->region_added(*fresh[i]);
      if (status.ok()) continue;
      withdraw(i, fresh);
      const auto index = std::find(regions.begin(), regions.end(), fresh[i]) - regions.begin();
      return fail(static_cast<size_t>(index), status);
    }
  }
  size_t failed_at = 0;
  std::vector<std::shared_ptr<Region>> counted;
  Status status = insert(regions, &counted, &failed_at);
  if (!status.ok()) {
    withdraw(fresh.size(), fresh);
    return fail(failed_at, status);
  }
  std::erase_if(counted, [](const auto& region) { return region->epoch == 0; });  // never had a slot
  if (!counted.empty()) withdraw(counted.size(), counted);
  return {};
}

void RegionTable::remember(const Range& range, const Status& status) {
  std::unique_lock lock(mutex_);
  if (failed_.size() >= kMaxRememberedFailures) failed_.erase(failed_.begin());
  failed_.insert_or_assign(range.address, Failure{range.length, status});
}

Status RegionTable::remove(uint64_t address, Nanos drain) {
  return remove_many({address}, drain);
}

Status RegionTable::remove_many(const std::vector<uint64_t>& addresses, Nanos drain) {
  const Nanos deadline = monotonic_now() + drain;
  std::vector<std::shared_ptr<Region>> gone;
  Status status;
  {
    std::unique_lock lock(mutex_);
    for (size_t i = 0; i < addresses.size(); ++i) {
      auto entry = entries_.find(addresses[i]);
      auto failure = failed_.find(addresses[i]);
      if (entry == entries_.end()) {
        if (status.ok()) {
          status = Status::error(
              Code::kNotFound, "no registered range starts at {:#x}{}", addresses[i],
              failure == failed_.end() ? "" : "; its registration failed: " + failure->second.status.message());
          if (addresses.size() > 1) status = status.with_context(fmt::format("range {} of {}", i, addresses.size()));
        }
        if (failure != failed_.end()) failed_.erase(failure);
        continue;
      }
      if (failure != failed_.end()) failed_.erase(failure);
      if (--entry->second.count > 0) continue;
      const auto& region = entry->second.region;
      region->draining.store(true, std::memory_order_seq_cst);
      registered_bytes_ -= region->length;
      by_number_.erase(region->number);
      gone.push_back(region);
      entries_.erase(entry);
    }
  }
  drain_and_forget(gone, deadline);
  return status;
}

void RegionTable::clear() {
  std::vector<std::shared_ptr<Region>> gone;
  {
    std::unique_lock lock(mutex_);
    for (auto& [address, entry] : entries_) {
      entry.region->draining.store(true, std::memory_order_seq_cst);
      gone.push_back(std::move(entry.region));
    }
    entries_.clear();
    by_number_.clear();
    failed_.clear();
    registered_bytes_ = 0;
  }
  drain_and_forget(gone, monotonic_now() + 400 * kMillisecond);
}

void RegionTable::drain_and_forget(const std::vector<std::shared_ptr<Region>>& regions, Nanos deadline) {
  auto& signal = DrainSignal::get();
  Observer* const observer = observer_;
  for (const auto& region : regions) {
    if (observer != nullptr) observer->region_removing(*region, deadline);
    const auto unused = [&] { return region->uses.load(std::memory_order_seq_cst) == 0; };
    if (!unused()) signal.wait(deadline, unused);
    region->cut.store(true, std::memory_order_seq_cst);
    const auto unpinned = [&] { return region->pins.load(std::memory_order_seq_cst) == 0; };
    if (!unpinned()) signal.wait(kNever, unpinned);
  }
  if (regions.empty()) return;
  std::unique_lock lock(mutex_);
  for (const auto& region : regions) free_slots_.push_back(region->slot);
}

Status RegionTable::use(uint64_t address, uint64_t length, Access access, RangeHold& hold) {
  if (Region* last = hold.last_; last != nullptr && address >= last->address && length <= last->length &&
                                 address - last->address <= last->length - length && last->allows(access) &&
                                 !last->draining.load(std::memory_order_relaxed)) {
    return {};
  }
  if (length == 0) return {};
  if (address + length < address) {
    return Status::error(Code::kInvalidArgument, "the range at {:#x} of {} bytes wraps around the address space",
                         address, length);
  }
  std::vector<std::shared_ptr<Region>> parts;
  {
    std::shared_lock lock(mutex_);
    uint64_t at = address;
    auto entry = entries_.upper_bound(at);
    if (entry != entries_.begin()) --entry;
    for (; at - address < length; ++entry) {
      if (entry == entries_.end() || at < entry->second.region->address || at >= entry->second.region->end()) {
        return refusal(address, length, at);
      }
      const auto& region = entry->second.region;
      if (!region->allows(access)) {
        return Status::error(Code::kPermissionDenied,
                             "range {} lies in the region {}, which forbids remote {}; register it with permission {}",
                             range_text(address, length), range_text(region->address, region->length),
                             access == Access::kRemoteWrite ? "writes" : "reads",
                             access == Access::kRemoteWrite ? "read-write" : "read");
      }
      parts.push_back(region);
      at = region->end();
      if (at == 0) break;  // the last byte of the address space
    }
    // Counted under the lock: a remover takes the region out under the exclusive lock first, so it sees this use.
    for (auto& region : parts) {
      auto after = std::upper_bound(hold.regions_.begin(), hold.regions_.end(), region->address,
                                    [](uint64_t value, const auto& held) { return value < held->address; });
      if (after != hold.regions_.begin() && *std::prev(after) == region) continue;
      region->uses.fetch_add(1, std::memory_order_relaxed);
      hold.regions_.insert(after, region);
    }
  }
  hold.last_ = parts.back().get();
  return {};
}

Status RegionTable::refusal(uint64_t address, uint64_t length, uint64_t missing) const {
  for (const auto& [start, failure] : failed_) {
    if (start < address + length && address < start + failure.length) {
      return failure.status.with_context(
          fmt::format("range {} touches memory whose registration failed", range_text(address, length)));
    }
  }
  return Status::error(Code::kNotRegistered,
                       "range {} is not covered by registered regions from {:#x} on; register it first",
                       range_text(address, length), missing);
}

std::shared_ptr<Region> RegionTable::find(uint64_t address) const {
  std::shared_lock lock(mutex_);
  auto entry = entries_.upper_bound(address);
  if (entry == entries_.begin()) return nullptr;
  const auto& region = std::prev(entry)->second.region;
  return address < region->end() ? region : nullptr;
}

std::shared_ptr<Region> RegionTable::first() const {
  std::shared_lock lock(mutex_);
  return by_number_.empty() ? nullptr : by_number_.begin()->second;
}

size_t RegionTable::size() const {
  std::shared_lock lock(mutex_);
  return entries_.size();
}

uint64_t RegionTable::registered_bytes() const {
  std::shared_lock lock(mutex_);
  return registered_bytes_;
}

}  // namespace tidewire
