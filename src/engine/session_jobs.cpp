// SPDX-License-Identifier: Apache-2.0
//
// The life of jobs: submitted, posted, retried, stopped, finished.
#include <algorithm>

#include "engine/session.h"

namespace tidewire::engine {
namespace {

uint64_t bytes_of(const Job& job, const Range& range) {
  uint64_t bytes = 0;
  for (Position at = range.begin; at < range.end; at = {at.transfer + 1, 0}) {
    const uint64_t end = at.transfer == range.end.transfer ? range.end.offset : job.transfers[at.transfer].length;
    bytes += end > at.offset ? end - at.offset : 0;
  }
  return bytes;
}

// Calls visit(transfer, bytes) for each transfer of which the range holds a part.
template <typename Visit>
void for_each_transfer(Job& job, const Range& range, Visit&& visit) {
  for (Position at = range.begin; at < range.end; at = {at.transfer + 1, 0}) {
    Transfer& transfer = job.transfers[at.transfer];
    const uint64_t end = at.transfer == range.end.transfer ? range.end.offset : transfer.length;
    if (end > at.offset) visit(transfer, end - at.offset);
  }
}

uint8_t state_of(Code code) {
  switch (code) {
    case Code::kOk: return TW_STATE_COMPLETED;
    case Code::kCanceled: return TW_STATE_CANCELED;
    case Code::kTimeout: return TW_STATE_TIMEOUT;
    case Code::kInvalidArgument: return TW_STATE_INVALID;
    default: return TW_STATE_FAILED;
  }
}

}  // namespace

void Session::submit(const JobPtr& job, Nanos now, Actions& actions) {
  last_wanted_ = now;
  job->number = next_job_++;
  jobs_.insert(job);
  job->open_transfers = job->count;
  for (uint64_t i = 0; i < job->count; ++i) {
    Transfer& transfer = job->transfers[i];
    if (transfer.code != TW_OK) {
      --job->open_transfers;
    } else if (transfer.length == 0) {
      transfer.state.store(TW_STATE_COMPLETED, std::memory_order_release);
      --job->open_transfers;
    } else {
      job->rest_bytes += transfer.length;
    }
  }
  if (job->open_transfers == 0) return finish_if_done(job, actions);
  if (stopped_)
    return stop_job(job, Code::kClosed, Status(Code::kClosed, "the engine is closed"), now, actions);
  if (state_ == State::kBackoff) {
    return stop_job(job, Code::kUnreachable,
                    Status::error(Code::kUnreachable, "peer {} is in back-off and probed every {} ms; last error: {}",
                                  options_.peer_name, options_.probe_interval / kMillisecond, last_error_.message()),
                    now, actions);
  }
  timers_.emplace(job->deadline, job);
  enqueue(job, /*front=*/false);
  if (state_ == State::kIdle) {
    state_ = State::kFetching;
    fetch(now, actions);
  }
  dispatch(now, actions);
}

void Session::extend(const JobPtr& job, Nanos deadline) {
  if (job->finished || job->stopping != Code::kOk || timers_.erase({job->deadline, job}) == 0) return;
  job->deadline = deadline;
  timers_.emplace(deadline, job);
}

void Session::cancel(const JobPtr& job, Nanos now, Actions& actions) {
  if (job->finished || job->stopping != Code::kOk) return;
  stop_job(job, Code::kCanceled, Status(Code::kCanceled, "the transfer was canceled by its owner"), now, actions);
}

void Session::enqueue(const JobPtr& job, bool front) {
  if (job->queued) return;
  job->queued = true;
  std::deque<JobPtr>& queue = transports_[job->level].queue;
  front ? queue.push_front(job) : queue.push_back(job);
}

void Session::dequeue(const JobPtr& job) {
  if (!job->queued) return;
  job->queued = false;
  std::erase(transports_[job->level].queue, job);
}

void Session::stop_job(const JobPtr& job, Code code, const Status& why, Nanos now, Actions& actions) {
  if (job->finished || job->stopping != Code::kOk) return;
  job->stopping = code;
  if (job->error.ok()) job->error = Status(code, why.message());
  dequeue(job);
  job->rest.begin = job->rest.end;
  job->retries.clear();
  job->stop_at = now + kStopGrace;
  job->give_up_at = now + kRevocationTime;
  if (job->in_flight > 0) timers_.emplace(job->stop_at, job);
  timers_.emplace(job->give_up_at, job);
  finish_if_done(job, actions);
}

void Session::stop_all(Code code, const Status& why, bool posted_only, Nanos now, Actions& actions) {
  const auto jobs = jobs_;
  for (const JobPtr& job : jobs)
    if (!posted_only || job->posted) stop_job(job, code, why, now, actions);
}

void Session::publish(Job& job) {
  for (uint64_t i = 0; i < job.count; ++i) {
    Transfer& transfer = job.transfers[i];
    if (transfer.state.load(std::memory_order_relaxed) == TW_STATE_COMPLETED) continue;
    Code code = static_cast<Code>(transfer.code.load(std::memory_order_relaxed));
    if (code == Code::kOk && (job.gave_up || transfer.done.load(std::memory_order_relaxed) != transfer.length)) {
      code = job.stopping;
      transfer.code.store(static_cast<uint8_t>(code), std::memory_order_relaxed);
    }
    transfer.state.store(state_of(code), std::memory_order_release);
  }
}

void Session::finish_if_done(const JobPtr& job, Actions& actions) {
  if (job->finished || job->in_flight > 0 || !job->victims.empty()) return;
  if (job->open_transfers > 0 && job->stopping == Code::kOk) return;
  job->finished = true;
  dequeue(job);
  publish(*job);
  for (const Nanos time : {job->deadline, job->stop_at, job->give_up_at}) timers_.erase({time, job});
  for (auto found = victims_.begin(); found != victims_.end();) {
    std::erase(found->second.jobs, job);
    // A revocation that nobody waits for any more is dropped.
    found = found->second.jobs.empty() ? victims_.erase(found) : std::next(found);
  }
  jobs_.erase(job);
  actions.push_back(FinishJob{job});
}

// Finishes the job when it can; one that was stopped waits for confirmed revocations until give_up_at only.
void Session::settle(const JobPtr& job, Nanos now, Actions& actions) {
  if (job->stopping != Code::kOk && now >= job->give_up_at && job->in_flight == 0 && !job->victims.empty()) {
    job->victims.clear();
    job->gave_up = true;
    job->error = Status(job->error.code(), job->error.message() + "; late bytes at the target can't be excluded");
  }
  finish_if_done(job, actions);
}

void Session::count_done(Job& job, const Range& range) {
  for_each_transfer(job, range, [&](Transfer& transfer, uint64_t bytes) {
    if (transfer.code.load(std::memory_order_relaxed) != TW_OK) return;
    const uint64_t done = transfer.done.load(std::memory_order_relaxed) + bytes;
    transfer.done.store(done, std::memory_order_relaxed);
    if (done != transfer.length) return;
    --job.open_transfers;
    // With an older copy not yet revoked the transfer stays pending until the job ends.
    if (job.victims.empty()) transfer.state.store(TW_STATE_COMPLETED, std::memory_order_release);
  });
}

void Session::fail_transfers(Job& job, const Range& range, const Status& why) {
  for_each_transfer(job, range, [&](Transfer& transfer, uint64_t) {
    if (transfer.code.load(std::memory_order_relaxed) != TW_OK) return;
    transfer.code.store(static_cast<uint8_t>(why.code()), std::memory_order_relaxed);
    --job.open_transfers;
  });
  if (job.error.ok()) job.error = why;
}

// A posted slice comes back undone: its bytes wait for another channel.
void Session::give_back(const JobSlicePtr& slice, Nanos now, Actions& actions) {
  const JobPtr& job = slice->job;
  --job->in_flight;
  if (job->stopping == Code::kOk && !job->finished) {
    Range range = slice->range;
    ++range.attempts;
    ++retries_;
    ++job->retried_slices;
    job->retries.push_back(range);
    job->rest_bytes += slice->bytes;
    enqueue(job, /*front=*/true);
  }
  settle(job, now, actions);
}

// Either side refused a range of the slice: find the transfers that are to blame by halves and fail those alone.
void Session::handle_refusal(const JobSlicePtr& slice, const Status& why, Nanos now, Actions& actions) {
  const JobPtr& job = slice->job;
  --job->in_flight;
  if (job->stopping == Code::kOk) {
    if (slice->range.single()) {
      fail_transfers(*job, slice->range, why);
    } else {
      const auto [first, second] = split(slice->range);
      job->retries.push_front(second);
      job->retries.push_front(first);
      job->rest_bytes += bytes_of(*job, slice->range);
      enqueue(job, /*front=*/true);
    }
  }
  settle(job, now, actions);
}

void Session::handle_failure(ChannelId id, Channel& channel, const JobSlicePtr& slice, const Status& why, Nanos now, Actions& actions) {
  const JobPtr& job = slice->job;
  switch (why.code()) {
    case Code::kNotRegistered:
    case Code::kPermissionDenied:
    case Code::kInvalidArgument:
      return handle_refusal(slice, why, now, actions);
    case Code::kUnsupported: {
      job->unfit |= 1u << channel.transport;
      if (job->level == channel.transport) {  // otherwise an earlier slice has moved the job
        const auto level = next_level(*job);
        if (!level) return handle_refusal(slice, why, now, actions);
        dequeue(job);
        job->level = *level;
        ++fallbacks_;
        if (!job->retries.empty() || !job->rest.empty()) enqueue(job, /*front=*/false);
      }
      return give_back(slice, now, actions);
    }
    default:
      last_error_ = why;
      // A channel that is not up, or fails the same bytes again, would attract all others, because it is never busy.
      if (why.code() == Code::kUnreachable || slice->range.attempts >= 1) cut(id, channel, why, actions);
      if (slice->range.attempts >= 8 && why.code() != Code::kUnreachable) return handle_refusal(slice, why, now, actions);
      return give_back(slice, now, actions);
  }
}

void Session::slice_done(ChannelId id, const JobSlicePtr& slice, const Status& status, Nanos now, Actions& actions) {
  const auto found = channels_.find(id);
  if (found == channels_.end() || found->second.slices.erase(slice->id) == 0) return;  // handed back already
  Channel& channel = found->second;
  channel.in_flight -= slice->bytes;
  const JobPtr job = slice->job;
  if (status.ok()) {
    last_contact_ = now;
    const Nanos busy = now - std::max(slice->posted, channel.last_done);
    channel.last_done = now;
    // Bytes and time are smoothed apart: acknowledgements come in bunches, and an average of their single rates would be many times the
    // real one.
    channel.recent_bytes = 0.8 * channel.recent_bytes + static_cast<double>(slice->bytes);
    channel.recent_busy = 0.8 * channel.recent_busy + static_cast<double>(busy);
    if (channel.recent_busy > 0) channel.rate = channel.recent_bytes * kSecond / channel.recent_busy;
    --job->in_flight;
    TransportState& transport = transports_[channel.transport];
    if (channel.path < transport.paths.size()) {
      Path& path = transport.paths[channel.path];
      path.failures = 0;
      if (transport.traits.on_slice) transport.traits.on_slice(path.local_rail, job->opcode, slice->bytes, now - slice->posted);
    }
    count_done(*job, slice->range);
    settle(job, now, actions);
  } else {
    handle_failure(id, channel, slice, status, now, actions);
  }
  dispatch(now, actions);
}

}  // namespace tidewire::engine
