// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "control/address.h"
#include "control/connection.h"
#include "control/dialer.h"
#include "control/resolver.h"
#include "store/rpc/codec.h"
#include "store/rpc/event_loop.h"
#include "store/rpc/link.h"

namespace tidewire::store {
namespace {

using control::Connection;
using StatusCode = tidewire::Code;

constexpr Nanos kFirstDelay = 50 * kMillisecond;  // between attempts, doubled each time up to
constexpr Nanos kLongestDelay = kSecond;

Status closed() {
  return Status(StatusCode::kClosed, "the link to the store's master is closed");
}
Status forked() {
  return Status(StatusCode::kForked,
                "the link to the store's master belongs to the parent process: make one after fork()");
}

// Whoever was reached said no: it will say so again, until somebody changes something.
bool refused(const Status& status) {
  return status.code() == StatusCode::kUnauthenticated || status.code() == StatusCode::kUnsupported ||
         status.code() == StatusCode::kProtocol;
}

struct Call {
  uint64_t id;
  const char* name;
  Nanos deadline;
  MasterLink::Done done;
  std::vector<uint8_t> frame;  // until it is sent
  Nanos sent_at = 0;           // 0: it waits for a connection
};

}  // namespace

// All state below the line is the loop thread's alone.
class MasterLink::Impl {
 public:
  Impl(Options options, control::HostPort target, Events& events)
      : options_(std::move(options)),
        target_(std::move(target)),
        events_(events),
        identity_{options_.instance, options_.name, options_.secret} {}

  EventLoop& loop() { return loop_; }
  bool connected() const { return connected_.load(std::memory_order_relaxed); }

  Status start() {
    TW_RETURN_IF_ERROR(loop_.start());
    loop_.post([this] { connect(); });
    return Status();
  }

  void call(Body request, Nanos deadline, Done done) {
    std::shared_ptr<Call> call = encoded(std::move(request), deadline, std::move(done));
    if (!call) return;
    if (loop_.on_thread() && !stopped_) return begin(std::move(call));
    if (!loop_.post([this, call] { begin(call); })) call->done(closed());
  }

  Result<Body> call_and_wait(Body request, Nanos deadline) {
    std::optional<Result<Body>> answer;
    EventLoop::Waiter waiter;
    bool waiting = false;
    std::shared_ptr<Call> call = encoded(std::move(request), deadline, [&](Result<Body> result) {
      answer = std::move(result);
      if (waiting) loop_.wake(waiter);
    });
    if (!call) return std::move(*answer);
    waiting = true;
    loop_.run_and_wait(waiter, [this, call] { begin(call); });
    return answer ? std::move(*answer) : closed();
  }

  void answer(uint64_t request, Body body) {
    if (loop_.on_thread()) return send_answer(request, std::move(body));
    loop_.post([this, request, body = std::move(body)]() mutable { send_answer(request, std::move(body)); });
  }

  void stop() {
    loop_.stop([this] {
      stopped_ = true;
      resolver_.close();
      if (auto dial = std::exchange(dial_, nullptr)) dial->cancel(closed());
      if (connection_) connection_->close();
      connected_ = false;
      fail(closed(), [](const Call&) { return true; });
    });
  }

 private:
  // Null when it can't be sent; `done` knows then.
  std::shared_ptr<Call> encoded(Body request, Nanos deadline, Done done) {
    const char* name = message_name(request);
    const uint64_t id = next_id_.fetch_add(1, std::memory_order_relaxed);
    std::vector<uint8_t> frame = encode({id, false, std::move(request)});
    if (!frame.empty()) return std::make_shared<Call>(Call{id, name, deadline, std::move(done), std::move(frame)});
    done(Status::error(StatusCode::kInvalidArgument,
                       "a {} that is too large to send, or whose lists don't belong together", name));
    return nullptr;
  }

  void begin(std::shared_ptr<Call> call) {
    if (call->deadline <= monotonic_now())
      return call->done(Status::error(StatusCode::kTimeout, "{}: the deadline had passed already", options_.master));
    if (call->deadline != kNever) due_.emplace(call->deadline, call->id);
    arm_deadline_timer();
    if (connection_) send(*call);
    calls_.emplace(call->id, std::move(call));
  }

  void send(Call& call) {
    call.sent_at = monotonic_now();
    connection_->send(std::move(call.frame));
  }

  void send_answer(uint64_t request, Body body) {
    const auto found = asked_.find(request);
    if (found == asked_.end()) return;
    const uint64_t id = found->second;
    asked_.erase(found);
    std::vector<uint8_t> frame = encode({id, true, std::move(body)});
    connection_->send(frame.empty() ? encode({id, true, CodeAnswer{Code::kInternal}}) : std::move(frame));
  }

  // ---- connecting

  void connect() {
    if (stopped_ || connection_ || dial_) return;
    ++attempt_;
    const Nanos deadline = monotonic_now() + options_.connect_timeout;
    control::call_at(connect_timer_, deadline, [this, attempt = attempt_] {
      if (attempt_ == attempt && !dial_ && !connection_)
        attempt_failed(Status::error(StatusCode::kTimeout, "the name '{}' was not resolved in time", target_.host));
    });
    resolver_.resolve(target_.host, target_.port,
                      [this, attempt = attempt_, deadline](control::Resolver::Addresses found) {
                        if (stopped_ || attempt_ != attempt) return;
                        connect_timer_.cancel();
                        if (!found.ok()) return attempt_failed(found.status());
                        dial(std::move(*found), deadline);
                      });
  }

  void dial(std::vector<control::Endpoint> remotes, Nanos deadline) {
    dial_ = std::make_shared<control::Dial>(loop_.io());
    control::DialTarget target;
    target.remotes = std::move(remotes);
    control::HandshakeConfig hello = identity_.hello();
    hello.role = control::Role::kStore;
    dial_->start(std::move(target), control::Handshake::initiator(std::move(hello)), deadline,
                 [this](const Status& status, const control::Handshake* handshake, control::Socket socket) {
                   if (stopped_) return;
                   dial_.reset();
                   if (!status.ok()) return attempt_failed(status);
                   attached(handshake->agreement(), std::move(socket));
                 });
  }

  void attempt_failed(const Status& status) {
    ++attempt_;
    const Status before = std::exchange(last_error_, named(status));
    log::debug("store_dial_failed", "can't reach the store's master at {} code={} reason=\"{}\"", options_.master,
               tidewire::code_name(status.code()), status.message());
    connect_later();
    if (!refused(status)) return;
    if (before.message() != last_error_.message())
      log::warn("store_refused", "{} code={}", last_error_.message(), tidewire::code_name(status.code()));
    fail(last_error_, [](const Call&) { return true; });
  }

  // With the master's address, which the dialler has named already where it is no name.
  Status named(const Status& status) const {
    return status.message().starts_with(options_.master) ? status : status.with_context(options_.master);
  }

  void connect_later() {
    const Nanos delay = delay_;
    delay_ = std::clamp(2 * delay_, kFirstDelay, kLongestDelay);
    // Spread, so that a master that comes back is not met by all its clients at once.
    const Nanos spread = std::uniform_int_distribution<Nanos>(0, delay / 4)(random_);
    control::call_at(connect_timer_, monotonic_now() + delay - spread, [this] { connect(); });
  }

  void attached(const control::Agreement& agreement, control::Socket socket) {
    last_error_ = Status();
    connection_ = std::make_shared<Connection>(std::move(socket), agreement,
                                               Connection::Limits{kMaxMessageBytes, SIZE_MAX}, scratch_);
    Connection* const raw = connection_.get();
    connection_->start({[this, raw](const control::Frame& frame) {
                          if (connection_.get() == raw) on_frame(frame);
                        },
                        [this, raw](const Status& why) {
                          if (connection_.get() == raw) lost(why);
                        }});
    connected_ = true;
    events_.on_up();
    for (auto& [id, call] : calls_)
      if (call->sent_at == 0) send(*call);
  }

  void lost(const Status& why) {
    const std::shared_ptr<Connection> connection = std::exchange(connection_, nullptr);
    connection->close();
    connected_ = false;
    asked_.clear();
    const Status status = why.with_context(options_.master);
    if (why.code() == StatusCode::kProtocol) log::warn("store_broken", "closed the connection: {}", status.message());
    connect_later();
    events_.on_down(status);
    fail(Status(StatusCode::kPeerGone, status.message()), [](const Call& call) { return call.sent_at != 0; });
  }

  // ---- what arrives

  void on_frame(const control::Frame& frame) {
    Result<Message> message = decode(frame);
    const bool answer = (static_cast<uint8_t>(frame.type) & kAnswerBit) != 0;
    if (!message.ok() && message.status().code() != StatusCode::kUnsupported) return lost(message.status());
    delay_ = 0;  // the connection is good: the next attempt need not wait
    if (!answer) {
      if (!message.ok()) return connection_->send(encode({frame.request, true, CodeAnswer{Code::kNotSupported}}));
      const uint64_t request = ++last_asked_;
      asked_.emplace(request, frame.request);
      return events_.on_request(request, std::move(message->body));
    }
    const auto found = calls_.find(frame.request);
    if (found == calls_.end()) return;  // answered after its deadline
    const std::shared_ptr<Call> call = take(found);
    call->done(message.ok() ? Result<Body>(std::move(message->body))
                            : Result<Body>(message.status().with_context(options_.master)));
  }

  // ---- calls

  using Calls = std::map<uint64_t, std::shared_ptr<Call>>;  // in the order in which they were made

  std::shared_ptr<Call> take(Calls::iterator found) {
    std::shared_ptr<Call> call = std::move(found->second);
    calls_.erase(found);
    due_.erase({call->deadline, call->id});
    return call;
  }

  // Callbacks may call again, so that none runs before all are taken out.
  template <typename Which>
  void fail(const Status& status, Which which) {
    std::vector<std::shared_ptr<Call>> failed;
    for (auto entry = calls_.begin(); entry != calls_.end();) {
      const auto here = entry++;
      if (which(*here->second)) failed.push_back(take(here));
    }
    for (const auto& call : failed) call->done(status);
  }

  void arm_deadline_timer() {
    if (due_.empty() || due_.begin()->first >= armed_) return;
    armed_ = due_.begin()->first;
    control::call_at(deadline_timer_, armed_, [this] {
      armed_ = kNever;
      expire();
      arm_deadline_timer();
    });
  }

  void expire() {
    const Nanos now = monotonic_now();
    std::vector<std::shared_ptr<Call>> late;
    while (!due_.empty() && due_.begin()->first <= now) late.push_back(take(calls_.find(due_.begin()->second)));
    Nanos silent_since = kNever;
    for (const auto& call : late) {
      if (call->sent_at != 0) {
        silent_since = std::min(silent_since, call->sent_at);
        call->done(Status::error(StatusCode::kTimeout, "{} did not answer {} in time", options_.master, call->name));
      } else if (last_error_.ok()) {
        call->done(Status::error(StatusCode::kUnreachable, "{}: no connection by the deadline", options_.master));
      } else {
        call->done(Status(StatusCode::kUnreachable, last_error_.message()));
      }
    }
    // Perhaps its host died without a word.
    if (connection_ && silent_since != kNever && connection_->heard() < silent_since &&
        now - silent_since >= options_.silence)
      lost(Status(StatusCode::kTimeout, "nothing came for too long: trying a new connection"));
  }

  const Options options_;
  const control::HostPort target_;
  Events& events_;
  const control::Identity identity_;
  std::atomic<uint64_t> next_id_{1};
  std::atomic<bool> connected_{false};
  EventLoop loop_{"tw-store-link"};

  // ------------------------------------------------------------------------------------------------------------------------------------
  control::ScratchBuffer scratch_;
  control::Resolver resolver_{loop_.io()};
  asio::steady_timer connect_timer_{loop_.io()}, deadline_timer_{loop_.io()};
  std::shared_ptr<control::Dial> dial_;
  std::shared_ptr<Connection> connection_;
  Calls calls_;
  std::set<std::pair<Nanos, uint64_t>> due_;      // deadlines of calls_
  Nanos armed_ = kNever;                          // what deadline_timer_ waits for
  std::unordered_map<uint64_t, uint64_t> asked_;  // requests of the master on this connection: our number, its number
  uint64_t last_asked_ = 0;
  uint64_t attempt_ = 0;
  Nanos delay_ = kFirstDelay;  // before the next attempt
  Status last_error_;
  std::minstd_rand random_{std::random_device{}()};
  bool stopped_ = false;
};

MasterLink::MasterLink(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

MasterLink::~MasterLink() {
  if (impl_->loop().forked()) {
    (void)impl_.release();  // the parent's
    return;
  }
  stop();
}

Result<std::unique_ptr<MasterLink>> MasterLink::create(Options options, Events& events) {
  TW_ASSIGN_OR_RETURN(control::HostPort target, control::parse_address(options.master));
  if (target.port == 0)
    return Status::error(StatusCode::kInvalidArgument,
                         "bad address '{}': the address of the store's master needs a port", options.master);
  try {
    return std::unique_ptr<MasterLink>(
        new MasterLink(std::make_unique<Impl>(std::move(options), std::move(target), events)));
  } catch (const std::system_error& error) {
    return control::socket_status(error.code().value(), "start the link to the store's master");
  }
}

Status MasterLink::start() {
  return impl_->loop().forked() ? forked() : impl_->start();
}

void MasterLink::call(Body request, Nanos deadline, Done done) {
  if (impl_->loop().forked()) return done(forked());
  impl_->call(std::move(request), deadline, std::move(done));
}

Result<Body> MasterLink::call_and_wait(Body request, Nanos deadline) {
  if (impl_->loop().on_thread() && !impl_->loop().forked())
    return Status(StatusCode::kInvalidArgument, "call_and_wait() on the link's own thread would wait for itself");
  if (impl_->loop().forked()) return forked();
  return impl_->call_and_wait(std::move(request), deadline);
}

void MasterLink::answer(uint64_t request, Body body) {
  if (!impl_->loop().forked()) impl_->answer(request, std::move(body));
}

bool MasterLink::connected() const {
  return !impl_->loop().forked() && impl_->connected();
}

bool MasterLink::post(std::function<void()> task) {
  return !impl_->loop().forked() && impl_->loop().post(std::move(task));
}

bool MasterLink::run_at(Nanos when, std::function<void()> task) {
  return !impl_->loop().forked() && impl_->loop().run_at(when, std::move(task));
}

void MasterLink::stop() {
  if (!impl_->loop().forked()) impl_->stop();
}

}  // namespace tidewire::store
