// SPDX-License-Identifier: Apache-2.0
//
// NearTransport: a same-host transport of the simulated world. The initiator copies by itself, chunk after chunk; when a channel is down
// nothing of it can be placed any more, so it needs no revocation.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "sim/cluster.h"

namespace tidewire::sim {

class NearTransport {
 public:
  explicit NearTransport(Process& owner);

  void open(Driver& driver, engine::ChannelId channel, const InstanceId& expected);
  void post(Driver& driver, engine::ChannelId channel, const engine::JobSlicePtr& slice);
  void close(engine::ChannelId channel, const Status& why);
  // The target died or is cut off: channels to it end.
  void reset(uint32_t target);
  void abandon() { channels_.clear(); }

 private:
  struct Channel {
    Driver* driver;
    engine::ChannelId id;
    ProcessPtr target;
    bool up = false;
    bool copying = false;
    std::deque<engine::JobSlicePtr> slices;
    size_t piece = 0;
    uint64_t at = 0;
  };
  using ChannelPtr = std::shared_ptr<Channel>;

  ChannelPtr find(engine::ChannelId channel) {
    const auto found = channels_.find(channel);
    return found == channels_.end() ? nullptr : found->second;
  }
  void copy_later(const ChannelPtr& channel);
  void copy(const ChannelPtr& channel);
  void slice_done(const ChannelPtr& channel, const Status& status);
  void down(engine::ChannelId channel, const Status& why, const InstanceId& seen = {});

  Process& owner_;
  Cluster& cluster_;
  World& world_;
  std::map<engine::ChannelId, ChannelPtr> channels_;
};

}  // namespace tidewire::sim
