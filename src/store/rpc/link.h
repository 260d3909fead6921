// SPDX-License-Identifier: Apache-2.0
//
// The connection between a client of the store and its master. The client connects; after the hello
// (control/handshake.h, with Role::kStore, proven with a cluster secret) both sides ask and answer over it
// (store/messages.h, codec.h). Requests are pipelined: many are under way at once, answers come in any order under the
// request's number. Each side has one thread, an event loop; callbacks run on it and must not block.
//
// A message that is malformed ends the connection. A request that is unknown to this build is answered with
// CodeAnswer{kNotSupported}.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "store/messages.h"

namespace tidewire::store {

using ConnectionId = uint64_t;  // of one MasterServer, never reused; 0 = none

// The master's side: listens, takes connections, hands over what arrives.
class MasterServer {
 public:
  struct Options {
    std::string host;        // name or address to listen on; a wildcard is allowed
    uint16_t port = 0;       // 0 = automatic
    std::string advertised;  // "host:port" as clients know it, shown in their errors; empty = host and port
    std::string secret;      // cluster secret; empty = none
    InstanceId instance{};   // told in the hello
    Nanos hello_timeout = kSecond;
    size_t max_backlog = 4u << 20;  // bytes that a client may leave unread before nothing more is read from it
  };

  // On the loop thread; nothing after stop() has returned.
  class Handler {
   public:
    virtual ~Handler() = default;
    // A request, or (message.answer) the answer to one of this side's. The first one tells of a new connection.
    virtual void on_message(ConnectionId connection, Message message) = 0;
    // Once for each connection, also for one that never sent a message; not after drop() and not because of stop().
    virtual void on_closed(ConnectionId connection, const Status& why) = 0;
  };

  // Listens; from now on clients can connect, and are served from start() on. Errors as of control::Node::start:
  // kAddressInUse, kInvalidArgument…
  static Result<std::unique_ptr<MasterServer>> listen(Options options, Handler& handler);
  ~MasterServer();  // stops; not on the loop thread
  Status start();

  uint16_t port() const;
  // "host:port" that was told to clients.
  const std::string& advertised() const;

  // Loop thread only. False when the connection is gone or the message is beyond encode(); in place of an answer that
  // is beyond encode() CodeAnswer{kInternal} goes out.
  bool send(ConnectionId connection, const Message& message);
  // Loop thread only. Closes it; no on_closed follows.
  void drop(ConnectionId connection);
  // Loop thread only. What the client called itself in its hello; empty when the connection is gone.
  std::string peer_name(ConnectionId connection) const;

  // Any thread. Tasks run on the loop thread in the order of the calls; false (and the task never runs) once stop() was
  // called.
  bool post(std::function<void()> task);
  // At or after `when` (a point on the monotonic clock); dropped by stop().
  bool run_at(Nanos when, std::function<void()> task);

  // Closes everything and joins the thread. Any thread; may be called again. Called on the loop thread it does not wait
  // for the thread's end.
  void stop();

 private:
  class Impl;
  explicit MasterServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The client's side: one connection to the master, made again for as long as it takes (after 0.05 s … 1 s between
// attempts).
//
// After fork() the child's copy is inert: calls get kForked, the destructor leaves alone what belongs to the parent.
class MasterLink {
 public:
  struct Options {
    std::string master;               // "host:port"; the name is looked up anew for each attempt
    std::string secret;               // cluster secret; empty = none
    std::string name;                 // this side's, shown in the master's messages
    InstanceId instance{};            // this side's
    Nanos connect_timeout = kSecond;  // of one attempt: lookup, connection, hello
    // A connection on which nothing came for so long although a call ran out of time is given up for a new one.
    Nanos silence = 5 * kSecond;
  };

  // On the loop thread; nothing after stop() has returned.
  class Events {
   public:
    virtual ~Events() = default;
    // Connected. What this callback calls goes out before everything that waited for the connection.
    virtual void on_up() = 0;
    // The connection that on_up() told of is gone. Not because of stop().
    virtual void on_down(const Status& why) = 0;
    // The master asks; answer(request, …) answers, now or later. The number is this side's own name for it.
    virtual void on_request(uint64_t request, Body body) = 0;
  };

  using Done = std::function<void(Result<Body>)>;

  // kInvalidArgument for an address without a port. Connects from start() on.
  static Result<std::unique_ptr<MasterLink>> create(Options options, Events& events);
  ~MasterLink();  // stops; not on the loop thread
  Status start();

  // Any thread. `done` gets the answer's body, exactly once, on the loop thread, or
  //   kTimeout          no answer by the deadline (a point on the monotonic clock; kNever = none)
  //   kPeerGone         the connection broke after the request was sent: it may or may not have been carried out
  //   kUnreachable      it waited for a connection until its deadline; why there was none
  //   kUnauthenticated, kUnsupported, kProtocol   whoever was reached refused this side while the call waited for a
  //   connection kInvalidArgument  beyond encode(); inside the call kClosed           stop(); inside the call when it
  //   came before
  // A call that is made on the loop thread is sent before it returns.
  void call(Body request, Nanos deadline, Done done);
  // Waits for the answer; any thread but the loop's own (kInvalidArgument).
  Result<Body> call_and_wait(Body request, Nanos deadline);
  // Any thread. Dropped when the connection that asked is gone.
  void answer(uint64_t request, Body body);

  bool connected() const;  // any thread; a hint

  bool post(std::function<void()> task);
  bool run_at(Nanos when, std::function<void()> task);

  // Pending calls get kClosed. Any thread; may be called again. Called on the loop thread it does not wait for the
  // thread's end.
  void stop();

 private:
  class Impl;
  explicit MasterLink(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidewire::store
