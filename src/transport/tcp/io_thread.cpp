// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/io_thread.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "base/thread.h"

namespace tidewire::transport::tcp {
namespace {

constexpr IoThread::Token kWakeToken = 0;

}  // namespace

Result<std::shared_ptr<IoThread>> IoThread::start(int index) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return errno_status(errno, "epoll_create1 for a TCP I/O thread");
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return errno_status(errno, "eventfd for a TCP I/O thread");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeToken;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return errno_status(errno, "epoll_ctl for a TCP I/O thread");
  }
  std::shared_ptr<IoThread> io(new IoThread(std::move(epoll), std::move(wake)));
  try {
    io->thread_ = start_thread(fmt::format("tw-tcp-{}", index), [raw = io.get()] { raw->loop(); });
  } catch (const std::system_error& error) {
    return Status::error(Code::kNoResources, "can't start TCP I/O thread {}: {}", index, error.what());
  }
  return io;
}

IoThread::~IoThread() {
  stop();
}

void IoThread::run(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    tasks_.push_back(std::move(task));
  }
  // The thread itself looks at its tasks before it sleeps.
  if (on_this_thread() || wake_pending_.exchange(true)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
}

void IoThread::request_tick(Token token) {
  run([this, token] { tick(token, monotonic_now()); });
}

void IoThread::set_events(int fd, Token token, uint32_t epoll_events) {
  epoll_event event{};
  event.events = epoll_events;
  event.data.u64 = token;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void IoThread::add(Token token, int fd, uint32_t epoll_events, std::shared_ptr<IoHandler> handler) {
  epoll_event event{};
  event.events = epoll_events;
  event.data.u64 = token;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  add_timer_only(token, std::move(handler));
}

void IoThread::add_timer_only(Token token, std::shared_ptr<IoHandler> handler) {
  Slot& slot = slots_[token];
  slot.handler = std::move(handler);
  tick(token, monotonic_now());
}

void IoThread::remove(Token token, int fd) {
  if (fd >= 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  const auto found = slots_.find(token);
  if (found == slots_.end()) return;
  if (found->second.due != kNever) timers_.erase({found->second.due, token});
  slots_.erase(found);
}

void IoThread::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
  if (thread_.joinable() && !on_this_thread()) thread_.join();
}

void IoThread::loop() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms());
    for (int i = 0; i < count; ++i) {
      const Token token = events[i].data.u64;
      if (token == kWakeToken) {
        uint64_t value;
        [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &value, sizeof(value));
        continue;
      }
      // An earlier event of this round may have removed it.
      const auto found = slots_.find(token);
      if (found == slots_.end()) continue;
      const std::shared_ptr<IoHandler> handler = found->second.handler;
      handler->on_io(events[i].events);
    }
    wake_pending_.store(false);
    run_tasks();
    if (!timers_.empty()) run_ticks(monotonic_now());
    std::lock_guard lock(mutex_);
    if (stopping_ && tasks_.empty()) break;
  }
  slots_.clear();
  timers_.clear();
}

void IoThread::run_tasks() {
  {
    std::lock_guard lock(mutex_);
    running_.swap(tasks_);
  }
  for (auto& task : running_) task();
  running_.clear();
}

void IoThread::run_ticks(Nanos now) {
  while (!timers_.empty() && timers_.begin()->first <= now) tick(timers_.begin()->second, now);
}

void IoThread::tick(Token token, Nanos now) {
  const auto found = slots_.find(token);
  if (found == slots_.end()) return;
  const std::shared_ptr<IoHandler> handler = found->second.handler;
  const Nanos next = handler->on_tick(now);
  // on_tick may have removed it.
  const auto again = slots_.find(token);
  if (again == slots_.end()) return;
  if (again->second.due != kNever) timers_.erase({again->second.due, token});
  again->second.due = next == kNever ? kNever : std::max(next, now + 1);
  if (next != kNever) timers_.insert({again->second.due, token});
}

int IoThread::timeout_ms() const {
  {
    std::lock_guard lock(mutex_);
    if (!tasks_.empty()) return 0;
  }
  if (timers_.empty()) return -1;
  const Nanos left = timers_.begin()->first - monotonic_now();
  return left <= 0 ? 0 : static_cast<int>(std::min<Nanos>((left + kMillisecond - 1) / kMillisecond, 3'600'000));
}

}  // namespace tidewire::transport::tcp
