// SPDX-License-Identifier: Apache-2.0
#include "control/resolver.h"

#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/thread.h"
#include "control/address.h"

namespace tidewire::control {
namespace {
// Enough that a few names whose servers don't answer don't hold up the others.
constexpr int kMaxThreads = 16;
}  // namespace

struct Resolver::Shared {
  struct Waiter {
    uint16_t port;
    std::function<void(Addresses)> done;
  };
  std::mutex mutex;
  asio::io_context* io;  // null once closed
  Lookup lookup;
  std::deque<std::string> queue;
  std::map<std::string, std::vector<Waiter>> waiters;  // by host, queued or being looked up
  int threads = 0;
};

Resolver::Resolver(asio::io_context& io, Lookup lookup) : shared_(std::make_shared<Shared>()) {
  shared_->io = &io;
  shared_->lookup = std::move(lookup);
}

Resolver::~Resolver() {
  close();
}

void Resolver::close() {
  std::lock_guard lock(shared_->mutex);
  shared_->io = nullptr;
  shared_->queue.clear();
  shared_->waiters.clear();
}

void Resolver::resolve(const std::string& host, uint16_t port, std::function<void(Addresses)> done) {
  std::lock_guard lock(shared_->mutex);
  if (shared_->io == nullptr) return;
  if (is_literal(host)) {
    Result<Endpoint> literal = literal_endpoint(host, port);
    asio::post(*shared_->io, [done = std::move(done), literal = std::move(literal)] {
      if (!literal.ok()) return done(literal.status());
      done(std::vector<Endpoint>{*literal});
    });
    return;
  }
  auto& waiters = shared_->waiters[host];
  waiters.push_back({port, std::move(done)});
  if (waiters.size() > 1) return;
  shared_->queue.push_back(host);
  if (shared_->threads >= kMaxThreads) return;
  try {
    start_thread("tw-resolve", [shared = shared_] { work(shared); }).detach();
    ++shared_->threads;
  } catch (const std::system_error& error) {
    // With no thread at all nobody would ever look this one up.
    if (shared_->threads > 0) return;
    shared_->queue.pop_back();
    auto failed = std::move(shared_->waiters[host]);
    shared_->waiters.erase(host);
    const Status status = Status::error(Code::kNoResources, "resolve {}: can't start a thread: {}", host, error.what());
    for (auto& waiter : failed) asio::post(*shared_->io, [done = std::move(waiter.done), status] { done(status); });
  }
}

void Resolver::work(std::shared_ptr<Shared> shared) {
  std::unique_lock lock(shared->mutex);
  while (!shared->queue.empty()) {
    const std::string host = std::move(shared->queue.front());
    shared->queue.pop_front();
    lock.unlock();
    Addresses addresses = shared->lookup(host);
    lock.lock();
    auto found = shared->waiters.find(host);
    if (shared->io == nullptr || found == shared->waiters.end()) continue;
    for (Shared::Waiter& waiter : found->second) {
      Addresses copy = addresses;
      if (copy.ok())
        for (Endpoint& endpoint : *copy) endpoint.set_port(waiter.port);
      asio::post(*shared->io,
                 [done = std::move(waiter.done), copy = std::move(copy)]() mutable { done(std::move(copy)); });
    }
    shared->waiters.erase(found);
  }
  --shared->threads;
}

}  // namespace tidewire::control
