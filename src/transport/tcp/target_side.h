// SPDX-License-Identifier: Apache-2.0
//
// TargetSide: the lanes that peers opened, and the ledger that decides which may live.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "transport/tcp/lane_ledger.h"
#include "transport/tcp/target_lane.h"

namespace tidewire::transport::tcp {

class TargetSide : private TargetLane::Owner {
 public:
  explicit TargetSide(RegionTable& regions) : regions_(regions) {}

  void accept(TargetLane::Identity identity, UniqueFd socket, std::shared_ptr<IoThread> io);
  // Cuts the lanes of this initiator (zero: of all): nothing that came over them is placed any more when it returns.
  void cut(const InstanceId& initiator);
  // Refuses further lanes and cuts those that live: nothing is placed any more when it returns.
  void stop();
  // After stop(): returns when every lane has ended on its thread.
  void await_end();
  std::string describe() const;  // JSON objects, comma-separated

 private:
  using Key = std::pair<InstanceId, uint64_t>;
  void revoke(const InstanceId& initiator, uint64_t victim) override;
  void ended(TargetLane& lane) override;

  RegionTable& regions_;
  mutable std::mutex mutex_;
  std::condition_variable none_left_;
  bool stopped_ = false;
  LaneLedger ledger_;
  std::map<Key, std::shared_ptr<TargetLane>> lanes_;
};

}  // namespace tidewire::transport::tcp
