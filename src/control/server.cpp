// SPDX-License-Identifier: Apache-2.0
#include "control/server.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "control/messages.h"

namespace tidewire::control {
namespace {
// A peer closes its own idle connections; what is silent for much longer than we would be is closed here.
constexpr Nanos kIdleFactor = 2;
constexpr Nanos kIdleSlack = 10 * kSecond;
}  // namespace

Server::Server(asio::io_context& io, Handler& handler, const Settings& settings, ScratchBuffer& scratch)
    : io_(io), handler_(handler), settings_(settings), scratch_(scratch), sweep_(io) {}

void Server::add(Socket socket, const Agreement& agreement) {
  if (stopped_) return;
  tune_connection(socket.native_handle(), true);
  auto connection = std::make_shared<Connection>(std::move(socket), agreement,
                                                 Connection::Limits{kMaxRequestBytes, kMaxAnswerBacklog}, scratch_);
  const Key key = connection.get();
  connections_[key] = connection;
  count();
  connection->start({[this, key](Frame frame) { on_frame(*key, std::move(frame)); },
                     [this, key](const Status& why) { on_closed(key, why); }});
  // Whoever connects wants the record first, nearly always: it need not wake this side once more to ask.
  if (agreement.role == Role::kControl && (agreement.features & kPushedRecord) != 0)
    connection->send(encode_record(kPushedRequest, handler_.local_record()));
  if (!sweeping_) sweep_later();
}

void Server::on_frame(Connection& connection, Frame frame) {
  switch (frame.type) {
    case FrameType::kRecordRequest: {
      PeerRecord record = handler_.local_record();
      return connection.send(encode_record(frame.request, record));
    }
    case FrameType::kProbe:
      return connection.send(encode_outcome(FrameType::kProbeAnswer, frame.request, Status()));
    case FrameType::kFirstRegionRequest: {
      const Result<FirstRegion> region = handler_.first_region();
      if (!region.ok()) return connection.send(encode_outcome(FrameType::kError, frame.request, region.status()));
      return connection.send(encode_first_region(frame.request, {region->address, region->length}));
    }
    case FrameType::kNotification:
      return on_notification(connection, frame);
    case FrameType::kGoodbye:
      return on_goodbye(connection, frame);
    default:
      return connection.send(encode_outcome(
          FrameType::kError, frame.request,
          Status::error(Code::kUnsupported, "requests of type {} are unknown here", static_cast<int>(frame.type))));
  }
}

void Server::on_notification(Connection& connection, const Frame& frame) {
  Result<NotificationMessage> message = decode_notification(frame.payload);
  if (!message.ok())
    return connection.send(encode_outcome(FrameType::kNotificationAnswer, frame.request, message.status()));
  const Agreement& peer = connection.agreement();
  const Status outcome = inbox_.receive(peer.peer, message->stream, message->sequence, monotonic_now(), [&] {
    return handler_.on_notification({std::move(message->name), std::move(message->message), peer.peer_name});
  });
  connection.send(encode_outcome(FrameType::kNotificationAnswer, frame.request, outcome));
}

void Server::on_goodbye(Connection& connection, const Frame& frame) {
  const Result<bool> closing = decode_goodbye(frame.payload);
  const Agreement peer = connection.agreement();
  const auto found = connections_.find(&connection);
  const auto keep = found->second;
  connections_.erase(found);
  count();
  connection.close();
  if (closing.ok() && *closing)
    handler_.on_peer_closed(peer.peer_name, peer.peer,
                            Status::error(Code::kPeerGone, "{} said goodbye: its engine was closed", peer.peer_name));
}

void Server::on_closed(Key key, const Status& why) {
  auto found = connections_.find(key);
  if (found == connections_.end()) return;
  const auto connection = found->second;
  connections_.erase(found);
  count();
  if (stopped_ || connection->finishing()) return;  // as we asked
  const Agreement& peer = connection->agreement();
  if (why.code() == Code::kProtocol)
    log::warn("control_broken", "closed the connection of {} code={} reason=\"{}\"", peer.peer_name,
              code_name(why.code()), why.message());
  handler_.on_peer_closed(peer.peer_name, peer.peer, why.with_context(peer.peer_name));
}

void Server::sweep_later() {
  sweeping_ = !connections_.empty() && !stopped_;
  if (!sweeping_) return;
  call_at(sweep_, monotonic_now() + std::max(settings_.idle_close, kSecond), [this] {
    const Nanos silent_since = monotonic_now() - (kIdleFactor * settings_.idle_close + kIdleSlack);
    for (auto& [key, connection] : connections_)
      if (connection->heard() < silent_since) connection->finish(encode_goodbye(false));
    // Who doesn't react to the goodbye by the next sweep is cut.
    std::erase_if(connections_, [&](auto& entry) {
      if (entry.second->heard() >= silent_since - std::max(settings_.idle_close, kSecond)) return false;
      entry.second->close();
      return true;
    });
    count();
    sweep_later();
  });
}

void Server::stop() {
  stopped_ = true;
  sweep_.cancel();
  for (auto& [key, connection] : connections_) connection->finish(encode_goodbye(true));
}

void Server::close() {
  auto connections = std::exchange(connections_, {});
  count();
  for (auto& [key, connection] : connections) connection->close();
}

}  // namespace tidewire::control
