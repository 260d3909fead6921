// SPDX-License-Identifier: Apache-2.0
#include "sim/far_transport.h"

#include <cerrno>
#include <cstring>

#include "sim/driver.h"

namespace tidewire::sim {
namespace {

constexpr uint64_t kChunk = 2048;
constexpr uint32_t kBuffer = 8;  // chunks that a socket's buffer takes

control::HandshakeConfig config(Process& process) {
  control::HandshakeConfig config;
  config.instance = process.instance;
  config.name = "engine" + std::to_string(process.slot);
  for (uint8_t& byte : config.nonce) byte = static_cast<uint8_t>(process.cluster.world.random.next());
  return config;
}

void feed(control::Handshake& handshake, const std::vector<uint8_t>& bytes) {
  std::span<const uint8_t> rest(bytes);
  while (!rest.empty() && !handshake.over()) {
    const size_t taken = handshake.feed(rest.first(std::min(rest.size(), handshake.wanted())));
    rest = rest.subspan(taken);
    if (taken == 0) return;
  }
}

}  // namespace

void Connection::arrive(std::function<void()> message) {
  if (target_closed) return;
  inbox.push_back(std::move(message));
  if (!processing) process_next();
}

void Connection::process_next() {
  processing = !inbox.empty();
  if (!processing) return;
  Cluster& cluster = target->cluster;
  World& world = cluster.world;
  const Nanos when = std::max(world.now() + world.random.skewed(0, 2 * cluster.settings.processing), cluster.slots[target->slot].paused_until);
  world.at(when, [self = shared_from_this()] {
    if (!self->target->alive) return;
    Cluster& cluster = self->target->cluster;
    if (cluster.slots[self->target->slot].paused_until > cluster.world.now()) return self->process_next();
    if (self->inbox.empty()) return self->process_next();
    const std::function<void()> message = std::move(self->inbox.front());
    self->inbox.pop_front();
    message();
    self->process_next();
  });
}

void Connection::cut() {
  if (target_open) {
    target->ledger.gone(initiator->instance, channel);
    target->lanes.erase({initiator->instance, channel});
  }
  target_open = false;
  target_closed = true;
  inbox.clear();
}

FarTransport::FarTransport(Process& owner) : owner_(owner), cluster_(owner.cluster), world_(owner.cluster.world) {}

void FarTransport::open(Driver& driver, engine::ChannelId channel, const InstanceId& expected, uint32_t rail, Nanos deadline) {
  auto lane = std::make_shared<Lane>();
  lane->driver = &driver;
  lane->id = channel;
  lane->rail = rail;
  lane->expected = expected;
  lanes_[channel] = lane;
  world_.at(deadline, [this, lane] {
    if (find(lane->id) == lane && !lane->up) down(lane->id, Status(Code::kTimeout, "no connection in time"));
  });
  world_.after(network_latency(cluster_), [this, lane] { connect(lane); });
}

void FarTransport::connect(const LanePtr& lane) {
  if (find(lane->id) != lane) return;
  const uint32_t from = owner_.slot, to = lane->driver->target();
  const Slot& slot = cluster_.slots[to];
  if (!cluster_.network.both_ways(from, to, lane->rail) || slot.host_down) return;  // silence
  if (!slot.process) {
    world_.after(network_latency(cluster_), [this, lane] {
      if (find(lane->id) == lane) down(lane->id, errno_status(ECONNREFUSED, "connect"));
    });
    return;
  }
  auto connection = std::make_shared<Connection>();
  connection->initiator = owner_.shared_from_this();
  connection->target = slot.process;
  connection->channel = lane->id;
  connection->forth = std::make_shared<Stream>(cluster_.network, from, to, lane->rail);
  connection->back = std::make_shared<Stream>(cluster_.network, to, from, lane->rail);
  connection->acceptor = std::make_unique<control::Handshake>(control::Handshake::acceptor(config(*slot.process)));
  lane->connection = connection;
  cluster_.connections.push_back(connection);
  control::HandshakeConfig mine = config(owner_);
  mine.role = control::Role::kData;
  if (!cluster_.mutations.accept_any_instance) mine.expected = lane->expected;
  mine.channel = lane->id;
  mine.rail = lane->rail;
  lane->handshake = std::make_unique<control::Handshake>(control::Handshake::initiator(mine));
  shake_hands(connection, lane->handshake->take_output());
}

void FarTransport::shake_hands(const std::shared_ptr<Connection>& connection, std::vector<uint8_t> bytes) {
  connection->forth->send(bytes.size(), [this, connection, bytes] {
    connection->arrive([this, connection, bytes] {
      feed(*connection->acceptor, bytes);
      const engine::ChannelId channel = connection->channel;
      connection->back->send(200, [this, channel, answer = connection->acceptor->take_output()] { on_handshake(channel, answer); });
      if (!connection->acceptor->over()) return;
      Status status = connection->acceptor->status();
      Process& target = *connection->target;
      if (status.ok()) status = target.ledger.admit(connection->initiator->instance, channel, world_.now());
      connection->target_open = status.ok();
      if (status.ok()) {
        target.lanes[{connection->initiator->instance, channel}] = connection;
      } else {
        connection->target_closed = true;
        connection->back->send(40, [this, channel] { down(channel, Status(Code::kPeerGone, "connection reset")); });
      }
    });
  });
}

void FarTransport::on_handshake(engine::ChannelId channel, std::vector<uint8_t> bytes) {
  const LanePtr lane = find(channel);
  if (!lane || lane->up) return;
  feed(*lane->handshake, bytes);
  if (std::vector<uint8_t> more = lane->handshake->take_output(); !more.empty()) shake_hands(lane->connection, more);
  if (!lane->handshake->over()) return;
  if (!lane->handshake->status().ok()) {
    const InstanceId seen = lane->handshake->seen();
    return down(channel, lane->handshake->status(), seen == lane->expected ? InstanceId{} : seen);
  }
  lane->up = true;
  lane->driver->handle([&](auto& session, Nanos now, auto& actions) { session.channel_up(channel, now, actions); });
}

void FarTransport::post(Driver& driver, engine::ChannelId channel, const engine::JobSlicePtr& slice) {
  const LanePtr lane = find(channel);
  if (!lane || !lane->up) {
    world_.after(0, [&driver, channel, slice] { driver.slice_done(channel, slice, Status(Code::kUnreachable, "channel is not up")); });
    return;
  }
  lane->slices[slice->id] = slice;
  if (slice->opcode == transport::Opcode::kRead) {
    send_read(*lane, slice);
  } else {
    for (size_t i = 0; i < slice->pieces.size(); ++i) {
      const transport::Piece& piece = slice->pieces[i];
      for (uint64_t at = 0; at < piece.length; at += kChunk) {
        const uint64_t length = std::min(kChunk, piece.length - at);
        lane->queue.push_back({slice, {piece.local + at, piece.remote + at, length}, i + 1 == slice->pieces.size() && at + length == piece.length});
      }
    }
  }
  watch(lane);
  pump(*lane);
  if (world_.random.chance(cluster_.settings.connection_loss))
    world_.after(world_.random.between(0, 5 * kMillisecond), [this, channel] { down(channel, Status(Code::kPeerGone, "connection reset")); });
}

void FarTransport::pump(Lane& lane) {
  while (!lane.queue.empty() && lane.in_buffer < kBuffer) {
    const Chunk chunk = lane.queue.front();
    lane.queue.pop_front();
    if (lane.slices.count(chunk.slice->id)) send_write(lane, chunk);
  }
}

void FarTransport::send_write(Lane& lane, const Chunk& chunk) {
  ++lane.in_buffer;
  SimJob& job = sim_job(chunk.slice->job);
  cluster_.oracle.touching(job, chunk.piece.local, chunk.piece.length);
  const uint8_t* source = owner_.at(chunk.piece.local);
  const std::vector<uint8_t> bytes(source, source + chunk.piece.length);
  lane.connection->forth->send(chunk.piece.length + 40, [this, connection = lane.connection, chunk, bytes] {
    const engine::ChannelId channel = connection->channel;
    if (!connection->target->alive) {
      connection->back->send(40, [this, channel] { down(channel, Status(Code::kPeerGone, "connection reset")); });
      return;
    }
    on_progress(channel);  // the kernel's acknowledgement
    const bool early = cluster_.mutations.acknowledge_before_placing && chunk.last;
    if (early) connection->back->send(40, [this, channel, slice = chunk.slice] { on_answer(channel, slice, {}); });
    connection->arrive([this, connection, chunk, bytes, early] {
      if (!connection->target_open) return;
      Process& target = *connection->target;
      const uint64_t id = chunk.slice->id;
      if (!connection->refused.count(id)) {
        const Status status = target.check(chunk.piece.remote, chunk.piece.length, /*write=*/true);
        if (!status.ok() && !cluster_.mutations.ignore_ranges) {
          connection->refused[id] = status;
        } else {
          cluster_.oracle.placing(sim_job(chunk.slice->job), connection->target, chunk.piece.remote, chunk.piece.length);
          if (status.ok()) std::memcpy(target.at(chunk.piece.remote), bytes.data(), bytes.size());
        }
      }
      if (!chunk.last || early) return;
      const auto refused = connection->refused.find(id);
      const Status status = refused == connection->refused.end() ? Status() : refused->second;
      connection->back->send(40, [this, connection, slice = chunk.slice, status] { on_answer(connection->channel, slice, status); });
    });
  });
}

void FarTransport::send_read(Lane& lane, const engine::JobSlicePtr& slice) {
  lane.connection->forth->send(100, [this, connection = lane.connection, slice] {
    const engine::ChannelId channel = connection->channel;
    if (!connection->target->alive) {
      connection->back->send(40, [this, channel] { down(channel, Status(Code::kPeerGone, "connection reset")); });
      return;
    }
    on_progress(channel);
    connection->arrive([this, connection, slice] {
      if (!connection->target_open) return;
      Process& target = *connection->target;
      Status status;
      for (const transport::Piece& piece : slice->pieces)
        if (status.ok()) status = target.check(piece.remote, piece.length, /*write=*/false);
      if (status.ok()) {
        for (const transport::Piece& piece : slice->pieces) {
          for (uint64_t at = 0; at < piece.length; at += kChunk) {
            const uint64_t length = std::min(kChunk, piece.length - at);
            cluster_.oracle.placing(sim_job(slice->job), connection->target, piece.remote + at, length);
            const uint8_t* source = target.at(piece.remote + at);
            connection->back->send(length, [this, connection, slice, local = piece.local + at, bytes = std::vector<uint8_t>(source, source + length)] {
              on_data(connection->channel, slice, local, bytes);
            });
          }
        }
      }
      connection->back->send(40, [this, connection, slice, status] { on_answer(connection->channel, slice, status); });
    });
  });
}

void FarTransport::on_data(engine::ChannelId channel, const engine::JobSlicePtr& slice, uint64_t local, const std::vector<uint8_t>& bytes) {
  const LanePtr lane = find(channel);
  if ((!lane || !lane->slices.count(slice->id)) && !cluster_.mutations.touch_local_memory_after_down) return;
  if (!owner_.alive) return;
  if (lane) lane->last_progress = world_.now();
  cluster_.oracle.touching(sim_job(slice->job), local, bytes.size());
  std::memcpy(owner_.at(local), bytes.data(), bytes.size());
}

void FarTransport::on_answer(engine::ChannelId channel, const engine::JobSlicePtr& slice, const Status& status) {
  const LanePtr lane = find(channel);
  if (!lane || lane->slices.erase(slice->id) == 0) return;
  lane->last_progress = world_.now();
  world_.trace("{}→{} lane {:x} slice {} of job {}: {}", owner_.slot, lane->driver->target(), channel, slice->id, sim_job(slice->job).number,
               status.ok() ? "ok" : status.to_string());
  lane->driver->slice_done(channel, slice, status);
}

void FarTransport::on_progress(engine::ChannelId channel) {
  const LanePtr lane = find(channel);
  if (!lane || !cluster_.network.open(lane->driver->target(), owner_.slot, lane->rail)) return;
  lane->last_progress = world_.now();
  if (lane->in_buffer > 0) --lane->in_buffer;
  pump(*lane);
}

void FarTransport::watch(const LanePtr& lane) {
  if (lane->watched) return;
  lane->watched = true;
  lane->last_progress = world_.now();
  world_.after(cluster_.settings.stall_timeout, [this, lane] { check_stall(lane); });
}

void FarTransport::check_stall(const LanePtr& lane) {
  lane->watched = false;
  if (find(lane->id) != lane || (lane->slices.empty() && lane->revocations == 0)) return;
  const Nanos due = lane->last_progress + cluster_.settings.stall_timeout;
  if (due <= world_.now()) return down(lane->id, Status(Code::kTimeout, "stalled"));
  lane->watched = true;
  world_.at(due, [this, lane] { check_stall(lane); });
}

void FarTransport::close(engine::ChannelId channel, const Status& why) {
  world_.after(world_.random.between(0, kMillisecond), [this, channel, why] { down(channel, why); });
}

void FarTransport::revoke(engine::ChannelId via, engine::ChannelId victim) {
  const LanePtr lane = find(via);
  if (!lane || !lane->up) return;
  ++lane->revocations;
  watch(lane);
  world_.trace("{}→{} revoke {:x} over {:x}", owner_.slot, lane->driver->target(), victim, via);
  lane->connection->forth->send(60, [this, connection = lane->connection, victim] {
    connection->arrive([this, connection, victim] {
      if (!connection->target_open) return;
      Process& target = *connection->target;
      const InstanceId& initiator = connection->initiator->instance;
      if (!cluster_.mutations.confirm_revocation_without_cutting && target.ledger.revoke(initiator, victim, world_.now())) {
        const std::shared_ptr<Connection> live = target.lanes[{initiator, victim}];
        live->cut();
      }
      connection->back->send(40, [this, connection, victim] {
        const LanePtr lane = find(connection->channel);
        if (!lane) return;
        lane->last_progress = world_.now();
        if (lane->revocations > 0) --lane->revocations;
        lane->driver->handle([&](auto& session, Nanos now, auto& actions) { session.revoked(victim, now, actions); });
      });
    });
  });
}

void FarTransport::reset(uint32_t target) {
  std::vector<engine::ChannelId> channels;
  for (const auto& [id, lane] : lanes_)
    if (lane->driver->target() == target && lane->connection) channels.push_back(id);
  for (engine::ChannelId id : channels)
    world_.after(network_latency(cluster_), [this, id] { down(id, Status(Code::kPeerGone, "connection reset")); });
}

void FarTransport::abandon() {
  for (const auto& [id, lane] : lanes_)
    if (lane->connection) detach(*lane->connection);
  lanes_.clear();
}

void FarTransport::down(engine::ChannelId channel, const Status& why, const InstanceId& seen) {
  const LanePtr lane = find(channel);
  if (!lane) return;
  lanes_.erase(channel);
  world_.trace("{}→{} lane {:x} on rail {} down: {}", owner_.slot, lane->driver->target(), channel, lane->rail, why.to_string());
  if (lane->connection) detach(*lane->connection);
  lane->driver->handle([&](auto& session, Nanos now, auto& actions) { session.channel_down(channel, why, seen, now, actions); });
}

// The initiator is done with the lane; what the buffers hold may be lost, or arrive, or arrive late.
void FarTransport::detach(Connection& connection) {
  if (!world_.random.chance(cluster_.settings.linger)) {
    connection.forth->keep(0);
  } else {
    if (world_.random.chance(0.3)) connection.forth->keep(static_cast<size_t>(world_.random.between(0, 8)));
    if (world_.random.chance(0.3)) connection.forth->delay(world_.random.skewed(0, 3 * kSecond));
  }
  connection.forth->send(40, [self = connection.shared_from_this()] {
    self->arrive([self] {
      if (!self->target_closed) self->cut();
    });
  });
}

}  // namespace tidewire::sim
