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
  if (count_ == kMost) {
    const Status status = wait();
    failed_ = status;
  }
  queues_[count_++] = {region.kind, region.device, from_host, address, nullptr, {}};
}

void CopyGroup::seal() {
  if (sealed_) return;
  sealed_ = true;
  for (size_t i = 0; i < count_; ++i) {
    Queue& queue = queues_[i];
    queue.marked = queue.kind->mark(queue.device, queue.from_host, &queue.mark);
  }
}

Status CopyGroup::wait() {
  if (count_ == 0) return {};
  seal();
  Status first = failed_;
  for (size_t i = 0; i < count_; ++i) {
    const Queue& queue = queues_[i];
    const Status status = queue.marked.ok() ? queue.kind->await(queue.device, queue.mark) : queue.marked;
    if (!status.ok() && first.ok()) {
      first = status.with_context(fmt::format("copying {} {}:{} from {:#x} on", queue.from_host ? "to" : "from",
                                              queue.kind->name(), queue.device, queue.first));
    }
  }
  count_ = 0;
  sealed_ = false;
  failed_ = Status();
  return first;
}

}  // namespace tidewire
