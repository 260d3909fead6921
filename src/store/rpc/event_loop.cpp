// SPDX-License-Identifier: Apache-2.0
#include "store/rpc/event_loop.h"

#include <system_error>

#include "base/thread.h"
#include "control/loop.h"

namespace tidewire::store {

Status EventLoop::start() {
  std::lock_guard join_lock(join_mutex_);
  std::lock_guard lock(mutex_);
  if (stopped_) return Status(tidewire::Code::kClosed, name_ + " was stopped already");
  if (thread_.joinable()) return Status(tidewire::Code::kInvalidArgument, name_ + " was started already");
  try {
    thread_ = start_thread(name_, [this] {
      thread_id_ = std::this_thread::get_id();
      io_.run();
      thread_id_ = std::thread::id();  // the system gives ids out again
    });
  } catch (const std::system_error& error) {
    return Status::error(tidewire::Code::kNoResources, "{}: can't start a thread: {}", name_, error.what());
  }
  return Status();
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
}

}  // namespace tidewire::store
