// SPDX-License-Identifier: Apache-2.0
//
// What the parts of a node share on its one thread: the event loop, and small helpers. Nothing here is safe to use from
// another thread.
#pragma once

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
