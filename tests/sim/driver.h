// SPDX-License-Identifier: Apache-2.0
//
// Driver: carries out what a session asks for in the simulated world, as engine/peer.h does in the real one, and sends notifications
// through the real outbox once their data is placed.
#pragma once

#include <memory>

#include "sim/cluster.h"

namespace tidewire::sim {

class Driver {
 public:
  Driver(Process& owner, uint32_t target);

  template <typename Event>
  void handle(Event&& event) {
    if (!owner_.alive) return;
    engine::Actions actions;
    event(session_, world_.now(), actions);
    perform_all(std::move(actions));
    arm();
  }
  void slice_done(engine::ChannelId channel, const engine::JobSlicePtr& slice, const Status& status);
  void control_broken(const InstanceId& instance);
  void notify(const SimJobPtr& job);

  const engine::Session& session() const { return session_; }
  Process& owner() { return owner_; }
  uint32_t target() const { return target_; }

 private:
  static std::vector<engine::TransportTraits> traits(Process& owner, uint32_t target);
  void perform_all(engine::Actions actions);
  void perform(engine::Action& action);
  void arm();
  void tick();
  void fetch(Nanos deadline);
  // Notifications.
  void connect();
  void disconnect();
  void pump_notifications();
  void settle(std::vector<control::NotifyOutbox::Settled> settled);

  Process& owner_;
  World& world_;
  Cluster& cluster_;
  const uint32_t target_;
  engine::Session session_;
  Nanos armed_ = kNever;
  Nanos last_tick_ = 0;
  int ticks_at_once_ = 0;
  control::NotifyOutbox outbox_;
  bool connecting_ = false;
  uint64_t connection_ = 0;  // generation; 0 = never
  std::shared_ptr<Stream> forth_, back_;
  ProcessPtr connected_to_;
  Nanos last_answer_ = 0;
  uint32_t sent_ = 0;
};

}  // namespace tidewire::sim
