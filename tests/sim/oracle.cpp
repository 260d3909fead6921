// SPDX-License-Identifier: Apache-2.0
#include "sim/oracle.h"

#include <cstring>

#include "sim/driver.h"

namespace tidewire::sim {
namespace {

constexpr Nanos kSlack = 15 * kMillisecond;      // the driver's: a close is reported within 2 ms, actions within 0.3 ms
constexpr Nanos kSettled = 11 * kSecond;         // after so long without a fault a pair is well: keep-alive has seen what nobody said
constexpr Nanos kEnough = 4 * kSecond;           // a deadline that a good path must not miss

Code code_of(const engine::Job& job, uint64_t i) { return static_cast<Code>(job.transfers[i].code.load()); }

}  // namespace

bool SimJob::covers(uint64_t address, uint64_t length, bool local) const {
  uint64_t at = address;
  const uint64_t end = address + length;
  // Transfers are in ascending order, so one pass follows a range over neighbours.
  for (uint64_t i = 0; i < job->count && at < end; ++i) {
    const uint64_t begin = local ? job->transfers[i].local : job->transfers[i].remote;
    if (at >= begin && at < begin + job->transfers[i].length) at = begin + job->transfers[i].length;
  }
  return at >= end;
}

// Whether a region of the transfer was unregistered while the job was under way.
bool Oracle::withdrawn(const SimJob& job, uint64_t transfer) const {
  const engine::Transfer& t = job.job->transfers[transfer];
  return t.length > 0 && !job.submitted_to->check(t.remote, t.length, job.write()).ok();
}

std::string Oracle::name(const SimJob& job) const {
  return fmt::format("job {} ({}→{}, {})", job.number, job.owner->slot, job.target, job.write() ? "write" : "read");
}

void Oracle::placing(SimJob& job, const ProcessPtr& target, uint64_t address, uint64_t length) {
  // No byte outside of what was asked for and of what the target offers.
  if (!job.covers(address, length, false)) world_.fail("{}: {} bytes at {:x} are not part of it", name(job), length, address);
  if (!target->check(address, length, job.write()).ok()) world_.fail("{}: bytes outside of the regions of its target", name(job));
  // All bytes of a job go to one instance.
  if (!job.placed_in) job.placed_in = target;
  if (job.placed_in != target) world_.fail("{}: bytes for two instances", name(job));
  // None after its end, unless it says that this can't be excluded.
  if (job.write() && job.finished && job.owner->alive && !job.late_bytes_allowed())
    world_.fail("{}: a byte landed {:.3f} ms after its end ({})", name(job), static_cast<double>(world_.now() - job.finished_at) / kMillisecond,
                job.job->error.to_string());
}

void Oracle::touching(SimJob& job, uint64_t address, uint64_t length) {
  if (!job.owner->alive) return;
  if (!job.covers(address, length, true)) world_.fail("{}: touched local memory that is not part of it", name(job));
  if (job.finished) world_.fail("{}: touched local memory after its end", name(job));
}

void Oracle::look(SimJob& job) {
  engine::Job& inner = *job.job;
  for (uint64_t i = 0; i < inner.count; ++i) {
    engine::Transfer& transfer = inner.transfers[i];
    if (job.verified[i] || transfer.state != TW_STATE_COMPLETED) continue;
    job.verified[i] = true;
    if (transfer.length == 0) continue;
    // COMPLETED: the bytes are there, at that moment.
    if (!job.placed_in) return world_.fail("{}: transfer {} completed without a byte placed", name(job), i);
    if (transfer.done != transfer.length) world_.fail("{}: transfer {} completed with {} of {} bytes", name(job), i, transfer.done.load(), transfer.length);
    if (std::memcmp(job.placed_in->at(transfer.remote), job.owner->at(transfer.local), transfer.length) != 0)
      world_.fail("{}: transfer {} completed, but its bytes are not {}", name(job), i, job.write() ? "at the target" : "in local memory");
  }
}

void Oracle::finished(SimJob& job) {
  if (job.finished) return world_.fail("{}: finished twice", name(job));
  job.finished = true;
  job.finished_at = world_.now();
  retries += job.job->retried_slices;
  uint64_t bad = 0;
  for (uint64_t i = 0; i < job.job->count; ++i) bad += job.job->transfers[i].state != TW_STATE_COMPLETED;
  ++(bad == 0 ? completed : failed);
  world_.trace("job {} ends: {} of {} completed, {}", job.number, job.job->count - bad, job.job->count, job.job->error.to_string());
  look(job);
  check_transfers(job);
  check_time(job);
  check_reason(job);
}

// Each transfer has exactly the result that its ranges and the fate of the job explain.
void Oracle::check_transfers(SimJob& job) {
  engine::Job& inner = *job.job;
  for (uint64_t i = 0; i < inner.count; ++i) {
    const int state = inner.transfers[i].state;
    const Code code = code_of(inner, i);
    if (state == TW_STATE_WAITING || state == TW_STATE_PENDING) return world_.fail("{}: transfer {} is not terminal", name(job), i);
    if ((state == TW_STATE_COMPLETED) != (code == Code::kOk)) return world_.fail("{}: transfer {} has state {} and code {}", name(job), i, state, code_name(code));
    const bool stopped = inner.stopping != Code::kOk && code == inner.stopping;
    // Addresses of an instance before may mean anything to the next one.
    const bool moved = job.placed_in ? job.placed_in != job.submitted_to : cluster_.slots[job.target].process != job.submitted_to;
    Expect expect = job.expect[i];
    if (expect == Expect::kGood && (moved || withdrawn(job, i))) expect = Expect::kEither;
    const bool right = expect == Expect::kGood            ? code == Code::kOk
                       : expect == Expect::kNotRegistered    ? code == Code::kNotRegistered
                       : expect == Expect::kPermissionDenied ? code == Code::kPermissionDenied || (moved && code == Code::kNotRegistered)
                                                             : code == Code::kOk || code == Code::kNotRegistered;
    if (!right && !stopped) world_.fail("{}: transfer {} ended with {}", name(job), i, code_name(code));
  }
}

void Oracle::check_time(SimJob& job) {
  const Nanos now = world_.now();
  const uint32_t a = job.owner->slot, b = job.target;
  if (now > job.job->deadline + engine::kRevocationTime + kSlack)
    world_.fail("{}: ended {} ms after its deadline", name(job), (now - job.job->deadline) / kMillisecond);
  // X10.
  if (job.canceled && now > job.canceled_at + engine::kRevocationTime + kSlack)
    world_.fail("{}: ended {} ms after it was canceled", name(job), (now - job.canceled_at) / kMillisecond);
  const Nanos took = now - job.job->submitted;
  const Slot& slot = cluster_.slots[b];
  const bool faulty_fetches = cluster_.settings.fetch_faults > 0;
  Nanos worst = 0, dark = 0;
  for (uint32_t rail = 0; rail < network_.rails(); ++rail) {
    worst = std::max(worst, network_.good_since(a, b, rail));
    dark = std::max(dark, network_.dark_since(a, b, rail));
  }
  if (slot.host_down) dark = std::min(dark, slot.steady_since);
  // A peer that refuses fails its jobs at once, unless a question from before, which nobody answers, is still awaited.
  const Nanos before = job.job->submitted - cluster_.settings.session.connect_timeout * 5 / 4;
  if (slot.refusing_since <= before && worst <= before && !faulty_fetches && took > 300 * kMillisecond)
    world_.fail("{}: took {} ms to fail at a peer that refuses", name(job), took / kMillisecond);
  // A silent one within 1.5 connect timeouts, or within five once it was in contact.
  const Nanos connect = cluster_.settings.session.connect_timeout;
  if (slot.host != cluster_.slots[a].host && dark != kNever && !faulty_fetches) {
    const bool never = dark <= job.owner->started;
    if (never && dark <= job.job->submitted && took > connect * 3 / 2) world_.fail("{}: took {} ms to fail at a silent peer", name(job), took / kMillisecond);
    if (now > std::max(dark, job.job->submitted) + engine::kPatience * connect + cluster_.settings.stall_timeout + kSlack + engine::kRevocationTime)
      world_.fail("{}: took {} ms to fail at a peer that fell silent {} ms ago", name(job), took / kMillisecond, (now - dark) / kMillisecond);
  }
  // Jobs of live peers aren't slowed by dead ones.
  bool all_good = true;
  for (uint32_t rail = 0; rail < network_.rails(); ++rail)
    all_good &= cluster_.good_since(a, b, rail) <= job.job->submitted - kSettled;
  if (all_good && cluster_.settings.connection_loss == 0 && !faulty_fetches && cluster_.last_reset[{a, b}] < job.job->submitted - kSettled) {
    // A window is two slices of 8 KiB; other jobs share the lanes.
    const Nanos round = 2 * (network_.base_latency + network_.jitter) + 16 * cluster_.settings.processing;
    const Nanos wire = static_cast<Nanos>(job.job->bytes * 40 * static_cast<uint64_t>(kSecond) / network_.bytes_per_second) +
                       static_cast<Nanos>(job.job->bytes / (8 << 10) + job.job->count) * round;
    if (took > 500 * kMillisecond + wire && !job.canceled) world_.fail("{}: took {} ms although its peer is well", name(job), took / kMillisecond);
  }
}

// One fault does not reach the caller: with a rail that is good, no transfer fails for want of a path.
void Oracle::check_reason(SimJob& job) {
  const Code why = job.job->stopping;
  if (why == Code::kOk) return;
  if (why == Code::kCanceled) {
    if (!job.canceled) world_.fail("{}: canceled by nobody", name(job));
    return;
  }
  if (why == Code::kTimeout && world_.now() < job.job->deadline) world_.fail("{}: timed out before its deadline", name(job));
  if (why == Code::kTimeout && job.job->deadline - job.job->submitted < kEnough) return;
  const uint32_t a = job.owner->slot, b = job.target;
  const Nanos since = job.job->submitted - kSettled;
  const auto fault = cluster_.control_faults.find({a, b});
  if (fault != cluster_.control_faults.end() && fault->second >= since) return;
  if (cluster_.good_since(a, b, 0) > since) return;
  for (uint32_t rail = 0; rail < network_.rails(); ++rail)
    if (cluster_.good_since(a, b, rail) <= since)
      return world_.fail("{}: failed with {} although rail {} was good ({})", name(job), code_name(why), rail, job.job->error.message());
}

void Oracle::notified(uint32_t number, const ProcessPtr& target) {
  SimJob& job = *jobs_.at(number);
  world_.trace("notification of job {} arrives at instance {}", number, target->instance[0]);
  if (++job.delivered > 1) return world_.fail("{}: notified twice", name(job));
  for (uint64_t i = 0; i < job.job->count; ++i) {
    engine::Transfer& transfer = job.job->transfers[i];
    if (transfer.length == 0) continue;
    // Never before its data, in the instance that is told.
    if (job.placed_in != target || (job.write() && job.owner->alive && std::memcmp(target->at(transfer.remote), job.owner->at(transfer.local), transfer.length) != 0))
      return world_.fail("{}: notified before its data are there", name(job));
  }
  uint64_t& last = last_notified_[{target.get(), job.owner.get()}];
  if (job.notify_number <= last) world_.fail("{}: notified out of order", name(job));
  last = job.notify_number;
}

void Oracle::notify_settled(SimJob& job, const Status& status) {
  if (job.notify_settled) world_.fail("{}: notification settled twice", name(job));
  job.notify_settled = true;
  if (status.ok() && job.delivered != 1) world_.fail("{}: notification reported, delivered {} times", name(job), job.delivered);
}

void Oracle::closing() {
  for (const SimJobPtr& job : jobs_) {
    if (job->notify_number > 0 && job->owner->alive && !job->notify_settled) world_.fail("{}: its notification never settled", name(*job));
    if (job->finished) continue;
    if (job->owner->alive) world_.fail("{}: never ended", name(*job));
  }
  for (const Slot& slot : cluster_.slots) {
    if (!slot.process) continue;
    for (const auto& [target, driver] : slot.process->drivers)
      if (driver->session().jobs() > 0) world_.fail("session {}→{} holds {} jobs at the end", slot.process->slot, target, driver->session().jobs());
  }
}

}  // namespace tidewire::sim
