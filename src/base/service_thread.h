// SPDX-License-Identifier: Apache-2.0
//
// ServiceThread: a named background thread that waits on descriptors and is stopped through one (thread.h says
// which signals it takes). After fork() the child's copy is inert: it neither stops nor joins what only the parent has.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace tidewire {

class ServiceThread {
 public:
  ServiceThread() = default;
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;
  ~ServiceThread() { stop(); }

  // Runs body(stop_fd) on a new thread; stop_fd becomes (and stays) readable when the thread shall end. The name has at
  // most 15 bytes.
  Status start(const char* name, std::function<void(int stop_fd)> body);
  // Ends and joins the thread. May be called again. Not from the thread itself.
  void stop();

 private:
  std::unique_ptr<std::thread> thread_;
  UniqueFd stop_fd_;
  pid_t owner_ = 0;
};

// Waits until fd has one of poll's `events`; false at the deadline (kNever: none), when stop_fd is readable, or on an
// error. An fd of -1 is not waited for.
bool wait_ready(int fd, short events, int stop_fd, Nanos deadline);

}  // namespace tidewire
