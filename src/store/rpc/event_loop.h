// SPDX-License-Identifier: Apache-2.0
//
// EventLoop: one thread that runs tasks and Asio's callbacks, with an end that loses nothing: what was posted before
// stop() runs before its last task, what comes after is refused. After fork() the child's copy must not be touched, not
// even destroyed.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/fork_guard.h"
#include "base/status.h"
#include "control/asio.h"

namespace tidewire::store {

class EventLoop {
 public:
  // Throws std::system_error without descriptors for the loop.
  explicit EventLoop(std::string thread_name) : name_(std::move(thread_name)) {}
  EventLoop(const EventLoop&) = delete;

  asio::io_context& io() { return io_; }
  // Starts the thread; once.
  Status start();

  // Any thread. False, and the task is destroyed, once stop() was called.
  template <typename Task>
  bool post(Task task) {
    std::lock_guard lock(mutex_);
    if (stopped_) return false;
    asio::post(io_, std::move(task));
    return true;
  }
  // At or after `when`; stop() drops it.
  bool run_at(Nanos when, std::function<void()> task);

  bool on_thread() const { return thread_id_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }
  bool forked() const { return generation_ != fork_generation(); }

  // Runs `last` on the loop as its end, once, then waits for the thread. Further calls wait only. On the loop's own
  // thread it returns before the end. Without a start() the caller runs what is left.
  void stop(std::function<void()> last);

 private:
  const std::string name_;
  const uint32_t generation_ = fork_generation();
  std::mutex mutex_;  // of stopped_
  bool stopped_ = false;
  std::mutex join_mutex_;  // of thread_
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  std::thread thread_;
  std::atomic<std::thread::id> thread_id_{};
};

}  // namespace tidewire::store
