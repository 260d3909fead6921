// SPDX-License-Identifier: Apache-2.0
#include "control/notify_ledger.h"

#include <algorithm>

namespace tidewire::control {

Status NotifyOutbox::enqueue(std::string name, std::string message, Nanos deadline, Done done, const InstanceId& only) {
  if (connected_ && only != InstanceId{} && only != instance_)
    return Status(Code::kPeerGone, "the peer was started again before the notification of its data could be sent");
  const size_t bytes = name.size() + message.size();
  if (queued_bytes_ + bytes > kMaxQueuedBytes)
    return Status::error(Code::kNoResources, "{} MiB of notifications are waiting for this peer: wait for some first",
                         kMaxQueuedBytes >> 20);
  queued_bytes_ += bytes;
  Entry entry;
  entry.message = {stream_, 0, std::move(name), std::move(message)};
  entry.deadline = deadline;
  entry.done = std::move(done);
  entry.only = only;
  entries_.push_back(std::move(entry));
  return Status();
}

template <typename Predicate>
std::vector<NotifyOutbox::Settled> NotifyOutbox::settle_if(Predicate predicate,
                                                           const std::function<Status(const Entry&)>& status) {
  std::vector<Settled> settled;
  auto rest =
      std::stable_partition(entries_.begin(), entries_.end(), [&](const Entry& entry) { return !predicate(entry); });
  for (auto entry = rest; entry != entries_.end(); ++entry) {
    queued_bytes_ -= entry->message.name.size() + entry->message.message.size();
    if (entry->on_wire) --on_wire_;
    settled.push_back({std::move(entry->done), status(*entry)});
  }
  entries_.erase(rest, entries_.end());
  return settled;
}

std::vector<NotifyOutbox::Settled> NotifyOutbox::connected(const InstanceId& instance) {
  auto settled = settle_if(
      [&](const Entry& entry) {
        return (entry.message.sequence != 0 && entry.sent_to != instance) ||
               (entry.only != InstanceId{} && entry.only != instance);
      },
      [](const Entry& entry) {
        return entry.message.sequence != 0
                   ? Status(Code::kPeerGone,
                            "the peer was started again before it answered the notification; it may have arrived")
                   : Status(Code::kPeerGone,
                            "the peer was started again before the notification of its data could be sent");
      });
  connected_ = true;
  instance_ = instance;
  for (Entry& entry : entries_) entry.on_wire = false;
  on_wire_ = 0;
  return settled;
}

const NotificationMessage* NotifyOutbox::next(Nanos now) {
  if (!connected_ || on_wire_ >= kWindow || on_wire_ >= entries_.size()) return nullptr;
  // Settled entries leave the queue, so what is on the wire is its front.
  Entry& entry = entries_[on_wire_];
  ++on_wire_;
  entry.on_wire = true;
  entry.sent_at = now;
  entry.sent_to = instance_;
  if (entry.message.sequence == 0) entry.message.sequence = ++last_sequence_;
  return &entry.message;
}

std::vector<NotifyOutbox::Settled> NotifyOutbox::answered(uint64_t sequence, const Status& status) {
  // Answers come in the order of sending: it is nearly always the front.
  if (!entries_.empty() && entries_.front().on_wire && entries_.front().message.sequence == sequence) {
    Entry& front = entries_.front();
    queued_bytes_ -= front.message.name.size() + front.message.message.size();
    --on_wire_;
    std::vector<Settled> settled;
    settled.push_back({std::move(front.done), status});
    entries_.pop_front();
    return settled;
  }
  return settle_if([&](const Entry& entry) { return entry.on_wire && entry.message.sequence == sequence; },
                   [&](const Entry&) { return status; });
}

std::vector<NotifyOutbox::Settled> NotifyOutbox::expire(Nanos now) {
  return settle_if(
      [&](const Entry& entry) { return entry.deadline <= now; },
      [](const Entry& entry) {
        return entry.message.sequence == 0
                   ? Status(Code::kTimeout, "the notification could not be sent before its deadline")
                   : Status(Code::kTimeout,
                            "the peer did not answer the notification before its deadline; it may have arrived");
      });
}

std::vector<NotifyOutbox::Settled> NotifyOutbox::fail_all(const Status& status) {
  return settle_if([](const Entry&) { return true; }, [&](const Entry&) { return status; });
}

Nanos NotifyOutbox::earliest_deadline() const {
  Nanos earliest = kNever;
  for (const Entry& entry : entries_) earliest = std::min(earliest, entry.deadline);
  return earliest;
}

Nanos NotifyOutbox::waiting_since() const {
  return on_wire_ > 0 ? entries_.front().sent_at : kNever;
}

Status NotifyInbox::receive(const InstanceId& sender, uint64_t stream, uint64_t sequence, Nanos now,
                            const std::function<Status()>& deliver) {
  forget(now);
  const Key key{sender, stream};
  auto [found, inserted] = streams_.try_emplace(key);
  Stream& state = found->second;
  if (inserted) {
    state.age = by_age_.insert(by_age_.end(), key);
  } else {
    by_age_.splice(by_age_.end(), by_age_, state.age);
  }
  state.used = now;
  if (sequence <= state.last) {
    for (const auto& [refused, status] : state.refused)
      if (refused == sequence) return status;
    return Status();
  }
  // A gap is a message that its sender gave up.
  state.last = sequence;
  Status outcome = deliver();
  if (!outcome.ok()) {
    if (state.refused.size() >= kRemembered) state.refused.pop_front();
    state.refused.emplace_back(sequence, outcome);
  }
  return outcome;
}

void NotifyInbox::forget(Nanos now) {
  while (!by_age_.empty()) {
    const auto oldest = streams_.find(by_age_.front());
    if (streams_.size() < kMaxStreams && now - oldest->second.used < kForget) return;
    streams_.erase(oldest);
    by_age_.pop_front();
  }
}

}  // namespace tidewire::control
