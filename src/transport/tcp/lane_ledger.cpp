// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/lane_ledger.h"

#include <algorithm>

namespace tidewire::transport::tcp {

Status LaneLedger::admit(const InstanceId& initiator, uint64_t channel, Nanos now) {
  expire(now);
  Initiator& entry = initiators_[initiator];
  Status refused;
  if (entry.live.count(channel) != 0) {
    refused = Status::error(Code::kProtocol, "channel {} of {} is connected already", channel, to_string(initiator));
  } else if (entry.dead.count(channel) != 0 || (entry.floor != 0 && channel <= entry.floor)) {
    refused = Status::error(Code::kCanceled, "channel {} of {} was revoked", channel, to_string(initiator));
  } else {
    entry.live.insert(channel);
  }
  if (entry.empty()) initiators_.erase(initiator);
  return refused;
}

void LaneLedger::gone(const InstanceId& initiator, uint64_t channel) {
  const auto found = initiators_.find(initiator);
  if (found == initiators_.end()) return;
  found->second.live.erase(channel);
  if (found->second.empty()) initiators_.erase(found);
}

bool LaneLedger::revoke(const InstanceId& initiator, uint64_t victim, Nanos now) {
  expire(now);
  Initiator& entry = initiators_[initiator];
  const Nanos until = now + kTombstoneLife;
  if (entry.dead.emplace(victim, until).second) {
    entry.by_age.emplace_back(until, victim);
    next_expiry_ = std::min(next_expiry_, until);
  }
  if (entry.by_age.size() > kMaxTombstones) {
    const uint64_t oldest = entry.by_age.front().second;
    entry.by_age.pop_front();
    entry.dead.erase(oldest);
    entry.floor = std::max(entry.floor, oldest);
    entry.floor_until = until;
  }
  return entry.live.count(victim) != 0;
}

size_t LaneLedger::live() const {
  size_t count = 0;
  for (const auto& [instance, entry] : initiators_) count += entry.live.size();
  return count;
}

size_t LaneLedger::tombstones() const {
  size_t count = 0;
  for (const auto& [instance, entry] : initiators_) count += entry.dead.size();
  return count;
}

void LaneLedger::expire(Nanos now) {
  if (now < next_expiry_) return;
  next_expiry_ = kNever;
  for (auto it = initiators_.begin(); it != initiators_.end();) {
    Initiator& entry = it->second;
    while (!entry.by_age.empty() && entry.by_age.front().first <= now) {
      entry.dead.erase(entry.by_age.front().second);
      entry.by_age.pop_front();
    }
    if (entry.floor != 0 && entry.floor_until <= now) entry.floor = 0;
    if (!entry.by_age.empty()) next_expiry_ = std::min(next_expiry_, entry.by_age.front().first);
    if (entry.floor != 0) next_expiry_ = std::min(next_expiry_, entry.floor_until);
    it = entry.empty() ? initiators_.erase(it) : std::next(it);
  }
}

}  // namespace tidewire::transport::tcp
