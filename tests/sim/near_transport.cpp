// SPDX-License-Identifier: Apache-2.0
#include "sim/near_transport.h"

#include <cstring>

#include "sim/driver.h"

namespace tidewire::sim {
namespace {
constexpr uint64_t kChunk = 4096;
}

NearTransport::NearTransport(Process& owner) : owner_(owner), cluster_(owner.cluster), world_(owner.cluster.world) {}

void NearTransport::open(Driver& driver, engine::ChannelId id, const InstanceId& expected) {
  auto channel = std::make_shared<Channel>();
  channel->driver = &driver;
  channel->id = id;
  channels_[id] = channel;
  world_.after(world_.random.between(10 * kMicrosecond, 200 * kMicrosecond), [this, channel, expected] {
    if (find(channel->id) != channel) return;
    if (world_.random.chance(cluster_.settings.near_unsupported)) return down(channel->id, Status(Code::kUnsupported, "no shared memory"));
    const ProcessPtr target = cluster_.slots[channel->driver->target()].process;
    if (!target) return down(channel->id, Status(Code::kUnreachable, "no such socket"));
    if (target->instance != expected) return down(channel->id, Status(Code::kPeerGone, "another instance"), target->instance);
    channel->target = target;
    channel->up = true;
    channel->driver->handle([&](auto& session, Nanos now, auto& actions) { session.channel_up(channel->id, now, actions); });
  });
}

void NearTransport::post(Driver& driver, engine::ChannelId id, const engine::JobSlicePtr& slice) {
  const ChannelPtr channel = find(id);
  if (!channel || !channel->up) {
    world_.after(0, [&driver, id, slice] { driver.slice_done(id, slice, Status(Code::kUnreachable, "channel is not up")); });
    return;
  }
  channel->slices.push_back(slice);
  if (!channel->copying) copy_later(channel);
}

void NearTransport::copy_later(const ChannelPtr& channel) {
  channel->copying = true;
  world_.after(world_.random.between(kMicrosecond, 20 * kMicrosecond), [this, channel] { copy(channel); });
}

void NearTransport::copy(const ChannelPtr& channel) {
  channel->copying = false;
  if (find(channel->id) != channel || channel->slices.empty()) return;
  if (!channel->target->alive) return down(channel->id, Status(Code::kPeerGone, "no such process"));
  const engine::JobSlicePtr slice = channel->slices.front();
  SimJob& job = sim_job(slice->job);
  const bool write = slice->opcode == transport::Opcode::kWrite;
  if (channel->piece == 0 && channel->at == 0) {
    for (const transport::Piece& piece : slice->pieces) {
      const Status status = channel->target->check(piece.remote, piece.length, write);
      if (!status.ok()) return slice_done(channel, status);
    }
    if (world_.random.chance(cluster_.settings.near_unsupported)) return slice_done(channel, Status(Code::kUnsupported, "can't be mapped"));
  }
  const transport::Piece& piece = slice->pieces[channel->piece];
  const uint64_t length = std::min(kChunk, piece.length - channel->at);
  // A region may be withdrawn midway.
  const Status status = channel->target->check(piece.remote + channel->at, length, write);
  if (!status.ok()) return slice_done(channel, status);
  cluster_.oracle.touching(job, piece.local + channel->at, length);
  cluster_.oracle.placing(job, channel->target, piece.remote + channel->at, length);
  uint8_t* near = owner_.at(piece.local + channel->at);
  uint8_t* far = channel->target->at(piece.remote + channel->at);
  std::memcpy(write ? far : near, write ? near : far, length);
  channel->at += length;
  if (channel->at == piece.length) {
    channel->at = 0;
    if (++channel->piece == slice->pieces.size()) return slice_done(channel, {});
  }
  copy_later(channel);
}

void NearTransport::slice_done(const ChannelPtr& channel, const Status& status) {
  const engine::JobSlicePtr slice = channel->slices.front();
  channel->slices.pop_front();
  channel->piece = channel->at = 0;
  if (!channel->slices.empty()) copy_later(channel);
  channel->driver->slice_done(channel->id, slice, status);
}

void NearTransport::close(engine::ChannelId channel, const Status& why) {
  world_.after(world_.random.between(0, 2 * kMillisecond), [this, channel, why] { down(channel, why); });
}

void NearTransport::reset(uint32_t target) {
  std::vector<engine::ChannelId> channels;
  for (const auto& [id, channel] : channels_)
    if (channel->driver->target() == target && channel->up) channels.push_back(id);
  for (engine::ChannelId id : channels) world_.after(100 * kMicrosecond, [this, id] { down(id, Status(Code::kPeerGone, "socket closed")); });
}

void NearTransport::down(engine::ChannelId id, const Status& why, const InstanceId& seen) {
  const ChannelPtr channel = find(id);
  if (!channel) return;
  channels_.erase(id);
  world_.trace("{}→{} near channel {:x} down: {}", owner_.slot, channel->driver->target(), id, why.to_string());
  channel->driver->handle([&](auto& session, Nanos now, auto& actions) { session.channel_down(id, why, seen, now, actions); });
}

}  // namespace tidewire::sim
