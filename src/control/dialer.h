// SPDX-License-Identifier: Apache-2.0
//
// Dial: one attempt to reach one of several addresses of a peer: connect, hello, verdict. Addresses are tried in their
// order; the next one starts when the one before failed or has not answered for a quarter of a second, and the first
// that connects wins, so that a dead address family costs little. Nothing blocks; a refusal is known at once.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "control/handshake_io.h"
#include "control/loop.h"

namespace tidewire::control {

struct DialTarget {
  std::vector<Endpoint> remotes;
  std::optional<Endpoint> local;  // address to connect from
  bool keep_alive = true;
};

class Dial : public std::enable_shared_from_this<Dial> {
 public:
  // `handshake` is null when it came to none.
  using Done = std::function<void(const Status& status, const Handshake* handshake, Socket socket)>;

  explicit Dial(asio::io_context& io) : io_(io), deadline_timer_(io), next_timer_(io) {}
  // Calls done exactly once, later, on the loop.
  void start(DialTarget target, Handshake handshake, Nanos deadline, Done done);
  // done gets the status.
  void cancel(const Status& why) { finish(why, nullptr, Socket(io_)); }

 private:
  void try_next();
  void on_connected(size_t attempt, const asio::error_code& error);
  void attempt_failed(const Status& status);
  void greet(Socket socket);
  void finish(const Status& status, const Handshake* handshake, Socket socket);

  asio::io_context& io_;
  asio::steady_timer deadline_timer_, next_timer_;
  DialTarget target_;
  std::optional<Handshake> handshake_;
  Nanos deadline_ = 0;
  Done done_;
  size_t started_ = 0;
  size_t failed_ = 0;
  std::vector<Socket> attempts_;
  std::shared_ptr<HandshakeIo> hello_;
  Status first_error_;
  std::string reached_;  // "10.0.0.1:4000"
};

}  // namespace tidewire::control
