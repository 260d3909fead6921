// SPDX-License-Identifier: Apache-2.0
//
// control::Node: an engine's place on the control plane. It owns the listening port(s) and one event-loop thread
// (Asio). Over framed, verified messages (FlatBuffers, control/messages.fbs) it answers peers (record, probe,
// notification, first region, goodbye) and asks them the same. Every connection starts with a hello in both directions:
// protocol version, feature bits, role (control or data), instance ids (own, and the expected one or zero), and with a
// cluster secret an HMAC-SHA-256 proof over both nonces, both instance ids, role and version, both ways, before
// anything else is accepted. Data connections are handed over as plain sockets after the hello.
//
// All calls return at once; callbacks run on the node's thread ("tw-control"), exactly once, at the latest at their
// deadline (a point on the monotonic clock), and must not block. A call after stop() gets kClosed from inside the call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "control/address.h"
#include "control/protocol.h"
#include "transport/peer_record.h"

namespace tidewire::control {

struct Notification {
  std::string name;
  std::string message;
  std::string sender;  // advertised name of the sender
};

struct FirstRegion {
  uint64_t address = 0;
  uint64_t length = 0;
};

// What an accepted data connection said of itself.
struct DataHello {
  InstanceId initiator{};
  std::string initiator_name;
  uint64_t channel = 0;  // the initiator's ChannelId
  uint32_t rail = 0;     // index in rail_addresses() of the listener that took it
};

// What the node asks of the engine; on the node's thread, must not block.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual PeerRecord local_record() = 0;
  virtual Result<FirstRegion> first_region() = 0;
  // Exactly once for each notification, in the order of each sender. A status other than OK goes back to the sender.
  virtual Status on_notification(Notification notification) = 0;
  // A data connection whose hello (and proof) is done. The socket is connected, non-blocking, TCP_NODELAY; bytes after
  // the hello are unread.
  virtual void on_data_connection(UniqueFd socket, DataHello hello) = 0;
  // The peer said goodbye or its control connection broke.
  virtual void on_peer_closed(const std::string& address, const InstanceId& instance, const Status& why) = 0;
};

struct Options {
  std::string advertised;  // host or address literal that peers use (without port); resolved at start
  uint16_t port = 0;       // 0 = automatic within settings.port_min … port_max
  std::vector<std::string>
      rail_addresses;  // further local address literals to listen on (same port where free, otherwise their own)
  InstanceId instance{};
  std::string secret;  // empty = none
  Settings settings;
};

class Node {
 public:
  // Binds and listens; who connects waits until serve(). kAddressInUse names the port; "bad address '<text>'" (kInvalidArgument) for malformed names;
  // wildcard addresses are refused as advertised name. A non-loopback listener without a secret logs one warning.
  static Result<std::unique_ptr<Node>> start(Options options, Handler& handler);
  virtual ~Node() = default;

  // The handler can answer now: from here on peers are served. Once.
  virtual void serve() = 0;
  virtual uint16_t port() const = 0;
  // "host:port", v6 literals bracketed.
  virtual std::string advertised_address() const = 0;
  // Where the rails listen, "ip:port": index 0 is the advertised address, then those of Options::rail_addresses.
  virtual std::vector<std::string> rail_addresses() const = 0;

  // Fetches the record of the engine at `address` ("host:port", resolved off-thread). Connection refused fails at once
  // (kUnreachable), silence at the deadline (kTimeout).
  virtual void fetch_record(const std::string& address, Nanos deadline,
                            std::function<void(Result<PeerRecord>)> done) = 0;
  virtual void probe(const std::string& address, Nanos deadline, std::function<void(Status)> done) = 0;
  virtual void fetch_first_region(const std::string& address, Nanos deadline,
                                  std::function<void(Result<FirstRegion>)> done) = 0;
  // Exactly once at the peer, in the order of calls for one address; sent again over a new connection when the old one
  // broke before the answer, unless the peer's instance changed (kPeerGone). `only`: the instance that it is for, which
  // has the data that it tells of; zero = whoever is there.
  virtual void notify(const std::string& address, std::string name, std::string message, Nanos deadline,
                      std::function<void(Status)> done, const InstanceId& only = {}) = 0;

  // Opens a data connection from `local_address` (literal; empty = any) to `remote_address` ("ip:port") of the peer
  // instance `expected`. kPeerGone when another instance answers (`seen` tells which), kUnauthenticated, kProtocol.
  struct DataConnection {
    Status status;
    UniqueFd socket;  // connected, non-blocking, TCP_NODELAY
    InstanceId seen{};
  };
  virtual void dial_data(const std::string& local_address, const std::string& remote_address,
                         const InstanceId& expected, uint64_t channel, Nanos deadline,
                         std::function<void(DataConnection)> done) = 0;

  // Runs `task` on the node's thread at or after `when` (timers for the engine). stop() drops what has not run.
  virtual void run_at(Nanos when, std::function<void()> task) = 0;
  // Says goodbye to connected peers (bounded, 0.2 s), closes everything, joins the thread; pending callbacks get
  // kClosed. Idempotent, any thread but the node's own.
  virtual void stop() = 0;
  virtual std::string describe() const = 0;  // one JSON object for status
};

}  // namespace tidewire::control
