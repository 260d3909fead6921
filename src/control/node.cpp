// SPDX-License-Identifier: Apache-2.0
#include "control/node.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/thread.h"
#include "control/messages.h"
#include "control/node_impl.h"

namespace tidewire::control {
namespace {
constexpr Nanos kGoodbye = 200 * kMillisecond;
constexpr Nanos kGoodbyeStep = 5 * kMillisecond;

Status closed() {
  return Status(Code::kClosed, "the engine is closed");
}
}  // namespace

Result<std::unique_ptr<Node>> Node::start(Options options, Handler& handler) {
  TW_ASSIGN_OR_RETURN(HostPort advertised, parse_address(options.advertised));
  if (is_wildcard(advertised.host))
    return Status::error(Code::kInvalidArgument,
                         "bad address '{}': a wildcard can't be advertised, peers need an address of this machine",
                         options.advertised);
  if (advertised.port != 0 && options.port != 0 && advertised.port != options.port)
    return Status::error(Code::kInvalidArgument, "bad address '{}': its port differs from the port {} asked for",
                         options.advertised, options.port);
  const uint16_t port = options.port != 0 ? options.port : advertised.port;
  try {
    TW_ASSIGN_OR_RETURN(Listening listening,
                        listen_all(advertised.host, port, options.rail_addresses, options.settings));
    auto node = std::make_unique<NodeImpl>(std::move(options), handler);
    TW_RETURN_IF_ERROR(node->begin(std::move(listening), std::move(advertised)));
    return std::unique_ptr<Node>(std::move(node));
  } catch (const std::system_error& error) {
    // Asio's epoll and event descriptors, and threads, report by exception.
    return socket_status(error.code().value(), "start the control plane");
  }
}

NodeImpl::NodeImpl(Options options, Handler& handler)
    : options_(std::move(options)),
      handler_(handler),
      context_{io_,
               resolver_,
               identity_,
               options_.settings,
               scratch_,
               [this](const std::string& address, const InstanceId& instance, const Status& why) {
                 handler_.on_peer_closed(address, instance, why);
               },
               [this](const std::string& address) {
                 sessions_.erase(address);
                 count();
               },
               [this] { make_room(); }},
      server_(io_, handler, options_.settings, scratch_) {}

NodeImpl::~NodeImpl() {
  stop();
}

Status NodeImpl::begin(Listening listening, HostPort advertised) {
  port_ = listening.port;
  advertised.port = port_;
  advertised.has_port = true;
  identity_ = {options_.instance, advertised.to_string(), options_.secret};
  for (const Endpoint& rail : listening.rails) rail_addresses_.push_back(rail.to_string());
  acceptor_ = std::make_unique<Acceptor>(
      io_, identity_, options_.settings.connect_timeout,
      Acceptor::Events{[this](Socket socket, const Agreement& agreement, uint32_t rail) {
                         on_connection(std::move(socket), agreement, rail);
                       },
                       [this] { return server_.size() + acceptor_->in_handshake() < kMaxAccepted; }});
  bool open_to_others = false;
  for (auto& entry : listening.sockets) {
    open_to_others = open_to_others || !local_endpoint(entry.fd.get()).loopback();
    TW_RETURN_IF_ERROR(acceptor_->add(std::move(entry.fd), entry.family, entry.rail));
  }
  if (open_to_others && options_.secret.empty())
    log::warn("control_open",
              "{} listens without a cluster secret: whoever reaches it can read and write registered memory; set "
              "TIDEWIRE_SECRET_FILE",
              identity_.name);
  thread_ = start_thread("tw-control", [this] {
    Runner runner(io_);
    while (runner.next(kLoopSpin)) {
    }
  });
  return Status();
}

void NodeImpl::serve() {
  submit([this] { acceptor_->start(); }, nullptr);
}

void NodeImpl::submit(std::function<void()> task, std::function<void(Status)> reject) {
  {
    std::lock_guard lock(mutex_);
    if (!stopped_) {
      asio::post(io_, std::move(task));
      return;
    }
  }
  if (reject) reject(closed());
}

Result<std::shared_ptr<Session>> NodeImpl::session(const std::string& address) {
  auto found = sessions_.find(address);
  if (found != sessions_.end()) return found->second;
  TW_ASSIGN_OR_RETURN(HostPort target, parse_address(address));
  if (target.port == 0)
    return Status::error(Code::kInvalidArgument, "bad address '{}': a peer's address needs a port", address);
  auto session = std::make_shared<Session>(context_, address, std::move(target), ++last_stream_);
  sessions_.emplace(address, session);
  count();
  return session;
}

// Peers are known by their records; connections are kept for the most recent ones only, so that ten thousand peers do
// not take as many descriptors.
void NodeImpl::make_room() {
  if (sessions_.size() <= kMostIdle) return;
  // Later: the session that asks is on the stack, and may get new work yet.
  asio::post(io_, [this] {
    std::vector<std::shared_ptr<Session>> idle;
    for (const auto& [address, session] : sessions_)
      if (session->idle()) idle.push_back(session);
    if (idle.size() <= kMostIdle) return;
    std::sort(idle.begin(), idle.end(), [](const auto& a, const auto& b) { return a->last_used() < b->last_used(); });
    for (size_t i = 0; i < idle.size() - kKeptIdle; ++i) idle[i]->retire();
  });
}

void NodeImpl::ask(const std::string& address, FrameType request, FrameType answer, Nanos deadline,
                   Session::Answer done) {
  Result<std::shared_ptr<Session>> peer = session(address);
  if (!peer.ok()) return done(peer.status());
  (*peer)->ask(request, answer, deadline, std::move(done));
}

void NodeImpl::fetch_record(const std::string& address, Nanos deadline, std::function<void(Result<PeerRecord>)> done) {
  auto on_answer = [done, address](Result<Frame> frame) {
    if (!frame.ok()) return done(frame.status());
    Result<PeerRecord> record = decode_record(frame->payload);
    done(record.ok() ? std::move(record) : Result<PeerRecord>(record.status().with_context(address)));
  };
  submit([this, address, deadline,
          on_answer] { ask(address, FrameType::kRecordRequest, FrameType::kRecord, deadline, on_answer); },
         [done](Status status) { done(std::move(status)); });
}

void NodeImpl::probe(const std::string& address, Nanos deadline, std::function<void(Status)> done) {
  auto on_answer = [done, address](Result<Frame> frame) {
    done(frame.ok() ? decode_outcome(frame->payload).with_context(address) : frame.status());
  };
  submit([this, address, deadline,
          on_answer] { ask(address, FrameType::kProbe, FrameType::kProbeAnswer, deadline, on_answer); },
         done);
}

void NodeImpl::fetch_first_region(const std::string& address, Nanos deadline,
                                  std::function<void(Result<FirstRegion>)> done) {
  auto on_answer = [done, address](Result<Frame> frame) {
    if (!frame.ok()) return done(frame.status());
    const Result<RegionMessage> region = decode_first_region(frame->payload);
    if (!region.ok()) return done(region.status().with_context(address));
    done(FirstRegion{region->address, region->length});
  };
  submit([this, address, deadline,
          on_answer] { ask(address, FrameType::kFirstRegionRequest, FrameType::kFirstRegion, deadline, on_answer); },
         [done](Status status) { done(std::move(status)); });
}

void NodeImpl::notify(const std::string& address, std::string name, std::string message, Nanos deadline,
                      std::function<void(Status)> done, const InstanceId& only) {
  Status invalid;
  if (message.size() > kMaxNotificationBytes)
    invalid = Status::error(Code::kInvalidArgument, "a notification of {} bytes: at most {} are allowed",
                            message.size(), kMaxNotificationBytes);
  if (name.size() > kMaxNotificationNameBytes)
    invalid = Status::error(Code::kInvalidArgument, "a notification's name of {} bytes: at most {} are allowed",
                            name.size(), kMaxNotificationNameBytes);
  submit(
      [this, address, invalid, deadline, done, only, name = std::move(name), message = std::move(message)]() mutable {
        if (!invalid.ok()) return done(invalid);
        Result<std::shared_ptr<Session>> peer = session(address);
        if (!peer.ok()) return done(peer.status());
        (*peer)->notify(std::move(name), std::move(message), deadline, only, done);
      },
      done);
}

void NodeImpl::dial_data(const std::string& local_address, const std::string& remote_address,
                         const InstanceId& expected, uint64_t channel, Nanos deadline,
                         std::function<void(DataConnection)> done) {
  auto task = [this, local_address, remote_address, expected, channel, deadline, done] {
    const auto fail = [&](const Status& status) { done({status, UniqueFd(), InstanceId{}}); };
    if (deadline <= monotonic_now())
      return fail(Status::error(Code::kTimeout, "{}: the deadline had passed already", remote_address));
    const Result<HostPort> target = parse_address(remote_address);
    if (!target.ok()) return fail(target.status());
    if (target->port == 0)
      return fail(
          Status::error(Code::kInvalidArgument, "bad address '{}': a data connection needs a port", remote_address));
    const Result<Endpoint> remote = literal_endpoint(target->host, target->port);
    if (!remote.ok()) return fail(remote.status());
    DialTarget to;
    to.remotes = {*remote};
    to.keep_alive = false;  // the transport watches its own connections
    if (!local_address.empty()) {
      const Result<Endpoint> local = literal_endpoint(local_address, 0);
      if (!local.ok()) return fail(local.status());
      to.local = *local;
    }
    HandshakeConfig hello = identity_.hello();
    hello.role = Role::kData;
    hello.expected = expected;
    hello.channel = channel;
    dial(std::move(to), std::move(hello), deadline, done);
  };
  submit(task, [done](const Status& status) { done({status, UniqueFd(), InstanceId{}}); });
}

void NodeImpl::dial(DialTarget target, HandshakeConfig hello, Nanos deadline,
                    std::function<void(DataConnection)> done) {
  auto dial = std::make_shared<Dial>(io_);
  dials_.insert(dial);
  dial->start(
      std::move(target), Handshake::initiator(std::move(hello)), deadline,
      [this, done, key = std::weak_ptr<Dial>(dial)](const Status& status, const Handshake* handshake, Socket socket) {
        if (auto self = key.lock()) dials_.erase(self);
        DataConnection connection;
        connection.status = status;
        if (handshake != nullptr) connection.seen = handshake->seen();
        if (status.ok()) {
          connection.socket = release(socket);
          ++dialled_data_;
        }
        done(std::move(connection));
      });
}

void NodeImpl::run_at(Nanos when, std::function<void()> task) {
  submit(
      [this, when, task = std::move(task)] {
        auto timer = std::make_shared<asio::steady_timer>(io_);
        call_at(*timer, when, [timer, task] { task(); });
      },
      nullptr);
}

void NodeImpl::on_connection(Socket socket, const Agreement& agreement, uint32_t rail) {
  if (agreement.role == Role::kControl) {
    server_.add(std::move(socket), agreement);
    return;
  }
  DataHello hello;
  hello.initiator = agreement.peer;
  hello.initiator_name = agreement.peer_name;
  hello.channel = agreement.channel;
  hello.rail = rail;
  ++taken_data_;
  handler_.on_data_connection(release(socket), std::move(hello));
}

void NodeImpl::stop() {
  {
    std::lock_guard lock(mutex_);
    if (!stopped_) {
      stopped_ = true;
      // Posted last: what was submitted before runs before, and is then told that it is over.
      asio::post(io_, [this] { begin_stop(); });
    }
  }
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
}

void NodeImpl::begin_stop() {
  stopping_ = true;
  acceptor_->close();
  resolver_.close();
  server_.stop();
  for (const auto& dial : std::exchange(dials_, {})) dial->cancel(closed());
  for (auto& [address, session] : sessions_) session->stop(closed());
  stop_when_quiet(monotonic_now() + kGoodbye);
}

void NodeImpl::stop_when_quiet(Nanos until) {
  bool quiet = server_.size() == 0;
  for (auto& [address, session] : sessions_) quiet = quiet && !session->connected();
  if (!quiet && monotonic_now() < until)
    return call_at(stop_timer_, monotonic_now() + kGoodbyeStep, [this, until] { stop_when_quiet(until); });
  for (auto& [address, session] : sessions_) session->close();
  server_.close();
  work_.reset();
  io_.stop();
}

void NodeImpl::count() {
  sessions_count_ = sessions_.size();
}

std::string NodeImpl::describe() const {
  return fmt::format(R"({{"address":"{}","instance":"{}","secret":{},"accepted":{},"sessions":{},)"
                     R"("data_dialled":{},"data_accepted":{}}})",
                     identity_.name, to_string(identity_.instance), !identity_.secret.empty(), server_.size(),
                     sessions_count_.load(), dialled_data_.load(), taken_data_.load());
}

}  // namespace tidewire::control
