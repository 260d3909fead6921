// SPDX-License-Identifier: Apache-2.0
//
// What the parts of a node share on its one thread: the event loop, and small helpers. Nothing here is safe to use from
// another thread.
#pragma once

#include <sched.h>

#include <array>
#include <chrono>
#include <functional>

#include "base/clock.h"
#include "base/status.h"
#include "control/asio.h"
#include "control/endpoint.h"
#include "control/handshake.h"

namespace tidewire::control {

using Socket = asio::ip::tcp::socket;

// The monotonic clock's point as Asio's timers want it. kNever never comes.
inline std::chrono::steady_clock::time_point time_point(Nanos when) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(when));
}

// Runs `task` at `when` unless the timer is cancelled or destroyed before.
template <typename Task>
void call_at(asio::steady_timer& timer, Nanos when, Task task) {
  timer.expires_at(time_point(when));
  timer.async_wait([task = std::move(task)](const asio::error_code& error) mutable {
    if (!error) task();
  });
}

// Runs an event loop on one thread at a time, which stays awake for a moment after something came: what comes in that
// time need not wake a sleeping processor, which takes as long as a message between two processes.
class Runner {
 public:
  explicit Runner(asio::io_context& io) : io_(io) {}
  // Runs something that is ready; waits for it when nothing is, awake for `spin` after the last. False when the loop
  // was stopped.
  bool next(Nanos spin) {
    while (io_.poll_one() == 0) {
      if (io_.stopped()) return false;
      const Nanos before = monotonic_now();
      if (before >= awake_until_) {
        if (io_.run_one() == 0) return false;
        break;
      }
      sched_yield();
      // Others want the processor. Who sleeps is woken sooner than who yields, so for a while this sleeps.
      const Nanos after = monotonic_now();
      if (after - before > kCrowded) {
        crowded_until_ = after + 100 * kMillisecond;
        awake_until_ = 0;
      }
    }
    const Nanos now = monotonic_now();
    awake_until_ = now < crowded_until_ ? 0 : now + spin;
    return true;
  }

 private:
  asio::io_context& io_;
  static constexpr Nanos kCrowded = 100 * kMicrosecond;  // of one yield
  Nanos awake_until_ = 0;
  Nanos crowded_until_ = 0;
};
// For a loop's own thread; short, because processors are shared.
constexpr Nanos kLoopSpin = 20 * kMicrosecond;

// Hands an open descriptor to Asio.
inline Status adopt(Socket& socket, UniqueFd fd, int family) {
  asio::error_code error;
  socket.assign(family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), fd.get(), error);
  if (error) return errno_status(error.value(), "add a socket to the event loop");
  fd.release();
  socket.non_blocking(true, error);
  return Status();
}

// Takes the descriptor back: connected, non-blocking, out of the loop.
inline UniqueFd release(Socket& socket) {
  asio::error_code error;
  return UniqueFd(socket.release(error));
}

// What every connection of this node says in its hello.
struct Identity {
  InstanceId instance{};
  std::string name;
  std::string secret;
  bool store_port = false;  // a store's master listens, not an engine

  HandshakeConfig hello() const {
    HandshakeConfig config;
    config.instance = instance;
    config.name = name;
    config.secret = secret;
    config.store_port = store_port;
    config.nonce = make_nonce();
    return config;
  }
};

}  // namespace tidewire::control
