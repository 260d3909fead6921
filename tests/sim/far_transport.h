// SPDX-License-Identifier: Apache-2.0
//
// FarTransport: a TCP-like transport of the simulated world. A lane is an ordered stream to a target that checks ranges, places bytes and
// acknowledges; bytes of a lost lane may still sit in buffers and arrive later, unless the target cut the lane (the real LaneLedger decides,
// behind the real handshake).
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "control/handshake.h"
#include "sim/cluster.h"

namespace tidewire::sim {

inline Nanos network_latency(Cluster& cluster) { return cluster.network.latency(); }

// Both ends of a lane, and what is between them.
struct Connection : std::enable_shared_from_this<Connection> {
  ProcessPtr initiator, target;
  engine::ChannelId channel = 0;
  std::shared_ptr<Stream> forth, back;
  std::unique_ptr<control::Handshake> acceptor;
  bool target_open = false;              // admitted and not cut
  bool target_closed = false;
  std::deque<std::function<void()>> inbox;  // received by the target's kernel, not yet by the target
  bool processing = false;
  std::map<uint64_t, Status> refused;    // slices of which a range was refused

  // The target's kernel has the message.
  void arrive(std::function<void()> message);
  void process_next();
  // The target ends the lane: nothing of it is placed from now on.
  void cut();
};

class FarTransport {
 public:
  explicit FarTransport(Process& owner);

  void open(Driver& driver, engine::ChannelId channel, const InstanceId& expected, uint32_t rail, Nanos deadline);
  void post(Driver& driver, engine::ChannelId channel, const engine::JobSlicePtr& slice);
  void close(engine::ChannelId channel, const Status& why);
  void revoke(engine::ChannelId via, engine::ChannelId victim);
  // Resets the lanes to the target.
  void reset(uint32_t target);
  void reset_lane(engine::ChannelId channel) { down(channel, Status(Code::kPeerGone, "connection reset")); }
  // The owner died.
  void abandon();

 private:
  struct Chunk {
    engine::JobSlicePtr slice;
    transport::Piece piece;
    bool last;
  };
  struct Lane {
    Driver* driver;
    engine::ChannelId id;
    uint32_t rail;
    InstanceId expected;
    std::shared_ptr<Connection> connection;
    std::unique_ptr<control::Handshake> handshake;
    bool up = false;
    std::map<uint64_t, engine::JobSlicePtr> slices;
    std::deque<Chunk> queue;
    uint32_t in_buffer = 0;   // chunks in the socket's buffer
    uint32_t revocations = 0;
    Nanos last_progress = 0;
    bool watched = false;
  };
  using LanePtr = std::shared_ptr<Lane>;

  LanePtr find(engine::ChannelId channel) {
    const auto found = lanes_.find(channel);
    return found == lanes_.end() ? nullptr : found->second;
  }
  void connect(const LanePtr& lane);
  void shake_hands(const std::shared_ptr<Connection>& connection, std::vector<uint8_t> bytes);
  void on_handshake(engine::ChannelId channel, std::vector<uint8_t> bytes);
  void pump(Lane& lane);
  void send_write(Lane& lane, const Chunk& chunk);
  void send_read(Lane& lane, const engine::JobSlicePtr& slice);
  void on_data(engine::ChannelId channel, const engine::JobSlicePtr& slice, uint64_t local, const std::vector<uint8_t>& bytes);
  void on_answer(engine::ChannelId channel, const engine::JobSlicePtr& slice, const Status& status);
  void on_progress(engine::ChannelId channel);
  void watch(const LanePtr& lane);
  void check_stall(const LanePtr& lane);
  void down(engine::ChannelId channel, const Status& why, const InstanceId& seen = {});
  void detach(Connection& connection);

  Process& owner_;
  Cluster& cluster_;
  World& world_;
  std::map<engine::ChannelId, LanePtr> lanes_;
};

}  // namespace tidewire::sim
