// SPDX-License-Identifier: Apache-2.0
//
// Acceptor: the listening sockets of a node. Accepts, runs the hello (bounded by the connect timeout), hands over what
// proved itself. Strangers can hold at most kMaxInHandshake connections of kMaxHelloBytes each: the oldest makes room.
// Out of descriptors it drops the newcomer by means of a spare one and rests, so that it never spins.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "control/asio.h"
#include "control/handshake_io.h"
#include "control/loop.h"

namespace tidewire::control {

class Acceptor {
 public:
  struct Events {
    // `rail`: index of the listener that took it.
    std::function<void(Socket socket, const Agreement& agreement, uint32_t rail)> on_connection;
    // Whether another accepted connection may be held.
    std::function<bool()> has_room;
  };

  Acceptor(asio::io_context& io, const Identity& identity, Nanos hello_timeout, Events events);
  ~Acceptor();
  // Takes over a listening socket. Before the loop runs, or on it.
  Status add(UniqueFd listener, int family, uint32_t rail);
  void start();
  void close();
  size_t in_handshake() const { return unknown_.size(); }

 private:
  struct Listener {
    Listener(asio::io_context& io, uint32_t rail) : acceptor(io), rest(io), rail(rail) {}
    asio::ip::tcp::acceptor acceptor;
    asio::steady_timer rest;
    uint32_t rail;
  };
  void wait(Listener& listener);
  void accept_ready(Listener& listener);
  void out_of_descriptors(Listener& listener, int error);
  void greet(UniqueFd fd, const Endpoint& from, uint32_t rail);

  asio::io_context& io_;
  const Identity& identity_;
  const Nanos hello_timeout_;
  Events events_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::list<std::shared_ptr<HandshakeIo>> unknown_;  // oldest first
  UniqueFd spare_;
};

}  // namespace tidewire::control
