// SPDX-License-Identifier: Apache-2.0
//
// IoThread: one epoll loop, named tw-tcp-N, on which lanes live. It sleeps without a timeout when no lane asked for a
// tick.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace tidewire::transport::tcp {

// What lives on an IoThread. Both are called on that thread only.
class IoHandler {
 public:
  virtual ~IoHandler() = default;
  virtual void on_io(uint32_t epoll_events) = 0;
  // Returns when it wants to be called again; kNever: not by itself.
  virtual Nanos on_tick(Nanos now) = 0;
};

class IoThread {
 public:
  using Token = uint64_t;

  // Starts the thread. kNoResources when the process has no descriptors or threads left.
  static Result<std::shared_ptr<IoThread>> start(int index);
  ~IoThread();

  // Any thread. Tasks run in order, on the thread; dropped once stopped.
  void run(std::function<void()> task);
  // Any thread. Calls the handler's on_tick soon.
  void request_tick(Token token);
  // Any thread, while the descriptor is open and added.
  void set_events(int fd, Token token, uint32_t epoll_events);

  // On the thread only (inside a task or handler).
  void add(Token token, int fd, uint32_t epoll_events, std::shared_ptr<IoHandler> handler);
  void add_timer_only(Token token, std::shared_ptr<IoHandler> handler);
  void remove(Token token, int fd);  // fd -1: had none
  bool on_this_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

  Token next_token() { return next_token_.fetch_add(1, std::memory_order_relaxed); }
  // Runs the tasks that are queued, then ends the loop and joins. Not from the thread itself.
  void stop();

 private:
  IoThread(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  void loop();
  void run_tasks();
  void run_ticks(Nanos now);
  void tick(Token token, Nanos now);
  int timeout_ms() const;

  struct Slot {
    std::shared_ptr<IoHandler> handler;
    Nanos due = kNever;
  };

  UniqueFd epoll_;
  UniqueFd wake_;
  std::thread thread_;
  std::atomic<Token> next_token_{1};

  mutable std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::atomic<bool> wake_pending_{false};

  // On the thread only.
  std::unordered_map<Token, Slot> slots_;
  std::set<std::pair<Nanos, Token>> timers_;
  std::vector<std::function<void()>> running_;
};

}  // namespace tidewire::transport::tcp
