// SPDX-License-Identifier: Apache-2.0
//
// ShmTransport: moves slices between processes of one host without a socket for the bytes. The initiator copies: into
// and out of mapped pool memory of the target, or through the kernel (process_vm_readv and writev) for memory that the
// application brought. That both are on one host, and who the other is, is proven when a channel is set up. The target
// keeps the last word on each copy through guard pages (guard.h).
//
// A slice that this path can't carry (device memory at the target; other people's memory where the kernel refuses) is
// done with kUnsupported: another transport should take it.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/settings.h"
#include "memory/writer_first_mutex.h"
#include "transport/shm/channel.h"
#include "transport/shm/copy_queue.h"
#include "transport/shm/host_id.h"
#include "transport/shm/loop.h"
#include "transport/shm/target.h"
#include "transport/transport.h"

namespace tidewire::transport::shm {

class ShmTransport : public Transport {
 public:
  // Listens at once; becomes the observer of `regions`. Where that fails (no descriptors, no threads) or
  // settings.same_host is off, the transport reaches nobody, and status() tells why. `regions` and `events` must
  // outlive it.
  ShmTransport(RegionTable& regions, LocalIdentity identity, const Settings& settings, Events& events);
  ~ShmTransport() override;

  const Status& status() const { return status_; }
  // For the peer record: the abstract Unix socket's name, empty when there is none.
  const std::string& socket_name() const { return socket_name_; }

  std::string_view name() const override { return "shm"; }
  std::vector<RailRecord> rails() const override;
  bool reaches(const PeerRecord& peer) const override;
  std::vector<std::pair<uint32_t, uint32_t>> pair_rails(const PeerRecord& peer) const override;
  uint32_t lanes_per_pair() const override { return 1; }
  bool needs_revocation() const override { return false; }  // the initiator makes the copies itself

  void open(ChannelId channel, const PeerRecord& peer, uint32_t local_rail, uint32_t remote_rail,
            Nanos deadline) override;
  void post(ChannelId channel, SlicePtr slice) override;
  void close(ChannelId channel, const Status& why) override;
  void revoke(ChannelId via, ChannelId victim) override;
  bool drive(ChannelId channel) override;
  bool silence(const InstanceId& initiator, Nanos deadline) override { return target_ == nullptr || target_->silence(initiator, deadline); }
  // Blocks for at most the copies under way, here and (0.4 s) by peers. Not from within an event.
  void stop() override;
  std::string describe() const override;

 private:
  Status start(const Settings& settings);
  std::shared_ptr<Channel> find(ChannelId channel) const;

  RegionTable& regions_;
  const LocalIdentity identity_;
  Events& events_;
  const bool enabled_;
  Status status_;
  std::string socket_name_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<Target> target_;
  CopyQueue queue_;

  mutable WriterFirstMutex channels_mutex_;
  std::unordered_map<ChannelId, std::shared_ptr<Channel>> channels_;
  std::mutex gone_mutex_;
  std::condition_variable gone_;
  size_t open_ = 0;       // channels not yet reported down; under gone_mutex_
  bool stopped_ = false;  // under gone_mutex_
};

}  // namespace tidewire::transport::shm
