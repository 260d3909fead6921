// SPDX-License-Identifier: Apache-2.0
//
// Server: the accepted control connections of a node and what is answered on them. Peers ask for the record, the first
// region, probe, and send notifications; what this build doesn't know is answered with kUnsupported, so that a newer
// peer can go on.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <unordered_map>

#include "control/connection.h"
#include "control/loop.h"
#include "control/node.h"
#include "control/notify_ledger.h"

namespace tidewire::control {

class Server {
 public:
  Server(asio::io_context& io, Handler& handler, const Settings& settings, ScratchBuffer& scratch);

  void add(Socket socket, const Agreement& agreement);
  // Any thread.
  size_t size() const { return count_.load(std::memory_order_relaxed); }
  // Says goodbye on every connection; they go when the other side closes, or by close().
  void stop();
  void close();

 private:
  using Key = Connection*;
  void on_frame(Connection& connection, Frame frame);
  void on_notification(Connection& connection, const Frame& frame);
  void on_goodbye(Connection& connection, const Frame& frame);
  void on_closed(Key key, const Status& why);
  void sweep_later();
  void count() { count_.store(connections_.size(), std::memory_order_relaxed); }

  asio::io_context& io_;
  Handler& handler_;
  const Settings& settings_;
  ScratchBuffer& scratch_;
  NotifyInbox inbox_;
  std::unordered_map<Key, std::shared_ptr<Connection>> connections_;
  std::atomic<size_t> count_{0};
  asio::steady_timer sweep_;
  bool sweeping_ = false;
  bool stopped_ = false;
};

}  // namespace tidewire::control
