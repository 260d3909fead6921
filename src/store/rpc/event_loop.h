// SPDX-License-Identifier: Apache-2.0
//
// EventLoop: tasks and Asio's callbacks, one at a time, with an end that loses nothing: what was posted before stop()
// runs before its last task, what comes after is refused. After fork() the child's copy must not be touched, not even
// destroyed.
//
// A thread of its own runs it, unless a caller waits for something that comes over it: then that caller has the turn
// and runs it, so that neither its request nor the answer has to wake another thread. "The loop thread" is whoever has
// the turn. The own thread takes it back once no caller came for kLinger.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
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
#include "control/loop.h"

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
    if (!enqueue(std::move(task))) return false;
    nudge();
    return true;
  }

  // One caller's wait for something that happens on the loop.
  class Waiter {
    friend class EventLoop;
    bool done_ = false;  // under turn_mutex_
    std::condition_variable woken_;
  };
  // Posts the task, then returns once it, or what followed from it, has called wake(). Any thread but the one that has
  // the turn. False when stop() was called before; then the task was destroyed.
  template <typename Task>
  bool run_and_wait(Waiter& waiter, Task task) {
    claim();
    const bool posted = enqueue(std::move(task));
    take_turns(waiter, posted);
    return posted;
  }
  // On the loop, once.
  void wake(Waiter& waiter);

  // At or after `when`; stop() drops it.
  bool run_at(Nanos when, std::function<void()> task);

  bool on_thread() const { return thread_id_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }
  bool forked() const { return generation_ != fork_generation(); }

  // Runs `last` on the loop as its end, once, then waits for the thread and for the callers in run_and_wait(), which
  // `last` must wake. Further calls wait only. Called on the loop it returns before the end. Without a start() the
  // caller runs what is left.
  void stop(std::function<void()> last);

 private:
  template <typename Task>
  bool enqueue(Task task) {
    std::lock_guard lock(mutex_);
    if (stopped_) return false;
    asio::post(io_, std::move(task));
    return true;
  }
  void run_by_thread();
  // The own thread runs the loop at once if nobody does.
  void nudge();
  // It is to give the turn to a caller.
  void claim();
  void take_turns(Waiter& waiter, bool posted);

  const std::string name_;
  const uint32_t generation_ = fork_generation();
  std::mutex mutex_;  // of stopped_
  bool stopped_ = false;
  std::mutex join_mutex_;  // of thread_
  asio::io_context io_{1};
  control::Runner runner_{io_};  // of who has the turn
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  std::thread thread_;
  std::atomic<std::thread::id> thread_id_{};  // of who has the turn

  std::mutex turn_mutex_;
  std::condition_variable idle_;      // of the own thread
  std::deque<Waiter*> waiters_;       // callers that are not done
  std::atomic<bool> taken_{false};    // somebody has the turn; changed under turn_mutex_
  std::atomic<bool> claimed_{false};  // the own thread should give it up
  bool thread_has_it_ = false;
  bool nudged_ = false;
  Nanos released_at_ = 0;  // by a caller
};

}  // namespace tidewire::store
