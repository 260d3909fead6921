// SPDX-License-Identifier: Apache-2.0
//
// Contact with the peer: record, back-off, restarts, time. Jobs are in session_jobs.cpp, channels in session_paths.cpp.
#include "engine/session.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace tidewire::engine {
namespace {

// Whether the peer's host itself said that nobody listens. kUnreachable may also be a missing route or a name that does not resolve now, which says nothing
// about the process.
bool refused(const Status& status) { return status.system_error() == ECONNREFUSED; }

}  // namespace

Session::Session(SessionOptions options, std::vector<TransportTraits> transports, ChannelId first_channel)
    : options_(std::move(options)), next_slice_((first_channel >> 32 << 40) + 1), next_channel_(first_channel) {
  for (TransportTraits& traits : transports) transports_.push_back({std::move(traits), {}, {}, {}});
}

void Session::fetch(Nanos now, Actions& actions) {
  if (fetching_ || stopped_) return;
  fetching_ = true;
  actions.push_back(FetchRecord{now + options_.connect_timeout});
}

void Session::want_contact(Nanos now, Actions& actions) {
  last_wanted_ = now;
  if (stopped_) return;
  if (state_ == State::kBackoff) {
    next_probe_ = now + options_.connect_timeout + options_.probe_interval;
    fetch(now, actions);
  }
  if (state_ != State::kIdle) return;
  state_ = State::kFetching;
  fetch(now, actions);
}

void Session::found_alive(Nanos now, Actions& actions) {
  // Whoever was told of the answer may submit at once: that waits for the record instead of failing with the back-off.
  if (state_ == State::kBackoff && !stopped_) {
    state_ = State::kIdle;
    next_probe_ = kNever;
    answered_ = fetching_;
  }
  want_contact(now, actions);
}

void Session::record_fetched(const Result<PeerRecord>& record, Nanos now, Actions& actions) {
  fetching_ = false;
  const bool answered = std::exchange(answered_, false);
  if (stopped_) return;
  // This fetch began before the peer was found alive; ask again before giving it up.
  if (!record.ok() && answered) return fetch(now, actions);
  if (record.ok()) {
    last_contact_ = now;
    next_probe_ = kNever;
    next_check_ = kNever;
    const bool other = record_ && record_->instance != record->instance;
    if (other) restarted(now, actions);
    const bool fresh = !record_ || other;
    record_ = *record;
    state_ = State::kReady;
    last_error_ = {};
    if (fresh) {
      plan_paths();
    } else {
      // The peer is well: what failed before may be tried at once.
      for (TransportState& transport : transports_)
        for (Path& path : transport.paths)
          if (path.channel == 0) path.retry_at = std::min(path.retry_at, now + 20 * kMillisecond * path.failures);
    }
    dispatch(now, actions);
    return;
  }
  last_error_ = record.status();
  const Code code = record.status().code();
  const bool silent = code == Code::kTimeout || code == Code::kNoResources || code == Code::kPeerGone ||
                      (code == Code::kUnreachable && !refused(record.status()));
  // A peer that was in contact gets the patience of several connect timeouts when it is merely silent (as long as a further attempt fits), and all
  // patience while slices are posted on a channel that is up: the control plane has one path only, and the channel notices for itself when it
  // stalls. What the peer refuses is final.
  const Nanos pause = options_.connect_timeout / 4;
  const bool working = state_ == State::kReady && any_up();
  const bool patient = silent && last_contact_ != 0 && !jobs_.empty() && state_ != State::kBackoff &&
                       (working || now + pause + options_.connect_timeout <= last_contact_ + kPatience * options_.connect_timeout);
  if (patient) {
    next_check_ = now + pause;
    return;
  }
  // Nobody waits, and one silence proves nothing: the next request asks again.
  if (silent && jobs_.empty() && state_ != State::kBackoff && last_contact_ != 0 && now < last_contact_ + kPatience * options_.connect_timeout) {
    state_ = State::kIdle;
    return;
  }
  peer_failed(record.status(), now, actions);
}

void Session::peer_failed(const Status& why, Nanos now, Actions& actions) {
  if (state_ != State::kBackoff) ++backoffs_;
  if (!jobs_.empty()) last_wanted_ = now;
  last_error_ = why;
  last_contact_ = 0;
  next_check_ = kNever;
  // Back-off without probes would never end: when nobody wants the peer any more, the next request starts anew.
  const bool wanted = now < last_wanted_ + kProbeWhileWanted;
  state_ = wanted ? State::kBackoff : State::kIdle;
  next_probe_ = wanted ? now + options_.probe_interval : kNever;
  // A refused connection means that no process of the old instance is left that could place late bytes.
  const bool instance_gone = refused(why);
  if (instance_gone) drop_victims(actions);
  close_all(why, instance_gone, actions);
  stop_all(why.code() == Code::kTimeout ? Code::kUnreachable : why.code(), why, /*posted_only=*/false, now, actions);
}

void Session::restarted(Nanos now, Actions& actions) {
  const Status why = Status::error(Code::kPeerGone, "peer {} restarted while the transfer was under way; its old addresses are void: "
                                   "exchange addresses again and submit anew", options_.peer_name);
  drop_victims(actions);
  close_all(why, /*instance_gone=*/true, actions);
  stop_all(Code::kPeerGone, why, /*posted_only=*/true, now, actions);
}

void Session::peer_closed(const InstanceId& instance, Nanos now, Actions& actions) {
  if (stopped_ || !record_ || record_->instance != instance || state_ != State::kReady) return;
  // It may be gone, or have lost an idle connection: ask again before the record is used for anything new. Channels that are up belong to that
  // instance for certain and go on: the control plane may merely have lost its rail.
  if (jobs_.empty()) {
    state_ = State::kIdle;
  } else {
    if (!any_up()) state_ = State::kFetching;
    fetch(now, actions);
  }
}

void Session::check_contact(Nanos now, Actions& actions) {
  if (state_ != State::kReady || jobs_.empty() || fetching_ || now < (next_check_ == kNever ? 0 : next_check_)) return;
  if (any_up()) return;
  // Channels that are still opening may take turns for ever.
  if (now < last_contact_ + options_.connect_timeout)
    for (uint32_t t = 0; t < transports_.size(); ++t)
      if (alive(t)) return;
  next_check_ = now + options_.connect_timeout / 4;
  fetch(now, actions);
}

void Session::shut_down(const Status& why, Nanos now, Actions& actions) {
  stopped_ = true;
  next_probe_ = next_check_ = kNever;
  stop_all(Code::kCanceled, why, false, now, actions);
}

void Session::tick(Nanos now, Actions& actions) {
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const JobPtr job = timers_.begin()->second;
    timers_.erase(timers_.begin());
    if (job->finished) continue;
    if (job->stopping == Code::kOk && now >= job->deadline) {
      stop_job(job, Code::kTimeout,
               Status::error(Code::kTimeout, "transfer with peer {} passed its deadline of {} ms{}", options_.peer_name,
                             (job->deadline - job->submitted) / kMillisecond,
                             last_error_.ok() ? "" : "; last error: " + last_error_.message()),
               now, actions);
    }
    if (job->stopping != Code::kOk && now >= job->stop_at) {
      job->stop_at = kNever;
      for (auto& [id, channel] : channels_) {
        if (channel.state == Channel::State::kClosing) continue;
        const bool carries = std::any_of(channel.slices.begin(), channel.slices.end(),
                                         [&](const auto& entry) { return entry.second->job == job; });
        if (!carries) continue;
        cut(id, channel, job->error, actions);
      }
    }
    settle(job, now, actions);
  }
  if (now >= next_probe_) {
    next_probe_ = now < last_wanted_ + kProbeWhileWanted ? now + options_.connect_timeout + options_.probe_interval : kNever;
    if (next_probe_ == kNever && state_ == State::kBackoff) {
      state_ = State::kIdle;
    } else {
      fetch(now, actions);
    }
  }
  if (now >= next_check_) {
    next_check_ = kNever;
    if (jobs_.empty()) {
      if (state_ == State::kFetching && !fetching_) state_ = State::kIdle;
    } else if (state_ == State::kFetching || !any_up()) {
      fetch(now, actions);
    }
  }
  dispatch(now, actions);
}

Nanos Session::next_tick() const {
  Nanos next = std::min(next_probe_, next_check_);
  if (!timers_.empty()) next = std::min(next, timers_.begin()->first);
  if (state_ != State::kReady || stopped_) return next;
  for (uint32_t t = 0; t < transports_.size(); ++t) {
    if (!wants_channels(t)) continue;
    for (const Path& path : transports_[t].paths)
      if (path.channel == 0) next = std::min(next, path.retry_at);
  }
  return next;
}

std::vector<Session::ChannelInfo> Session::channels() const {
  std::vector<ChannelInfo> list;
  for (const auto& [id, channel] : channels_) {
    const TransportState& transport = transports_[channel.transport];
    const bool planned = channel.path < transport.paths.size();
    list.push_back({id, transport.traits.name, planned ? transport.paths[channel.path].local_rail : 0,
                    planned ? transport.paths[channel.path].remote_rail : 0,
                    channel.state == Channel::State::kUp        ? "up"
                    : channel.state == Channel::State::kOpening ? "opening"
                                                                : "closing",
                    channel.in_flight, channel.rate});
  }
  return list;
}

}  // namespace tidewire::engine
