// SPDX-License-Identifier: Apache-2.0
#include "control/session.h"

#include <utility>

#include "base/log.h"
#include "control/messages.h"

namespace tidewire::control {
namespace {
constexpr Nanos kShortLife = 100 * kMillisecond;   // a connection that broke sooner is not dialled again at once,
constexpr Nanos kRedialDelay = 50 * kMillisecond;  // but after so long
constexpr int kMaxFruitless = 5;
constexpr Nanos kLinger = 200 * kMillisecond;  // for the other side to read our goodbye

const char* request_name(FrameType type) {
  switch (type) {
    case FrameType::kRecordRequest:
      return "the request for its record";
    case FrameType::kProbe:
      return "the probe";
    case FrameType::kFirstRegionRequest:
      return "the request for its first region";
    default:
      return "the request";
  }
}
}  // namespace

Session::Session(const Context& context, std::string address, HostPort target, uint64_t stream)
    : context_(context),
      address_(std::move(address)),
      target_(std::move(target)),
      outbox_(stream),
      connect_timer_(context.io),
      outbox_timer_(context.io),
      idle_timer_(context.io) {}

void Session::ask(FrameType type, FrameType answer, Nanos deadline, Answer done) {
  last_used_ = monotonic_now();
  if (deadline <= last_used_)
    return done(Status::error(Code::kTimeout, "{}: the deadline had passed already", address_));
  const uint64_t id = ++last_id_;
  Request& request = requests_[id];
  request.type = type;
  request.answer = answer;
  request.done = std::move(done);
  request.timer = std::make_unique<asio::steady_timer>(context_.io);
  call_at(*request.timer, deadline, [weak = weak_from_this(), id] {
    if (auto self = weak.lock()) self->on_request_timeout(id);
  });
  if (connection_) {
    send(id, request);
  } else {
    connect();
  }
}

void Session::notify(std::string name, std::string message, Nanos deadline, const InstanceId& only,
                     NotifyOutbox::Done done) {
  last_used_ = monotonic_now();
  if (deadline <= last_used_)
    return done(Status::error(Code::kTimeout, "{}: the deadline had passed already", address_));
  const Status status = outbox_.enqueue(std::move(name), std::move(message), deadline, done, only);
  if (!status.ok()) return done(status.with_context(address_));
  arm_outbox_timer(deadline);
  if (connection_) {
    flush_notifications();
  } else {
    connect();
  }
}

void Session::send(uint64_t id, Request& request) {
  request.sent_at = monotonic_now();
  if (record_coming_ && request.type == FrameType::kRecordRequest) return;
  connection_->send(encode_frame(request.type, id, {}));
}

void Session::flush_notifications() {
  while (connection_) {
    const NotificationMessage* message = outbox_.next(monotonic_now());
    if (message == nullptr) return;
    connection_->send(encode_notification(message->sequence, *message));
  }
}

void Session::connect() {
  if (connecting_ || connection_ || stopped_) return;
  connecting_ = true;
  ++attempt_;
  if (not_before_ <= monotonic_now()) return look_up();
  call_at(connect_timer_, not_before_, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->look_up();
  });
}

void Session::look_up() {
  const Nanos deadline = monotonic_now() + context_.settings.connect_timeout;
  call_at(connect_timer_, deadline, [weak = weak_from_this(), attempt = attempt_] {
    auto self = weak.lock();
    if (self && self->attempt_ == attempt && !self->dial_)
      self->attempt_failed(Status::error(Code::kTimeout, "the name '{}' was not resolved in time", self->target_.host));
  });
  context_.resolver.resolve(target_.host, target_.port,
                            [weak = weak_from_this(), attempt = attempt_, deadline](Resolver::Addresses found) {
                              auto self = weak.lock();
                              if (!self || self->attempt_ != attempt || !self->connecting_ || self->stopped_) return;
                              self->connect_timer_.cancel();
                              if (!found.ok()) return self->attempt_failed(found.status());
                              self->dial(std::move(*found), deadline);
                            });
}

void Session::dial(std::vector<Endpoint> remotes, Nanos deadline) {
  dial_ = std::make_shared<Dial>(context_.io);
  DialTarget target;
  target.remotes = std::move(remotes);
  HandshakeConfig hello = context_.identity.hello();
  hello.role = Role::kControl;
  dial_->start(std::move(target), Handshake::initiator(std::move(hello)), deadline,
               [weak = weak_from_this()](const Status& status, const Handshake* handshake, Socket socket) {
                 auto self = weak.lock();
                 if (!self || self->stopped_) return;
                 self->dial_.reset();
                 if (!status.ok()) return self->attempt_failed(status);
                 self->attached(handshake->agreement(), std::move(socket));
               });
}

void Session::attempt_failed(const Status& status) {
  connecting_ = false;
  ++attempt_;
  log::debug("control_dial_failed", "can't reach {} code={} reason=\"{}\"", address_, code_name(status.code()),
             status.message());
  // Silence: whoever still has time waits on, with a new attempt.
  if (status.code() == Code::kTimeout && has_work()) return connect();
  fail_all(status.with_context(address_));
  offer_disposal();
}

void Session::attached(const Agreement& agreement, Socket socket) {
  connecting_ = false;
  connected_at_ = last_used_ = monotonic_now();
  connection_ = std::make_shared<Connection>(std::move(socket), agreement, Connection::Limits{kMaxFrameBytes, SIZE_MAX},
                                             context_.scratch);
  Connection* const raw = connection_.get();
  connection_->start({[weak = weak_from_this(), raw](Frame frame) {
                        auto self = weak.lock();
                        if (self && self->connection_.get() == raw) self->on_frame(std::move(frame));
                      },
                      [weak = weak_from_this(), raw](const Status& why) {
                        auto self = weak.lock();
                        if (self && self->connection_.get() == raw) self->on_closed(why);
                      }});
  record_coming_ = (agreement.features & kPushedRecord) != 0;
  settle(outbox_.connected(agreement.peer));
  for (auto& [id, request] : requests_) send(id, request);
  flush_notifications();
  arm_idle_timer(last_used_ + context_.settings.idle_close);
}

void Session::on_frame(Frame frame) {
  last_used_ = monotonic_now();
  if (frame.type == FrameType::kGoodbye) return on_goodbye(frame);
  if (frame.type == FrameType::kNotificationAnswer) {
    fruitless_ = 0;
    settle(outbox_.answered(frame.request, decode_outcome(frame.payload)));
    return flush_notifications();
  }
  if (record_coming_ && frame.type == FrameType::kRecord && frame.request == kPushedRequest)
    return on_pushed_record(frame);
  auto found = requests_.find(frame.request);
  if (found == requests_.end()) return;  // answered after its deadline
  answer(found, std::move(frame));
}

void Session::on_pushed_record(const Frame& frame) {
  record_coming_ = false;
  // Those that hold on to the record may ask for another thing at once: the map changes under way.
  std::vector<uint64_t> waiting;
  for (const auto& [id, request] : requests_)
    if (request.type == FrameType::kRecordRequest) waiting.push_back(id);
  for (const uint64_t id : waiting) {
    const auto found = requests_.find(id);
    if (found != requests_.end()) answer(found, frame);
  }
}

void Session::answer(std::map<uint64_t, Request>::iterator found, Frame frame) {
  fruitless_ = 0;
  Request request = std::move(found->second);
  requests_.erase(found);
  request.timer->cancel();
  if (!has_work()) context_.on_idle();
  if (frame.type == request.answer) return request.done(std::move(frame));
  Status status = frame.type == FrameType::kError ? decode_outcome(frame.payload) : Status();
  if (status.ok())
    status = Status::error(Code::kProtocol, "answered {} with a frame of type {}", request_name(request.type),
                           static_cast<int>(frame.type));
  request.done(status.with_context(address_));
}

void Session::on_goodbye(const Frame& frame) {
  Result<bool> closing = decode_goodbye(frame.payload);
  const auto connection = connection_;
  const InstanceId instance = connection->agreement().peer;
  drop_connection();
  connection->close();
  if (closing.ok() && *closing) {
    const Status gone = Status::error(Code::kPeerGone, "{} said goodbye: its engine was closed", address_);
    fail_all(gone);
    context_.on_peer_closed(address_, instance, gone);
  } else if (has_work()) {
    return connect();
  }
  offer_disposal();
}

void Session::on_closed(const Status& why) {
  const InstanceId instance = connection_->agreement().peer;
  const bool short_life = monotonic_now() - connected_at_ < kShortLife;
  drop_connection();
  if (stopped_) return;
  const Status gone = why.with_context(address_);
  context_.on_peer_closed(address_, instance, gone);
  ++fruitless_;
  if (why.code() == Code::kProtocol || fruitless_ >= kMaxFruitless) {
    fruitless_ = 0;
    fail_all(gone);
  } else {
    for (auto entry = requests_.begin(); entry != requests_.end();) {
      if (entry->second.sent_at == 0 || ++entry->second.broken < 2) {
        entry->second.sent_at = 0;
        ++entry;
        continue;
      }
      Request request = std::move(entry->second);
      entry = requests_.erase(entry);
      request.done(Status(Code::kPeerGone, gone.message()));
    }
  }
  if (!has_work()) return offer_disposal();
  not_before_ = short_life ? monotonic_now() + kRedialDelay : 0;
  connect();
}

void Session::on_request_timeout(uint64_t id) {
  auto found = requests_.find(id);
  if (found == requests_.end()) return;
  Request request = std::move(found->second);
  requests_.erase(found);
  if (request.sent_at != 0) replace_if_silent(request.sent_at);
  request.done(Status::error(Code::kTimeout, "{} did not answer {} in time", address_, request_name(request.type)));
  offer_disposal();
}

void Session::replace_if_silent(Nanos sent_at) {
  if (!connection_ || connection_->heard() >= sent_at || monotonic_now() - sent_at < context_.settings.stall_timeout)
    return;
  // Nothing at all came since: perhaps the host died and came back. A new connection finds out; if the peer lives, it
  // must not take this one's end for ours.
  auto silent = connection_;
  drop_connection();
  say_goodbye(std::move(silent));
  if (has_work()) connect();
}

void Session::drop_connection() {
  if (!connection_) return;
  connection_.reset();
  record_coming_ = false;
  outbox_.disconnected();
  idle_timer_.cancel();
}

void Session::arm_outbox_timer(Nanos deadline) {
  if (deadline >= outbox_due_) return;
  outbox_due_ = deadline;
  call_at(outbox_timer_, deadline, [weak = weak_from_this()] {
    auto self = weak.lock();
    if (!self) return;
    self->outbox_due_ = kNever;
    const Nanos waiting_since = self->outbox_.waiting_since();
    auto settled = self->outbox_.expire(monotonic_now());
    if (!settled.empty() && waiting_since != kNever) self->replace_if_silent(waiting_since);
    self->arm_outbox_timer(self->outbox_.earliest_deadline());
    for (auto& one : settled) one.status = one.status.with_context(self->address_);
    self->settle(std::move(settled));
    self->flush_notifications();
    self->offer_disposal();
  });
}

void Session::arm_idle_timer(Nanos when) {
  call_at(idle_timer_, when, [weak = weak_from_this()] {
    auto self = weak.lock();
    if (!self || !self->connection_) return;
    const Nanos due = self->last_used_ + self->context_.settings.idle_close;
    if (self->has_work()) return self->arm_idle_timer(monotonic_now() + self->context_.settings.idle_close);
    if (due > monotonic_now()) return self->arm_idle_timer(due);
    self->retire();
  });
}

void Session::retire() {
  if (!idle()) return;
  auto connection = connection_;
  drop_connection();
  say_goodbye(std::move(connection));
  offer_disposal();
}

void Session::say_goodbye(std::shared_ptr<Connection> connection) {
  connection->finish(encode_goodbye(false));
  auto timer = std::make_shared<asio::steady_timer>(context_.io);
  call_at(*timer, monotonic_now() + kLinger, [connection = std::move(connection), timer] { connection->close(); });
}

void Session::fail_all(const Status& status) {
  auto requests = std::exchange(requests_, {});
  settle(outbox_.fail_all(status));
  for (auto& [id, request] : requests) request.done(status);
}

void Session::settle(std::vector<NotifyOutbox::Settled> settled) {
  for (auto& one : settled) one.done(one.status);
}

void Session::offer_disposal() {
  if (!disposable() || stopped_) return;
  // Later: this session may be on the stack.
  asio::post(context_.io, [weak = weak_from_this()] {
    auto self = weak.lock();
    if (self && self->disposable()) self->context_.on_disposable(self->address_);
  });
}

void Session::stop(const Status& why) {
  stopped_ = true;
  connecting_ = false;
  connect_timer_.cancel();
  outbox_timer_.cancel();
  if (auto dial = std::exchange(dial_, nullptr)) dial->cancel(why);
  fail_all(why);
  if (connection_) connection_->finish(encode_goodbye(true));
}

void Session::close() {
  if (connection_) connection_->close();
  connection_.reset();
}

}  // namespace tidewire::control
