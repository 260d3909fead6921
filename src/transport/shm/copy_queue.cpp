// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/copy_queue.h"

#include <algorithm>
#include <system_error>

#include "base/clock.h"
#include "base/log.h"
#include "base/processors.h"
#include "base/thread.h"
#include "transport/shm/channel.h"

namespace tidewire::transport::shm {
namespace {

// About one chunk: the other thread of a transfer finishes its last, and the next transfer comes. Sleeping and waking
// takes longer.
constexpr Nanos kSpin = 20 * kMicrosecond;

int64_t thread_count(int64_t wanted) {
  if (wanted > 0) return wanted;
  return std::clamp<int64_t>(int64_t{processors()} - 1, 1, 4);
}

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

CopyQueue::CopyQueue(int64_t threads) : wanted_threads_(thread_count(threads)) {}

bool CopyQueue::push(const WorkPtr& work) {
  return add(work, false, 0);
}

bool CopyQueue::push_again(const WorkPtr& work, uint32_t chunk) {
  return add(work, true, chunk);
}

bool CopyQueue::add(const WorkPtr& work, bool again, uint32_t chunk) {
  bool wake = false;
  bool served;
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return true;
    if (!started_) {
      started_ = true;
      for (int64_t i = 0; i < wanted_threads_; ++i) {
        try {
          workers_.push_back(start_thread("tw-shm-copy", [this, i] { work_loop(static_cast<size_t>(i) + 1); }));
        } catch (const std::system_error& error) {
          log::warn("shm_threads",
                    "started {} of {} copy threads: {}; lower threads.copy or raise the limit on threads",
                    workers_.size(), wanted_threads_, error.what());
          break;
        }
      }
    }
    if (again) {
      work->again.push_back(chunk);
      waiting_.fetch_add(1, std::memory_order_release);
    } else {
      const size_t chunks = work->chunks.size();
      work->untaken = static_cast<uint32_t>(chunks);
      waiting_.fetch_add(chunks, std::memory_order_release);
    }
    if (!work->queued) {
      work->queued = true;
      queue_.push_back(work);
    }
    wake = idle_ > 0;
    served = !workers_.empty();
  }
  if (wake) wake_.notify_one();
  return served;
}

bool CopyQueue::take(const Channel* only, size_t thread, Taken* out) {
  for (auto item = queue_.begin(); item != queue_.end(); ++item) {
    Work& work = **item;
    if (only != nullptr && work.channel.get() != only) continue;
    if (!work.again.empty()) {
      out->chunk = work.again.back();
      work.again.pop_back();
    } else {
      Work::Stretch& own = work.stretches[thread % work.stretches.size()];
      if (own.next < own.end) {
        out->chunk = own.next++;
      } else {
        const auto left = [](const Work::Stretch& stretch) { return stretch.end - stretch.next; };
        auto& longest = *std::max_element(work.stretches.begin(), work.stretches.end(),
                                          [&](const auto& a, const auto& b) { return left(a) < left(b); });
        out->chunk = --longest.end;
      }
      --work.untaken;
    }
    out->work = *item;
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    if (work.again.empty() && work.untaken == 0) {
      work.queued = false;
      queue_.erase(item);
    }
    return true;
  }
  return false;
}

bool CopyQueue::run_one(const Channel* only) {
  if (waiting_.load(std::memory_order_acquire) == 0) return false;
  Taken taken;
  {
    std::lock_guard lock(mutex_);
    if (!take(only, 0, &taken)) return false;
  }
  taken.work->channel->run(taken.work, taken.chunk);
  return true;
}

void CopyQueue::work_loop(size_t thread) {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    Taken taken;
    if (take(nullptr, thread, &taken)) {
      // One chunk wakes one worker; the woken one wakes the next while there is more.
      const bool more = !queue_.empty() && idle_ > 0;
      lock.unlock();
      if (more) wake_.notify_one();
      taken.work->channel->run(taken.work, taken.chunk);
      taken.work.reset();
      lock.lock();
      continue;
    }
    lock.unlock();
    const Nanos until = monotonic_now() + kSpin;
    while (waiting_.load(std::memory_order_acquire) == 0 && monotonic_now() < until) pause_processor();
    lock.lock();
    if (!queue_.empty()) continue;
    ++idle_;
    wake_.wait(lock, [&] { return stopped_ || !queue_.empty(); });
    --idle_;
  }
}

void CopyQueue::drop(const Channel* channel) {
  std::vector<WorkPtr> dropped;  // destroyed outside of the lock
  std::lock_guard lock(mutex_);
  for (auto item = queue_.begin(); item != queue_.end();) {
    if ((*item)->channel.get() != channel) {
      ++item;
      continue;
    }
    waiting_.fetch_sub((*item)->untaken + (*item)->again.size(), std::memory_order_relaxed);
    (*item)->queued = false;
    dropped.push_back(std::move(*item));
    item = queue_.erase(item);
  }
}

void CopyQueue::stop() {
  std::vector<std::thread> workers;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    workers.swap(workers_);
  }
  wake_.notify_all();
  for (auto& worker : workers) worker.join();
}

}  // namespace tidewire::transport::shm
