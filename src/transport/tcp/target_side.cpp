// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/target_side.h"

#include "base/log.h"

namespace tidewire::transport::tcp {

void TargetSide::accept(TargetLane::Identity identity, UniqueFd socket, std::shared_ptr<IoThread> io) {
  const Key key{identity.initiator, identity.channel};
  const std::string peer = identity.initiator_name;
  std::shared_ptr<TargetLane> lane;
  Status refused;
  TargetLane::Owner& owner = *this;
  {
    std::lock_guard lock(mutex_);
    refused = stopped_ ? Status(Code::kClosed, "shutting down") : ledger_.admit(key.first, key.second, monotonic_now());
    if (refused.ok()) {
      lane = std::make_shared<TargetLane>(std::move(identity), std::move(socket), regions_, owner, std::move(io));
      lanes_[key] = lane;
    }
  }
  if (!refused.ok()) {
    log::info("tcp_lane_refused", "data connection refused peer={} why={}", peer, refused.message());
    return;
  }
  lane->start();
}

void TargetSide::revoke(const InstanceId& initiator, uint64_t victim) {
  std::shared_ptr<TargetLane> lane;
  {
    std::lock_guard lock(mutex_);
    if (ledger_.revoke(initiator, victim, monotonic_now())) {
      const auto found = lanes_.find({initiator, victim});
      if (found != lanes_.end()) lane = found->second;
    }
  }
  // Not under the lock: cutting waits for the victim's placement in progress.
  if (lane != nullptr) lane->cut(Status(Code::kCanceled, "revoked by its initiator"));
}

void TargetSide::ended(TargetLane& lane) {
  const Key key{lane.identity().initiator, lane.identity().channel};
  std::lock_guard lock(mutex_);
  ledger_.gone(key.first, key.second);
  lanes_.erase(key);
  if (lanes_.empty()) none_left_.notify_all();
}

void TargetSide::await_end() {
  std::unique_lock lock(mutex_);
  none_left_.wait(lock, [this] { return lanes_.empty(); });
}

void TargetSide::cut(const InstanceId& initiator) {
  std::vector<std::shared_ptr<TargetLane>> lanes;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, lane] : lanes_)
      if (initiator == InstanceId{} || key.first == initiator) lanes.push_back(lane);
  }
  for (const auto& lane : lanes) lane->cut(Status(Code::kCanceled, "silenced by the target"));
}

void TargetSide::stop() {
  std::vector<std::shared_ptr<TargetLane>> lanes;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    for (const auto& [key, lane] : lanes_) lanes.push_back(lane);
  }
  for (const auto& lane : lanes) lane->cut(Status(Code::kPeerGone, "shutting down"));
}

std::string TargetSide::describe() const {
  std::vector<std::shared_ptr<TargetLane>> lanes;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, lane] : lanes_) lanes.push_back(lane);
  }
  std::string text;
  for (const auto& lane : lanes) text += (text.empty() ? "" : ", ") + lane->describe();
  return text;
}

}  // namespace tidewire::transport::tcp
