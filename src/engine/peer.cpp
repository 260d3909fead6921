// SPDX-License-Identifier: Apache-2.0
#include "engine/peer.h"

#include "base/log.h"

namespace tidewire::engine {
namespace {

// Actions of this thread that wait for their turn. An action may complete at once and bring events with further actions (a copy in shared
// memory does); they queue here instead of nesting on the stack.
struct Pending {
  bool running = false;
  std::deque<std::pair<PeerPtr, Action>> actions;
};
thread_local Pending pending;

}  // namespace

Peer::Peer(Host& host, std::string name, SessionOptions options, std::vector<TransportTraits> transports, ChannelId first_channel)
    : host_(host), name_(std::move(name)), address_(name_), session_(std::move(options), std::move(transports), first_channel) {}

std::string Peer::address() const {
  std::lock_guard lock(mutex_);
  return address_;
}

void Peer::set_address(std::string address) {
  std::lock_guard lock(mutex_);
  address_ = std::move(address);
}

template <typename Event>
void Peer::handle(Event&& event) {
  Actions actions;
  Nanos arm_at = kNever;
  bool changed = false;
  {
    std::lock_guard lock(mutex_);
    const Session::State before = session_.state();
    const Nanos now = monotonic_now();
    // A process that was stopped for a while must not go on with what has passed its deadline meanwhile.
    if (session_.next_tick() <= now) session_.tick(now, actions);
    event(session_, now, actions);
    const Nanos next = session_.next_tick();
    if (next < armed_) armed_ = arm_at = next;
    changed = before != session_.state() || session_.jobs() == 0;
  }
  // Not under the lock, which whoever wakes up takes first.
  if (changed) changed_.notify_all();
  if (arm_at != kNever) arm(arm_at);
  if (actions.empty()) return;
  const PeerPtr self = shared_from_this();
  for (Action& action : actions) pending.actions.emplace_back(self, std::move(action));
  if (pending.running) return;
  pending.running = true;
  while (!pending.actions.empty()) {
    auto [peer, action] = std::move(pending.actions.front());
    pending.actions.pop_front();
    peer->perform(action);
  }
  pending.running = false;
}

void Peer::arm(Nanos when) {
  host_.run_at(when, [weak = weak_from_this()] {
    if (const PeerPtr peer = weak.lock()) peer->tick();
  });
}

void Peer::tick() {
  {
    std::lock_guard lock(mutex_);
    armed_ = kNever;
  }
  handle([](Session& session, Nanos now, Actions& actions) { session.tick(now, actions); });
}

void Peer::post(PostSlice& post) {
  for (const transport::Piece& piece : post.slice->pieces) {
    const Status status = host_.regions().use(piece.local, piece.length, Access::kLocal, post.slice->hold);
    if (!status.ok()) {
      post.slice->hold.release();
      return slice_done(post.channel, post.slice, status.with_context("local range"));
    }
  }
  transport::Transport& transport = host_.transport(post.transport);
  post.slice->job->hot_channel.store(post.channel, std::memory_order_relaxed);
  post.slice->job->hot_transport.store(&transport, std::memory_order_release);
  transport.post(post.channel, std::move(post.slice));
}

void Peer::perform(Action& action) {
  if (auto* fetch = std::get_if<FetchRecord>(&action)) {
    host_.fetch_record(shared_from_this(), fetch->deadline, [weak = weak_from_this()](Result<PeerRecord> record) {
      if (const PeerPtr peer = weak.lock())
        peer->handle([&](Session& session, Nanos now, Actions& actions) { session.record_fetched(record, now, actions); });
    });
  } else if (auto* open = std::get_if<OpenChannel>(&action)) {
    host_.transport(open->transport).open(open->channel, open->record, open->local_rail, open->remote_rail, open->deadline);
  } else if (auto* slice = std::get_if<PostSlice>(&action)) {
    post(*slice);
  } else if (auto* close = std::get_if<CloseChannel>(&action)) {
    host_.transport(close->transport).close(close->channel, close->why);
  } else if (auto* revoke = std::get_if<RevokeChannel>(&action)) {
    host_.transport(revoke->transport).revoke(revoke->via, revoke->victim);
  } else if (auto* finish = std::get_if<FinishJob>(&action)) {
    if (const auto owner = finish->job->owner.lock()) owner->job_done(*finish->job);
  }
}

void Peer::submit(const JobPtr& job) {
  handle([&](Session& session, Nanos now, Actions& actions) { session.submit(job, now, actions); });
}

void Peer::cancel(const JobPtr& job) {
  handle([&](Session& session, Nanos now, Actions& actions) { session.cancel(job, now, actions); });
}

void Peer::extend(const JobPtr& job, Nanos deadline) {
  handle([&](Session& session, Nanos, Actions&) { session.extend(job, deadline); });
}

bool Peer::drive(Job& job) {
  transport::Transport* transport = job.hot_transport.load(std::memory_order_acquire);
  return transport && transport->drive(job.hot_channel.load(std::memory_order_relaxed));
}

Status Peer::contact(Nanos until) {
  handle([](Session& session, Nanos now, Actions& actions) { session.want_contact(now, actions); });
  std::unique_lock lock(mutex_);
  while (true) {
    if (session_.state() == Session::State::kReady) return {};
    if (session_.state() == Session::State::kBackoff)
      return session_.last_error().with_context(fmt::format("peer {} can't be reached", name_));
    const Nanos left = until - monotonic_now();
    if (left <= 0) return Status::error(Code::kTimeout, "peer {} did not answer in time", name_);
    changed_.wait_for(lock, std::chrono::nanoseconds(left));
  }
}

void Peer::found_alive() {
  handle([](Session& session, Nanos now, Actions& actions) { session.found_alive(now, actions); });
}

void Peer::channel_up(ChannelId channel) {
  handle([&](Session& session, Nanos now, Actions& actions) { session.channel_up(channel, now, actions); });
}

void Peer::channel_down(ChannelId channel, const Status& why, const InstanceId& seen) {
  if (!why.ok() && why.code() != Code::kClosed && why.code() != Code::kCanceled)
    log::info("channel_down", "code={} peer={} channel={:x} text=\"{}\"", code_name(why.code()), name_, channel, why.message());
  handle([&](Session& session, Nanos now, Actions& actions) { session.channel_down(channel, why, seen, now, actions); });
}

void Peer::slice_done(ChannelId channel, const JobSlicePtr& slice, const Status& status) {
  slice->hold.release();
  handle([&](Session& session, Nanos now, Actions& actions) { session.slice_done(channel, slice, status, now, actions); });
}

void Peer::revoked(ChannelId victim) {
  handle([&](Session& session, Nanos now, Actions& actions) { session.revoked(victim, now, actions); });
}

void Peer::peer_closed(const InstanceId& instance) {
  handle([&](Session& session, Nanos now, Actions& actions) { session.peer_closed(instance, now, actions); });
}

void Peer::shut_down(const Status& why) {
  handle([&](Session& session, Nanos now, Actions& actions) { session.shut_down(why, now, actions); });
}

bool Peer::wait_idle(Nanos until) {
  std::unique_lock lock(mutex_);
  while (session_.jobs() > 0) {
    const Nanos left = until - monotonic_now();
    if (left <= 0) return false;
    changed_.wait_for(lock, std::chrono::nanoseconds(left));
  }
  return true;
}

}  // namespace tidewire::engine
