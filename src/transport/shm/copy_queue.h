// SPDX-License-Identifier: Apache-2.0
//
// CopyQueue: the chunks that wait for a thread, and the worker threads that take them. A thread that waits for a
// transfer takes from the same queue, so that it and a worker share one slice. Workers start with the first chunk, spin
// for a few microseconds when they run dry, then sleep.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/shm/copier.h"
#include "transport/transport.h"

namespace tidewire::transport::shm {

class Channel;

// A slice that is copied in chunks by several threads.
struct Work {
  std::shared_ptr<Channel> channel;
  SlicePtr slice;
  std::vector<Chunk> chunks;
  std::atomic<uint32_t> unfinished{0};  // chunks; 1 while it is not admitted
  uint64_t asked_for = 0;               // the first unknown address of the last question, while it is not admitted
  bool admitted = false;                // all its ranges were known and allowed before the first byte moved
  std::atomic<bool> failed{false};
  std::mutex mutex;
  Status status;  // the first failure

  // Of the queue. Each thread has a stretch of the chunks and goes through it from the front; when it is done it takes
  // from the back of the longest that is left. Threads that work on neighbouring chunks would meet at the kernel's page
  // table locks (one for 2 MiB): a third of the speed of process_vm.
  struct Stretch {
    uint32_t next = 0;
    uint32_t end = 0;
  };
  std::vector<Stretch> stretches;
  uint32_t untaken = 0;         // chunks in all of them
  std::vector<uint32_t> again;  // chunks that had to wait for an answer
  bool queued = false;
};
using WorkPtr = std::shared_ptr<Work>;

class CopyQueue {
 public:
  // threads <= 0: automatic, one less than processors, 1 to 4.
  explicit CopyQueue(int64_t threads);
  ~CopyQueue() { stop(); }

  // False when there is no worker and none could be started: somebody must call run_one.
  bool push(const WorkPtr& work);
  bool push_again(const WorkPtr& work, uint32_t chunk);
  // Copies one chunk on the calling thread; only of that channel unless it is nullptr. False when there was none.
  bool run_one(const Channel* only);
  // Takes the channel's chunks out; those being copied go on.
  void drop(const Channel* channel);
  // Ends the workers. Idempotent.
  void stop();

  size_t threads() const { return static_cast<size_t>(wanted_threads_); }
  size_t waiting() const { return waiting_.load(std::memory_order_relaxed); }

 private:
  struct Taken {
    WorkPtr work;
    uint32_t chunk = 0;
  };
  bool add(const WorkPtr& work, bool again, uint32_t chunk);
  bool take(const Channel* only, size_t thread, Taken* out);  // under mutex_
  void work_loop(size_t thread);

  const int64_t wanted_threads_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<WorkPtr> queue_;
  std::vector<std::thread> workers_;
  size_t idle_ = 0;
  bool started_ = false;
  bool stopped_ = false;
  std::atomic<size_t> waiting_{0};  // chunks in the queue
};

}  // namespace tidewire::transport::shm
