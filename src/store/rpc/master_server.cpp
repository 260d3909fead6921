// SPDX-License-Identifier: Apache-2.0
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "control/acceptor.h"
#include "control/address.h"
#include "control/connection.h"
#include "control/listeners.h"
#include "store/rpc/codec.h"
#include "store/rpc/event_loop.h"
#include "store/rpc/link.h"

namespace tidewire::store {
namespace {

using control::Connection;
using StatusCode = tidewire::Code;

// Everywhere, or where the name leads.
Result<control::Listening> listen_at(const std::string& host, uint16_t port) {
  if (!control::is_wildcard(host)) return control::listen_all(host, port, {}, Settings{});
  TW_ASSIGN_OR_RETURN(const control::Endpoint where, control::literal_endpoint(host, port));
  TW_ASSIGN_OR_RETURN(UniqueFd fd, control::open_listener(where, port != 0));
  control::Listening listening;
  listening.port = control::local_endpoint(fd.get()).port();
  listening.sockets.push_back({std::move(fd), where.family(), 0});
  return listening;
}

}  // namespace

class MasterServer::Impl {
 public:
  Impl(Options options, Handler& handler) : options_(std::move(options)), handler_(handler) {}

  Status listen() {
    TW_ASSIGN_OR_RETURN(control::Listening listening, listen_at(options_.host, options_.port));
    port_ = listening.port;
    identity_.instance = options_.instance;
    identity_.name =
        options_.advertised.empty() ? control::HostPort{options_.host, port_, true}.to_string() : options_.advertised;
    identity_.secret = options_.secret;
    identity_.store_port = true;
    acceptor_ = std::make_unique<control::Acceptor>(
        loop_.io(), identity_, options_.hello_timeout,
        control::Acceptor::Events{
            [this](control::Socket socket, const control::Agreement& agreement, uint32_t) {
              add(std::move(socket), agreement);
            },
            [this] { return connections_.size() + acceptor_->in_handshake() < control::kMaxAccepted; }});
    bool open_to_others = false;
    for (auto& entry : listening.sockets) {
      open_to_others = open_to_others || !control::local_endpoint(entry.fd.get()).loopback();
      TW_RETURN_IF_ERROR(acceptor_->add(std::move(entry.fd), entry.family, entry.rail));
    }
    if (open_to_others && options_.secret.empty())
      log::warn("store_open",
                "{} listens without a cluster secret: whoever reaches it can read and remove objects; set "
                "TIDEWIRE_SECRET_FILE",
                identity_.name);
    acceptor_->start();
    return Status();
  }

  EventLoop& loop() { return loop_; }
  uint16_t port() const { return port_; }
  const std::string& advertised() const { return identity_.name; }

  bool send(ConnectionId id, const Message& message) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return false;
    std::vector<uint8_t> frame = encode(message);
    const bool fits = !frame.empty();
    if (!fits) {
      log::error("store_unsendable", "a {} for {} is too large to send", message_name(message.body),
                 found->second->agreement().peer_name);
      if (!message.answer) return false;
      frame = encode({message.request, true, CodeAnswer{Code::kInternal}});
    }
    found->second->send(std::move(frame));
    return fits;
  }

  void drop(ConnectionId id) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    // It may be on the stack.
    const std::shared_ptr<Connection> connection = std::move(found->second);
    connections_.erase(found);
    connection->close();
  }

  std::string peer_name(ConnectionId id) const {
    const auto found = connections_.find(id);
    return found == connections_.end() ? std::string() : found->second->agreement().peer_name;
  }

  void stop() {
    loop_.stop([this] {
      acceptor_->close();
      for (auto& [id, connection] : std::exchange(connections_, {})) connection->close();
    });
  }

 private:
  void add(control::Socket socket, const control::Agreement& agreement) {
    control::tune_connection(socket.native_handle(), true);
    const ConnectionId id = ++last_id_;
    auto connection = std::make_shared<Connection>(
        std::move(socket), agreement, Connection::Limits{kMaxMessageBytes, options_.max_backlog}, scratch_);
    connections_[id] = connection;
    connection->start({[this, id](control::Frame frame) { on_frame(id, frame); },
                       [this, id](const Status& why) { on_closed(id, why); }});
  }

  void on_frame(ConnectionId id, const control::Frame& frame) {
    Result<Message> message = decode(frame);
    if (message.ok()) return handler_.on_message(id, std::move(*message));
    if (message.status().code() != StatusCode::kUnsupported) return on_closed(id, message.status());
    if ((static_cast<uint8_t>(frame.type) & kAnswerBit) == 0)
      send(id, {frame.request, true, CodeAnswer{Code::kNotSupported}});
  }

  void on_closed(ConnectionId id, const Status& why) {
    const std::string name = peer_name(id);
    if (why.code() == StatusCode::kProtocol)
      log::warn("store_broken", "closed the connection of {} code={} reason=\"{}\"", name,
                tidewire::code_name(why.code()), why.message());
    drop(id);
    handler_.on_closed(id, why.with_context(name));
  }

  const Options options_;
  Handler& handler_;
  uint16_t port_ = 0;
  control::Identity identity_;
  EventLoop loop_{"tw-store-master"};
  control::ScratchBuffer scratch_;
  std::unique_ptr<control::Acceptor> acceptor_;
  std::unordered_map<ConnectionId, std::shared_ptr<Connection>> connections_;
  ConnectionId last_id_ = 0;
};

MasterServer::MasterServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

MasterServer::~MasterServer() {
  if (impl_->loop().forked()) {
    (void)impl_.release();  // the parent's
    return;
  }
  stop();
}

Result<std::unique_ptr<MasterServer>> MasterServer::listen(Options options, Handler& handler) {
  try {
    auto impl = std::make_unique<Impl>(std::move(options), handler);
    TW_RETURN_IF_ERROR(impl->listen());
    return std::unique_ptr<MasterServer>(new MasterServer(std::move(impl)));
  } catch (const std::system_error& error) {
    return control::socket_status(error.code().value(), "start the master's port");
  }
}

Status MasterServer::start() {
  return impl_->loop().start();
}
uint16_t MasterServer::port() const {
  return impl_->port();
}
const std::string& MasterServer::advertised() const {
  return impl_->advertised();
}
bool MasterServer::send(ConnectionId connection, const Message& message) {
  return impl_->send(connection, message);
}
void MasterServer::drop(ConnectionId connection) {
  impl_->drop(connection);
}
std::string MasterServer::peer_name(ConnectionId connection) const {
  return impl_->peer_name(connection);
}

bool MasterServer::post(std::function<void()> task) {
  return !impl_->loop().forked() && impl_->loop().post(std::move(task));
}

bool MasterServer::run_at(Nanos when, std::function<void()> task) {
  return !impl_->loop().forked() && impl_->loop().run_at(when, std::move(task));
}

void MasterServer::stop() {
  if (!impl_->loop().forked()) impl_->stop();
}

}  // namespace tidewire::store
