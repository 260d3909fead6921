// SPDX-License-Identifier: Apache-2.0
//
// Session: what this node asks of one peer address. One control connection, opened on demand and closed when idle;
// requests are pipelined by id, each with its own deadline. A broken connection is dialled again: requests are repeated
// once (they change nothing), notifications until they are answered (the peer knows their numbers). A refusal fails
// everything at once; silence fails each request at its own deadline. A session without work and connection is
// disposable, so that known addresses cost nothing.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/settings.h"
#include "control/address.h"
#include "control/connection.h"
#include "control/dialer.h"
#include "control/loop.h"
#include "control/notify_ledger.h"
#include "control/resolver.h"

namespace tidewire::control {

class Session : public std::enable_shared_from_this<Session> {
 public:
  // What sessions share; outlives them.
  struct Context {
    asio::io_context& io;
    Resolver& resolver;
    const Identity& identity;
    const Settings& settings;
    ScratchBuffer& scratch;
    std::function<void(const std::string& address, const InstanceId& instance, const Status& why)> on_peer_closed;
    std::function<void(const std::string& address)> on_disposable;
    std::function<void()> on_idle;  // a session answered its last request and keeps its connection
  };
  using Answer = std::function<void(Result<Frame> answer)>;

  Session(const Context& context, std::string address, HostPort target, uint64_t stream);

  // Sends an empty request of this type; `done` gets the frame of type `answer`, or why there is none.
  void ask(FrameType request, FrameType answer, Nanos deadline, Answer done);
  void notify(std::string name, std::string message, Nanos deadline, const InstanceId& only, NotifyOutbox::Done done);

  // Everything pending gets `why`; a connection says goodbye and waits for the other side (bounded by close()).
  void stop(const Status& why);
  void close();
  bool connected() const { return connection_ != nullptr; }
  bool idle() const { return connection_ && !has_work(); }
  Nanos last_used() const { return last_used_; }
  // Ends an idle connection before its time, to make room for others.
  void retire();
  bool disposable() const { return !connection_ && !connecting_ && requests_.empty() && outbox_.empty(); }

 private:
  struct Request {
    FrameType type, answer;
    Answer done;
    std::unique_ptr<asio::steady_timer> timer;
    Nanos sent_at = 0;  // 0: not on the present connection
    int broken = 0;     // connections that broke under it
  };

  bool has_work() const { return !requests_.empty() || !outbox_.empty(); }
  void connect();
  void look_up();
  void dial(std::vector<Endpoint> remotes, Nanos deadline);
  void attempt_failed(const Status& status);
  void attached(const Agreement& agreement, Socket socket);
  void send(uint64_t id, Request& request);
  void flush_notifications();
  void on_frame(Frame frame);
  void on_pushed_record(const Frame& frame);
  void answer(std::map<uint64_t, Request>::iterator found, Frame frame);
  void on_goodbye(const Frame& frame);
  void on_closed(const Status& why);
  void on_request_timeout(uint64_t id);
  void arm_outbox_timer(Nanos deadline);
  void arm_idle_timer(Nanos when);
  void replace_if_silent(Nanos sent_at);
  void drop_connection();
  // Ends a connection that is no longer ours to use, without alarming the other side.
  void say_goodbye(std::shared_ptr<Connection> connection);
  void fail_all(const Status& status);
  void settle(std::vector<NotifyOutbox::Settled> settled);
  void offer_disposal();

  const Context& context_;
  const std::string address_;
  const HostPort target_;
  std::map<uint64_t, Request> requests_;
  uint64_t last_id_ = 0;
  NotifyOutbox outbox_;
  std::shared_ptr<Connection> connection_;
  std::shared_ptr<Dial> dial_;
  bool record_coming_ = false;  // with the hello, unasked
  bool connecting_ = false;
  bool stopped_ = false;
  uint64_t attempt_ = 0;
  asio::steady_timer connect_timer_, outbox_timer_, idle_timer_;
  Nanos outbox_due_ = kNever;
  Nanos connected_at_ = 0;
  Nanos last_used_ = 0;
  Nanos not_before_ = 0;  // of the next attempt
  int fruitless_ = 0;     // connections in a row that broke without any answer
};

}  // namespace tidewire::control
