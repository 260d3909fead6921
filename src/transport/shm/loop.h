// SPDX-License-Identifier: Apache-2.0
//
// Loop: the one thread of the same-host transport that does I/O: it accepts peers, sets channels up, answers and asks
// for regions, and hears of deaths. It sleeps while nothing happens. Watch: a descriptor that the loop waits for.
#pragma once

// Before Asio, whose configuration asks libstdc++'s: otherwise this file would allocate unlike others that include
// Asio.
#include <cstddef>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace tidewire::transport::shm {

class Loop {
 public:
  // kNoResources when the process has no descriptor or thread left.
  static Result<std::unique_ptr<Loop>> start();
  ~Loop() { stop(); }

  // Runs the task on the loop's thread; dropped after stop(). Any thread.
  void post(std::function<void()> task) { asio::post(context_, std::move(task)); }
  // Ends the thread; what is queued is dropped. Not from the loop's thread.
  void stop();
  asio::io_context& context() { return context_; }

 private:
  Loop() : context_(1), work_(asio::make_work_guard(context_)) {}
  asio::io_context context_;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
  std::thread thread_;
};

// All of it on the loop's thread. The callback may destroy the Watch.
class Watch {
 public:
  // Owns the descriptor. kNoResources when it can't be watched.
  static Result<std::unique_ptr<Watch>> create(Loop& loop, UniqueFd fd);
  ~Watch();
  int fd() { return descriptor_->native_handle(); }
  // Calls ready() each time the descriptor is readable, until it returns false or the Watch is gone.
  void on_readable(std::function<bool()> ready);
  // Calls ready() once.
  void when_writable(std::function<void()> ready);

 private:
  explicit Watch(Loop& loop) : descriptor_(std::make_shared<asio::posix::stream_descriptor>(loop.context())) {}
  struct Reader;
  std::shared_ptr<asio::posix::stream_descriptor> descriptor_;
};

// A one-shot timer; setting it again moves it, destroying it cancels it.
class Timer {
 public:
  explicit Timer(Loop& loop) : timer_(loop.context()) {}
  void at(Nanos when, std::function<void()> action);
  void cancel() { timer_.cancel(); }

 private:
  asio::steady_timer timer_;
};

}  // namespace tidewire::transport::shm
