// SPDX-License-Identifier: Apache-2.0
#include "memory/copy_group.h"

#include "memory/region.h"

namespace tidewire {

Status CopyGroup::to_host(const Region& region, void* host, uint64_t address, uint64_t length) {
  note(region, address, false);
  return region.kind->start_to_host(host, address, length, region.device);
}

Status CopyGroup::from_host(const Region& region, uint64_t address, const void* host, uint64_t length) {
  note(region, address, true);
  return region.kind->start_from_host(address, host, length, region.device);
}

// Before the copy is started: what fails half-way is awaited too.
void CopyGroup::note(const Region& region, uint64_t address, bool from_host) {
  for (size_t i = 0; i < count_; ++i) {
    const Queue& queue = queues_[i];
    if (queue.kind == region.kind && queue.device == region.device && queue.from_host == from_host) return;
  }
  if (count_ == kMost) failed_ = wait();
  queues_[count_++] = {region.kind, region.device, from_host, address};
}

Status CopyGroup::wait() {
  Status first = failed_;
  for (size_t i = 0; i < count_; ++i) {
    const Status status = queues_[i].kind->wait_started(queues_[i].device, queues_[i].from_host);
    if (!status.ok() && first.ok()) {
      const Queue& queue = queues_[i];
      first = status.with_context(fmt::format("copying {} {}:{} from {:#x} on", queue.from_host ? "to" : "from",
                                              queue.kind->name(), queue.device, queue.first));
    }
  }
  count_ = 0;
  failed_ = Status();
  return first;
}

}  // namespace tidewire
