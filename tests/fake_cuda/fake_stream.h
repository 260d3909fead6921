// SPDX-License-Identifier: Apache-2.0
//
// Streams and events of the fake driver: a thread for each stream does its work in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace fake_cuda {

struct Event {
  int device = -1;
  std::mutex mutex;
  std::condition_variable done_changed;
  uint64_t recorded = 0, done = 0;
  void finish(uint64_t number);
  void wait(uint64_t number);
};

class Stream {
 public:
  explicit Stream(int device);
  ~Stream();
  int device() const { return device_; }
  void push(std::function<void()> work);
  void drain();
  bool idle();
  // An error of asynchronous work: every later call on the device gives it, as the real driver's sticky errors.
  static void set_rate(uint64_t bytes_per_second);
  // Moves the bytes and takes as long as the rate says.
  static void timed_copy(char* to, const char* from, uint64_t bytes);
  bool capturing = false;

 private:
  void run();
  const int device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool busy_ = false, end_ = false;
  std::thread thread_;
};

// Whether this thread runs a function of cuLaunchHostFunc, from which the driver may not be called.
bool& in_host_function();

}  // namespace fake_cuda
