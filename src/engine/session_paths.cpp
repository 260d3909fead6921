// SPDX-License-Identifier: Apache-2.0
//
// Channels: which to open, which carries the next slice, what a lost one leaves behind.
#include <algorithm>

#include "engine/session.h"

namespace tidewire::engine {
namespace {
constexpr Nanos kFirstRetry = 100 * kMillisecond;
constexpr Nanos kLastRetry = 5 * kSecond;
constexpr Nanos kLongUp = kSecond;  // a channel that was up so long had worked, although it carried nothing

// What a channel may have in flight where several share the work: what keeps it busy until acknowledgements are back, no more. Posted slices
// can't move to another rail, and the last ones decide when a request ends.
constexpr double kBusySeconds = 0.004;
// A fast channel needs less of that time: two slices and a half, or a millisecond.
constexpr double kBusySecondsFast = 0.001;
constexpr uint64_t kFastWindow = 2'560 << 10;
constexpr uint64_t kLeastWindow = 512 << 10;

// What a slice takes at least where a job is cut finely for its channels to end together: a frame and its acknowledgement cost tens of
// microseconds of wake-ups on either side.
constexpr double kLeastSliceSeconds = 200e-6;

uint64_t window_of(double rate, bool alone, uint64_t most) {
  if (alone || most <= kLeastWindow) return most;
  const auto wanted = static_cast<uint64_t>(rate * kBusySeconds);
  const uint64_t enough = std::max(kFastWindow, static_cast<uint64_t>(rate * kBusySecondsFast));
  return std::clamp(std::min(wanted, enough), kLeastWindow, most);
}

Nanos retry_delay(uint32_t failures) {
  return std::min(kLastRetry, kFirstRetry << std::min(failures, 10u));
}
}  // namespace

void Session::plan_paths() {
  // A new instance may be reached in other ways than the one before.
  for (const JobPtr& job : jobs_) {
    if (!job->queued) continue;
    dequeue(job);
    job->level = job->unfit = 0;
    enqueue(job, /*front=*/false);
  }
  for (TransportState& transport : transports_) {
    transport.paths.clear();
    for (const auto& [local, remote] : transport.traits.pairs(*record_))
      for (uint32_t lane = 0; lane < transport.traits.lanes_per_pair; ++lane) transport.paths.push_back({local, remote});
  }
}

bool Session::alive(uint32_t t) const {
  return std::any_of(transports_[t].paths.begin(), transports_[t].paths.end(), [](const Path& path) { return path.channel != 0; });
}

uint32_t Session::up_channels(uint32_t t) const {
  return static_cast<uint32_t>(std::count_if(channels_.begin(), channels_.end(), [t](const auto& entry) {
    return entry.second.transport == t && entry.second.state == Channel::State::kUp;
  }));
}

bool Session::any_up() const {
  return std::any_of(channels_.begin(), channels_.end(),
                     [](const auto& entry) { return entry.second.state == Channel::State::kUp; });
}

// The next transport that reaches the peer and can carry the job; when there is none, one before it.
std::optional<uint32_t> Session::next_level(const Job& job) const {
  const uint32_t count = static_cast<uint32_t>(transports_.size());
  for (uint32_t step = 1; step < count; ++step) {
    const uint32_t t = (job.level + step) % count;
    if (!transports_[t].paths.empty() && !(job.unfit >> t & 1)) return t;
  }
  return std::nullopt;
}

// Whether channels of this transport are to be opened: for its queue, to revoke, or for jobs whose own transport carries nothing now.
bool Session::wants_channels(uint32_t t) const {
  if (!transports_[t].queue.empty()) return true;
  for (const auto& [_, victim] : victims_)
    if (victim.transport == t) return true;
  for (uint32_t u = t + 1; u < transports_.size(); ++u) {
    if (transports_[u].queue.empty() || up_channels(u) > 0) continue;
    for (const JobPtr& job : transports_[u].queue)
      if (!(job->unfit >> t & 1)) return true;
  }
  return false;
}

void Session::cut(ChannelId id, Channel& channel, const Status& why, Actions& actions) {
  if (channel.state == Channel::State::kClosing) return;
  channel.state = Channel::State::kClosing;
  actions.push_back(CloseChannel{id, channel.transport, why});
}

void Session::open_paths(uint32_t t, Nanos now, Actions& actions) {
  for (size_t index = 0; index < transports_[t].paths.size(); ++index) {
    Path& path = transports_[t].paths[index];
    if (path.channel != 0 || now < path.retry_at) continue;
    path.channel = next_channel_++;
    channels_[path.channel] = Channel{t, index, record_->instance};
    actions.push_back(OpenChannel{path.channel, t, path.local_rail, path.remote_rail, now + options_.connect_timeout, *record_});
  }
}

// The channel with room whose queue will be empty first.
Session::Channel* Session::pick(uint32_t t, ChannelId& id) {
  Channel* best = nullptr;
  double best_time = 0;
  double fastest = 1;
  for (const auto& [_, channel] : channels_)
    if (channel.transport == t) fastest = std::max(fastest, channel.rate);
  const bool alone = transports_[t].paths.size() <= 1;
  for (const Path& path : transports_[t].paths) {
    const auto found = channels_.find(path.channel);
    if (found == channels_.end()) continue;
    Channel& channel = found->second;
    if (channel.state != Channel::State::kUp || channel.in_flight >= window_of(channel.rate, alone, transports_[t].traits.window_bytes)) continue;
    const double time = static_cast<double>(channel.in_flight + options_.least_slice) / (channel.rate == 0 ? fastest : channel.rate);
    if (!best || time < best_time) {
      best = &channel;
      best_time = time;
      id = path.channel;
    }
  }
  return best;
}

SliceLimits Session::slice_limits(uint32_t t, const Job& job, const Channel& channel) const {
  const TransportTraits& traits = transports_[t].traits;
  // With a job for every channel all of them stay busy without cutting any finer.
  const uint32_t channels = up_channels(t);
  const uint64_t least = std::max(options_.least_slice, static_cast<uint64_t>(channel.rate * kLeastSliceSeconds));
  // What one channel does in the time of two such slices is not cut; nor is a first job before anything is known of the channel.
  const uint64_t whole = channel.rate == 0 ? traits.slice_bytes : 2 * least;
  const bool small = !job.posted && job.rest_bytes <= whole;
  const uint32_t sharing = small || jobs_.size() > channels ? 1 : channels;
  return {slice_bytes(job.rest_bytes, sharing, least, traits.slice_bytes), traits.slice_pieces};
}

void Session::post_next(uint32_t t, ChannelId id, Channel& channel, Nanos now, Actions& actions) {
  TransportState& transport = transports_[t];
  const JobPtr job = transport.queue.front();
  auto slice = std::make_shared<JobSlice>();
  slice->opcode = job->opcode;
  const SliceLimits limits = slice_limits(t, *job, channel);
  while (slice->bytes == 0 && !job->retries.empty()) {
    cut_slice(*job, job->retries.front(), limits, *slice);
    if (job->retries.front().empty()) job->retries.pop_front();
  }
  if (slice->bytes == 0) cut_slice(*job, job->rest, limits, *slice);
  if (job->retries.empty() && job->rest.empty()) dequeue(job);
  if (slice->bytes == 0) return;
  job->rest_bytes -= std::min(job->rest_bytes, slice->bytes);
  slice->id = next_slice_++;
  slice->job = job;
  slice->posted = now;
  slice->whole_job = !job->posted && !job->queued;
  if (!job->posted) {
    job->posted = true;
    job->instance = channel.instance;
    job->first_post = now;
    for (uint64_t i = 0; i < job->count; ++i) {
      uint8_t waiting = TW_STATE_WAITING;
      job->transfers[i].state.compare_exchange_strong(waiting, TW_STATE_PENDING, std::memory_order_relaxed);
    }
  }
  ++job->in_flight;
  channel.in_flight += slice->bytes;
  channel.slices.emplace(slice->id, slice);
  actions.push_back(PostSlice{id, t, std::move(slice)});
  // Jobs take turns, so that a small one does not wait for the whole of a large one.
  if (job->queued && transport.queue.size() > 1) {
    transport.queue.pop_front();
    transport.queue.push_back(job);
  }
}

void Session::post_queue(uint32_t t, Nanos now, Actions& actions) {
  ChannelId id = 0;
  while (!transports_[t].queue.empty()) {
    Channel* channel = pick(t, id);
    if (!channel) break;
    post_next(t, id, *channel, now, actions);
  }
}

// Transport t has a channel that is up: jobs that wait for a later transport to connect need wait no longer.
void Session::pull_jobs(uint32_t t) {
  if (up_channels(t) == 0) return;
  for (uint32_t u = t + 1; u < transports_.size(); ++u) {
    if (transports_[u].queue.empty() || up_channels(u) > 0) continue;
    const std::deque<JobPtr> queue = transports_[u].queue;
    for (const JobPtr& job : queue) {
      if (job->unfit >> t & 1) continue;
      dequeue(job);
      job->level = t;
      enqueue(job, /*front=*/false);
    }
  }
}

// Nothing to hope for from transport t now: its jobs go to the next one, or to an earlier one that came back. True when some went to an earlier one.
bool Session::move_queue(uint32_t t, Nanos now, Actions& actions) {
  bool back = false;
  const std::deque<JobPtr> queue = transports_[t].queue;
  for (const JobPtr& job : queue) {
    const auto level = next_level(*job);
    if (!level) {
      if (!transports_[t].paths.empty()) continue;
      stop_job(job, Code::kUnreachable,
               Status::error(Code::kUnreachable, "no transport of this engine reaches peer {}: it offers {} rails, none of a kind (and address "
                             "family) in common", options_.peer_name, record_->rails.size()),
               now, actions);
      continue;
    }
    if (*level < t && !transports_[t].paths.empty() && !alive(*level)) continue;
    back |= *level < t;
    if (!transports_[t].paths.empty()) ++fallbacks_;
    dequeue(job);
    job->level = *level;
    enqueue(job, /*front=*/false);
  }
  return back;
}

void Session::dispatch(Nanos now, Actions& actions) {
  if (state_ != State::kReady || stopped_) return;
  bool again = true;
  while (again) {
    again = false;
    for (uint32_t t = 0; t < transports_.size(); ++t) {
      if (!wants_channels(t)) continue;
      open_paths(t, now, actions);
      if (alive(t)) {
        pull_jobs(t);
        post_queue(t, now, actions);
      } else {
        again |= move_queue(t, now, actions);
      }
    }
  }
  check_contact(now, actions);
}

void Session::channel_up(ChannelId id, Nanos now, Actions& actions) {
  const auto found = channels_.find(id);
  if (found == channels_.end()) return;
  Channel& channel = found->second;
  // It was closed before the driver had opened it.
  if (channel.state == Channel::State::kClosing) actions.push_back(CloseChannel{id, channel.transport, Status(Code::kCanceled, "not needed any more")});
  if (channel.state != Channel::State::kOpening) return;
  channel.state = Channel::State::kUp;
  channel.up_since = last_contact_ = now;
  assign_revocations(actions);
  dispatch(now, actions);
}

void Session::lose_channel(ChannelId id, Channel channel, const Status& why, Nanos now, Actions& actions) {
  TransportState& transport = transports_[channel.transport];
  for (Path& path : transport.paths) {
    if (path.channel != id) continue;
    path.channel = 0;
    // A connection closed because it idled may be opened again at once.
    if (why.code() == Code::kClosed && channel.state == Channel::State::kUp && channel.slices.empty()) break;
    if (channel.state == Channel::State::kUp && now - channel.up_since >= kLongUp) path.failures = 0;
    path.retry_at = now + (channel.state == Channel::State::kOpening || path.failures > 0 ? retry_delay(path.failures) : 0);
    ++path.failures;
    transport.last_error = why;
  }
  for (auto& [_, victim] : victims_)
    if (victim.via == id) victim.via = 0;
  if (transport.traits.needs_revocation && !channel.void_instance) {
    for (const auto& [_, slice] : channel.slices) {
      if (slice->opcode != transport::Opcode::kWrite || !slice->job->victims.insert(id).second) continue;
      Victim& victim = victims_[id];
      victim.transport = channel.transport;
      victim.jobs.push_back(slice->job);
    }
  }
  // In the order of their posting, so that a retry keeps the order of the transfers.
  std::vector<JobSlicePtr> slices;
  for (auto& [_, slice] : channel.slices) slices.push_back(slice);
  std::sort(slices.begin(), slices.end(), [](const JobSlicePtr& a, const JobSlicePtr& b) { return a->id < b->id; });
  for (const JobSlicePtr& slice : slices) give_back(slice, now, actions);
}

void Session::channel_down(ChannelId id, const Status& why, const InstanceId& seen, Nanos now, Actions& actions) {
  const auto found = channels_.find(id);
  if (found == channels_.end()) return;
  Channel channel = std::move(found->second);
  channels_.erase(found);
  // What a channel of an earlier record saw is known already.
  const bool other_instance = seen != InstanceId{} && record_ && seen != record_->instance && channel.instance == record_->instance;
  if (!why.ok() && why.code() != Code::kClosed && why.code() != Code::kCanceled) last_error_ = why;
  channel.void_instance |= other_instance;
  lose_channel(id, std::move(channel), why, now, actions);
  if (stopped_) return assign_revocations(actions);
  if (other_instance && state_ == State::kReady) {
    restarted(now, actions);
    state_ = State::kFetching;
    fetch(now, actions);
    return;
  }
  if (why.code() == Code::kUnauthenticated || why.code() == Code::kProtocol) {
    peer_failed(why, now, actions);
    return;
  }
  assign_revocations(actions);
  dispatch(now, actions);
}

void Session::revoked(ChannelId id, Nanos now, Actions& actions) {
  const auto found = victims_.find(id);
  if (found == victims_.end()) return;
  const std::vector<JobPtr> jobs = std::move(found->second.jobs);
  const auto via = channels_.find(found->second.via);
  if (via != channels_.end()) {
    last_contact_ = now;
    std::vector<Path>& paths = transports_[via->second.transport].paths;
    if (via->second.path < paths.size()) paths[via->second.path].failures = 0;
  }
  victims_.erase(found);
  for (const JobPtr& job : jobs) {
    job->victims.erase(id);
    finish_if_done(job, actions);
  }
  dispatch(now, actions);
}

void Session::assign_revocations(Actions& actions) {
  for (auto& [id, victim] : victims_) {
    if (victim.via != 0) continue;
    // The channel that worked last is the least likely to be stalled.
    const Channel* best = nullptr;
    for (const auto& [via, channel] : channels_) {
      if (channel.transport != victim.transport || channel.state != Channel::State::kUp) continue;
      if (best && std::max(channel.last_done, channel.up_since) <= std::max(best->last_done, best->up_since)) continue;
      best = &channel;
      victim.via = via;
    }
    if (best) actions.emplace_back(std::in_place_type<RevokeChannel>, victim.via, id, victim.transport);
  }
}

void Session::drop_victims(Actions& actions) {
  const std::map<ChannelId, Victim> victims = std::move(victims_);
  victims_.clear();
  for (const auto& [id, victim] : victims) {
    for (const JobPtr& job : victim.jobs) {
      job->victims.erase(id);
      finish_if_done(job, actions);
    }
  }
}

void Session::close_all(const Status& why, bool instance_gone, Actions& actions) {
  for (auto& [id, channel] : channels_) {
    channel.void_instance |= instance_gone;
    cut(id, channel, why, actions);
  }
  for (TransportState& transport : transports_)
    for (Path& path : transport.paths) path.channel = 0;
}

}  // namespace tidewire::engine
