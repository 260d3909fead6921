// SPDX-License-Identifier: Apache-2.0
#include "base/service_thread.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/thread.h"

namespace tidewire {

Status ServiceThread::start(const char* name, std::function<void(int stop_fd)> body) {
  stop_fd_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_fd_.valid()) return errno_status(errno, fmt::format("eventfd of thread {}", name));
  owner_ = ::getpid();
  try {
    thread_ = std::make_unique<std::thread>(
        start_thread(name, [body = std::move(body), fd = stop_fd_.get()] { body(fd); }));
  } catch (const std::system_error& error) {
    return Status::error(Code::kNoResources, "can't start thread {}: {}; raise the limit of processes (ulimit -u)",
                         name, error.what());
  }
  return {};
}

void ServiceThread::stop() {
  if (!thread_) return;
  if (::getpid() != owner_) {
    // The handle belongs to the parent; destroying a joinable std::thread would end the process.
    static_cast<void>(thread_.release());
    return;
  }
  const uint64_t one = 1;
  static_cast<void>(!::write(stop_fd_.get(), &one, sizeof one));
  thread_->join();
  thread_.reset();
}

bool wait_ready(int fd, short events, int stop_fd, Nanos deadline) {
  for (;;) {
    pollfd descriptors[] = {{fd, events, 0}, {stop_fd, POLLIN, 0}};
    int milliseconds = -1;
    if (deadline != kNever) {
      const Nanos left = deadline - monotonic_now();
      if (left <= 0) return false;
      milliseconds = static_cast<int>(std::min<Nanos>(left / kMillisecond + 1, 1'000'000));
    }
    const int ready = ::poll(descriptors, 2, milliseconds);
    if (ready < 0 && errno != EINTR) return false;
    if (ready > 0) return descriptors[1].revents == 0;
  }
}

}  // namespace tidewire
