// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/loop.h"

#include <exception>

#include "base/thread.h"

namespace tidewire::transport::shm {

Result<std::unique_ptr<Loop>> Loop::start() {
  // Asio and std::thread report these by exceptions; they end here.
  try {
    std::unique_ptr<Loop> loop(new Loop);
    loop->thread_ = start_thread("tw-shm", [context = &loop->context_] { context->run(); });
    return loop;
  } catch (const std::exception& error) {
    return Status::error(Code::kNoResources,
                         "starting the same-host thread: {}; raise the limits on descriptors and threads",
                         error.what());
  }
}

void Loop::stop() {
  if (!thread_.joinable()) return;
  work_.reset();
  context_.stop();
  thread_.join();
}

Result<std::unique_ptr<Watch>> Watch::create(Loop& loop, UniqueFd fd) {
  std::unique_ptr<Watch> watch(new Watch(loop));
  std::error_code error;
  watch->descriptor_->assign(fd.get(), error);
  if (error) return Status::error(Code::kNoResources, "watching a descriptor: {}", error.message());
  (void)fd.release();
  return watch;
}

Watch::~Watch() {
  std::error_code ignored;
  descriptor_->close(ignored);
}

// Keeps itself alive while it waits; ends when the descriptor is closed.
struct Watch::Reader : std::enable_shared_from_this<Reader> {
  std::shared_ptr<asio::posix::stream_descriptor> descriptor;
  std::function<bool()> ready;

  void wait() {
    descriptor->async_wait(asio::posix::stream_descriptor::wait_read,
                           [self = shared_from_this()](std::error_code error) {
                             if (error || !self->descriptor->is_open()) return;
                             if (self->ready() && self->descriptor->is_open()) self->wait();
                           });
  }
};

void Watch::on_readable(std::function<bool()> ready) {
  auto reader = std::make_shared<Reader>();
  reader->descriptor = descriptor_;
  reader->ready = std::move(ready);
  reader->wait();
}

void Watch::when_writable(std::function<void()> ready) {
  descriptor_->async_wait(asio::posix::stream_descriptor::wait_write,
                          [descriptor = descriptor_, ready = std::move(ready)](std::error_code error) {
                            if (!error && descriptor->is_open()) ready();
                          });
}

void Timer::at(Nanos when, std::function<void()> action) {
  timer_.expires_at(asio::steady_timer::time_point(std::chrono::nanoseconds(when)));
  timer_.async_wait([action = std::move(action)](std::error_code error) {
    if (!error) action();
  });
}

}  // namespace tidewire::transport::shm
