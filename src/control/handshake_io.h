// SPDX-License-Identifier: Apache-2.0
//
// HandshakeIo runs one Handshake over a connected socket, with a deadline. It reads exactly the bytes of the hello, so
// that what follows is left in the socket for its owner.
#pragma once

#include <functional>
#include <memory>

#include "control/loop.h"

namespace tidewire::control {

class HandshakeIo : public std::enable_shared_from_this<HandshakeIo> {
 public:
  // The verdict; on success the socket goes over to the receiver.
  using Done = std::function<void(const Handshake& handshake, const Status& status, Socket socket)>;

  HandshakeIo(Socket socket, Handshake handshake);
  // Calls done exactly once, later, on the loop.
  void start(Nanos deadline, Done done);
  void cancel(const Status& why) { finish(why); }

 private:
  void step();
  void read();
  void write();
  void finish(const Status& status);

  Socket socket_;
  Handshake handshake_;
  asio::steady_timer timer_;
  std::vector<uint8_t> outgoing_;
  std::array<uint8_t, 1024> incoming_{};
  Done done_;
};

}  // namespace tidewire::control
