// SPDX-License-Identifier: Apache-2.0
#include "fake_stream.h"

#include <atomic>
#include <chrono>
#include <cstring>

namespace fake_cuda {
namespace {
std::atomic<uint64_t> rate{0};
}

bool& in_host_function() {
  thread_local bool inside = false;
  return inside;
}

void Event::finish(uint64_t number) {
  std::lock_guard lock(mutex);
  if (number > done) done = number;
  done_changed.notify_all();
}

void Event::wait(uint64_t number) {
  std::unique_lock lock(mutex);
  done_changed.wait(lock, [&] { return done >= number; });
}

Stream::Stream(int device) : device_(device), thread_([this] { run(); }) {}

Stream::~Stream() {
  {
    std::lock_guard lock(mutex_);
    end_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Stream::push(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  changed_.notify_all();
}

void Stream::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return work_.empty() && !busy_; });
}

bool Stream::idle() {
  std::lock_guard lock(mutex_);
  return work_.empty() && !busy_;
}

void Stream::set_rate(uint64_t bytes_per_second) {
  rate.store(bytes_per_second);
}

void Stream::timed_copy(char* to, const char* from, uint64_t bytes) {
  const auto begin = std::chrono::steady_clock::now();
  std::memcpy(to, from, bytes);
  const uint64_t per_second = rate.load();
  if (per_second == 0) return;
  std::this_thread::sleep_until(begin + std::chrono::nanoseconds(bytes * 1'000'000'000 / per_second));
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return end_ || !work_.empty(); });
    if (work_.empty()) return;
    std::function<void()> next = std::move(work_.front());
    work_.pop_front();
    busy_ = true;
    lock.unlock();
    next();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace fake_cuda
