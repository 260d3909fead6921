// SPDX-License-Identifier: Apache-2.0
#include "sim/driver.h"

#include <cerrno>

#include "sim/far_transport.h"
#include "sim/near_transport.h"

namespace tidewire::sim {
using engine::Action;
using engine::Actions;
using engine::Session;

std::vector<engine::TransportTraits> Driver::traits(Process& owner, uint32_t target) {
  Cluster& cluster = owner.cluster;
  engine::TransportTraits near;
  near.name = "near";
  near.slice_bytes = 8 << 10;
  near.window_bytes = 16 << 10;
  near.pairs = [&cluster, from = owner.slot, target](const PeerRecord&) {
    using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;
    return cluster.slots[from].host == cluster.slots[target].host ? Pairs{{0, 0}} : Pairs{};
  };
  engine::TransportTraits far;
  far.name = "far";
  far.lanes_per_pair = cluster.settings.lanes_per_pair;
  far.needs_revocation = !cluster.mutations.skip_revocation;
  far.slice_bytes = 8 << 10;
  far.slice_pieces = 16;
  far.window_bytes = 16 << 10;
  far.pairs = [](const PeerRecord& record) {
    std::vector<std::pair<uint32_t, uint32_t>> pairs;
    for (uint32_t rail = 0; rail < record.rails.size(); ++rail) pairs.emplace_back(rail, rail);
    return pairs;
  };
  return {near, far};
}

Driver::Driver(Process& owner, uint32_t target)
    : owner_(owner), world_(owner.cluster.world), cluster_(owner.cluster), target_(target),
      session_(cluster_.settings.session, traits(owner, target), (uint64_t{target} + 1) << 32), outbox_(target + 1) {}

void Driver::perform_all(Actions actions) {
  if (actions.empty()) return;
  if (cluster_.settings.reorder_actions && world_.random.chance(0.3)) {
    // Another thread carries them out, a little later.
    auto later = std::make_shared<Actions>(std::move(actions));
    world_.after(world_.random.between(0, 300 * kMicrosecond), [this, later] {
      for (Action& action : *later) perform(action);
    });
    return;
  }
  for (Action& action : actions) perform(action);
}

void Driver::perform(Action& action) {
  if (!owner_.alive) return;
  if (auto* fetch = std::get_if<engine::FetchRecord>(&action)) {
    this->fetch(fetch->deadline);
  } else if (auto* open = std::get_if<engine::OpenChannel>(&action)) {
    if (open->transport == 0) owner_.near->open(*this, open->channel, open->record.instance);
    else owner_.far->open(*this, open->channel, open->record.instance, open->local_rail, open->deadline);
  } else if (auto* post = std::get_if<engine::PostSlice>(&action)) {
    SimJob& job = sim_job(post->slice->job);
    if (cluster_.mutations.notify_before_data && job.notify && job.placed_in == nullptr) notify(job.shared_from_this());
    if (post->transport == 0) owner_.near->post(*this, post->channel, post->slice);
    else owner_.far->post(*this, post->channel, post->slice);
  } else if (auto* close = std::get_if<engine::CloseChannel>(&action)) {
    if (close->transport == 0) owner_.near->close(close->channel, close->why);
    else owner_.far->close(close->channel, close->why);
  } else if (auto* revoke = std::get_if<engine::RevokeChannel>(&action)) {
    ++cluster_.oracle.revocations;
    owner_.far->revoke(revoke->via, revoke->victim);
  } else if (auto* finish = std::get_if<engine::FinishJob>(&action)) {
    SimJob& job = sim_job(finish->job);
    cluster_.oracle.finished(job);
    bool all = true;
    for (uint64_t i = 0; i < job.job->count; ++i) all &= job.job->transfers[i].state == TW_STATE_COMPLETED;
    if (job.notify && all && !cluster_.mutations.notify_before_data) notify(job.shared_from_this());
  }
}

void Driver::slice_done(engine::ChannelId channel, const engine::JobSlicePtr& slice, const Status& status) {
  handle([&](Session& session, Nanos now, Actions& actions) {
    session.slice_done(channel, slice, status, now, actions);
    cluster_.oracle.look(sim_job(slice->job));
  });
}

void Driver::arm() {
  const Nanos next = session_.next_tick();
  if (next >= armed_) return;
  armed_ = next;
  world_.at(next, [this, next] {
    if (armed_ == next) tick();
  });
}

void Driver::tick() {
  armed_ = kNever;
  ticks_at_once_ = last_tick_ == world_.now() ? ticks_at_once_ + 1 : 0;
  last_tick_ = world_.now();
  if (ticks_at_once_ > 20) return world_.fail("busy loop: session {}→{} stays due", owner_.slot, target_);
  handle([](Session& session, Nanos now, Actions& actions) { session.tick(now, actions); });
}

void Driver::fetch(Nanos deadline) {
  auto answer = [this](Result<PeerRecord> record) {
    world_.trace("{}→{} record: {}", owner_.slot, target_, record.ok() ? "ok" : record.status().to_string());
    handle([&](Session& session, Nanos now, Actions& actions) { session.record_fetched(record, now, actions); });
  };
  if (world_.random.chance(cluster_.settings.fetch_faults)) {
    cluster_.control_faults[{owner_.slot, target_}] = world_.now();
    const bool broken = world_.random.chance(0.5);
    return world_.after(network_latency(cluster_), [answer, broken] {
      answer(broken ? Status(Code::kPeerGone, "connection reset") : Status(Code::kNoResources, "too many open files"));
    });
  }
  auto silence = [this, answer, deadline] {
    if (cluster_.settings.no_route) return answer(Status(Code::kUnreachable, "connect: No route to host"));
    world_.at(deadline, [answer] { answer(Status(Code::kTimeout, "no answer")); });
  };
  world_.after(network_latency(cluster_), [this, answer, silence, deadline] {
    const Slot& slot = cluster_.slots[target_];
    if (!cluster_.reachable(owner_.slot, target_) || slot.host_down || slot.paused_until > deadline) return silence();
    if (!slot.process)
      return world_.after(network_latency(cluster_), [answer] { answer(errno_status(ECONNREFUSED, "connect")); });
    const ProcessPtr process = slot.process;
    world_.at(std::max(world_.now(), slot.paused_until) + network_latency(cluster_), [this, answer, silence, process, deadline] {
      if (!cluster_.reachable(owner_.slot, target_) || world_.now() > deadline) return silence();
      if (!process->alive) return answer(Status(Code::kPeerGone, "connection reset"));
      answer(process->record());
    });
  });
}

void Driver::control_broken(const InstanceId& instance) {
  disconnect();
  handle([&](Session& session, Nanos now, Actions& actions) { session.peer_closed(instance, now, actions); });
}

// ---- notifications

void Driver::notify(const SimJobPtr& job) {
  if (job->notify_settled || job->delivered > 0) return;
  job->notify_number = cluster_.oracle.next_notification();
  const Status status = outbox_.enqueue("done", std::to_string(job->number), world_.now() + 5 * kSecond,
                                        [this, job](const Status& status) { cluster_.oracle.notify_settled(*job, status); },
                                        cluster_.mutations.notify_any_instance ? InstanceId{} : job->job->instance);
  if (!status.ok()) return cluster_.oracle.notify_settled(*job, status);
  if (forth_) pump_notifications();
  else connect();
}

void Driver::connect() {
  if (connecting_ || forth_ || !owner_.alive) return;
  connecting_ = true;
  world_.after(2 * network_latency(cluster_), [this] {
    connecting_ = false;
    if (!owner_.alive) return;
    settle(outbox_.expire(world_.now()));
    if (outbox_.empty()) return;
    const Slot& slot = cluster_.slots[target_];
    if (!slot.process || slot.host_down || slot.paused_until > world_.now() || !cluster_.reachable(owner_.slot, target_)) {
      world_.after(100 * kMillisecond, [this] { connect(); });
      return;
    }
    forth_ = std::make_shared<Stream>(cluster_.network, owner_.slot, target_, 0);
    back_ = std::make_shared<Stream>(cluster_.network, target_, owner_.slot, 0);
    ++connection_;
    connected_to_ = slot.process;
    last_answer_ = world_.now();
    settle(outbox_.connected(slot.process->instance));
    pump_notifications();
  });
}

void Driver::disconnect() {
  if (!forth_) return;
  // What is on the way may still arrive.
  if (world_.random.chance(0.5)) forth_->keep(0);
  forth_ = back_ = nullptr;
  outbox_.disconnected();
  if (!outbox_.empty()) connect();
}

void Driver::pump_notifications() {
  while (const control::NotificationMessage* next = outbox_.next(world_.now())) {
    const control::NotificationMessage message = *next;
    const ProcessPtr target = connected_to_;
    const uint64_t connection = connection_;
    forth_->send(200, [this, message, target, back = back_, connection] {
      if (!target->alive) return;
      control::NotifyInbox forgetful;
      control::NotifyInbox& inbox = cluster_.mutations.forget_duplicates ? forgetful : target->inbox;
      const Status status = inbox.receive(owner_.instance, message.stream, message.sequence, world_.now(), [&] {
        cluster_.oracle.notified(static_cast<uint32_t>(std::stoul(message.message)), target);
        return Status();
      });
      back->send(50, [this, sequence = message.sequence, status, connection] {
        if (!owner_.alive || connection != connection_ || !forth_) return;
        last_answer_ = world_.now();
        settle(outbox_.answered(sequence, status));
        pump_notifications();
      });
    });
  }
  if (outbox_.empty()) return;
  world_.after(kSecond, [this, connection = connection_] {
    if (!forth_ || connection != connection_ || outbox_.empty()) return;
    settle(outbox_.expire(world_.now()));
    if (world_.now() - last_answer_ >= kSecond) disconnect();
    else pump_notifications();
  });
}

void Driver::settle(std::vector<control::NotifyOutbox::Settled> settled) {
  for (auto& [done, status] : settled) done(status);
}

}  // namespace tidewire::sim
