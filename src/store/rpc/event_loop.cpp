// SPDX-License-Identifier: Apache-2.0
#include "store/rpc/event_loop.h"

#include <system_error>

#include "base/thread.h"
#include "control/loop.h"

namespace tidewire::store {
namespace {
// Longer than what a caller with small objects does between two questions to the master; short, because so long the
// master may wait for an answer.
constexpr Nanos kLinger = kMillisecond;
// For a caller that waits for an answer, which a master gives as soon as it can.
constexpr Nanos kCallerSpin = 200 * kMicrosecond;
}  // namespace

Status EventLoop::start() {
  std::lock_guard join_lock(join_mutex_);
  std::lock_guard lock(mutex_);
  if (stopped_) return Status(tidewire::Code::kClosed, name_ + " was stopped already");
  if (thread_.joinable()) return Status(tidewire::Code::kInvalidArgument, name_ + " was started already");
  try {
    thread_ = start_thread(name_, [this] { run_by_thread(); });
  } catch (const std::system_error& error) {
    return Status::error(tidewire::Code::kNoResources, "{}: can't start a thread: {}", name_, error.what());
  }
  return Status();
}

void EventLoop::run_by_thread() {
  std::unique_lock lock(turn_mutex_);
  while (true) {
    if (!taken_) {
      taken_ = thread_has_it_ = true;
      thread_id_ = std::this_thread::get_id();
      lock.unlock();
      while (!claimed_.load() && runner_.next(control::kLoopSpin)) {
      }
      lock.lock();
      thread_id_ = std::thread::id();  // the system gives ids out again
      taken_ = thread_has_it_ = claimed_ = false;
      if (!waiters_.empty()) waiters_.front()->woken_.notify_one();
      if (io_.stopped()) return;
    }
    // Callers run it as long as they come one after the other.
    for (bool lingering = true; lingering;) {
      nudged_ = false;
      idle_.wait_for(lock, std::chrono::nanoseconds(kLinger), [this] { return nudged_ && !taken_; });
      lingering = taken_ || !waiters_.empty() || (!nudged_ && monotonic_now() < released_at_ + kLinger);
    }
  }
}

void EventLoop::nudge() {
  if (taken_.load()) return;
  std::lock_guard lock(turn_mutex_);
  nudged_ = true;
  idle_.notify_one();
}

void EventLoop::claim() {
  std::lock_guard lock(turn_mutex_);
  if (thread_has_it_) claimed_ = true;
}

void EventLoop::take_turns(Waiter& waiter, bool posted) {
  std::unique_lock lock(turn_mutex_);
  if (posted) {
    waiters_.push_back(&waiter);
    while (!waiter.done_ && !io_.stopped()) {
      if (taken_) {
        waiter.woken_.wait(lock);
        continue;
      }
      taken_ = true;
      thread_id_ = std::this_thread::get_id();
      lock.unlock();
      while (!waiter.done_ && runner_.next(kCallerSpin)) {
      }
      lock.lock();
      thread_id_ = std::thread::id();
      taken_ = false;
      released_at_ = monotonic_now();
    }
    std::erase(waiters_, &waiter);
  }
  if (taken_) return;
  if (!waiters_.empty()) {
    waiters_.front()->woken_.notify_one();
  } else if (io_.stopped()) {
    nudged_ = true;
    idle_.notify_all();  // the own thread, and stop()
  }
}

void EventLoop::wake(Waiter& waiter) {
  std::lock_guard lock(turn_mutex_);
  waiter.done_ = true;
  waiter.woken_.notify_one();
}

bool EventLoop::run_at(Nanos when, std::function<void()> task) {
  return post([this, when, task = std::move(task)]() mutable {
    auto timer = std::make_shared<asio::steady_timer>(io_);
    control::call_at(*timer, when, [timer, task = std::move(task)] { task(); });
  });
}

void EventLoop::stop(std::function<void()> last) {
  {
    std::lock_guard lock(mutex_);
    if (!stopped_) {
      stopped_ = true;
      // Posted last: what was submitted before runs before.
      asio::post(io_, [this, last = std::move(last)] {
        last();
        work_.reset();
        io_.stop();
      });
    }
  }
  if (on_thread()) return;
  std::lock_guard join_lock(join_mutex_);
  if (thread_.joinable()) {
    thread_.join();
  } else if (!io_.stopped()) {
    thread_id_ = std::this_thread::get_id();
    io_.run();
    thread_id_ = std::thread::id();
  }
  // Callers that were told are on their way out of here.
  std::unique_lock lock(turn_mutex_);
  idle_.wait(lock, [this] { return waiters_.empty(); });
}

}  // namespace tidewire::store
