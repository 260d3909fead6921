// SPDX-License-Identifier: Apache-2.0
//
// TcpTransport: moves slices over TCP connections (docs/protocol-tcp.md). The control plane connects and authenticates;
// it hands connected sockets over through two seams: Dial for the lanes that this side opens, accept() for those that
// peers opened.
//
// Promises: those of Transport. Bytes that a peer sends are verified before use; a malformed frame costs its connection
// and one log line.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/settings.h"
#include "base/unique_fd.h"
#include "transport/tcp/io_thread.h"
#include "transport/tcp/target_side.h"
#include "transport/transport.h"

namespace tidewire::transport::tcp {

class InitiatorLane;

// Connects from `local_address` (a literal without port; empty = any) to `remote_address` ("ip:port") and proves that
// instance `expected` answers. Returns at once; `done` comes once, from any thread, at the latest at the deadline: the
// socket is connected and non-blocking, `seen` is the instance that answered where one did.
using Dial =
    std::function<void(const std::string& local_address, const std::string& remote_address, const InstanceId& expected,
                       uint64_t channel, Nanos deadline, std::function<void(Status, UniqueFd, InstanceId seen)> done)>;

class TcpTransport : public Transport {
 public:
  // `rails` are the local rails, as in the own peer record. Starts no thread; those come with the first lane.
  TcpTransport(RegionTable& regions, const Settings& settings, Events& events, Dial dial,
               std::vector<RailRecord> rails);
  ~TcpTransport() override;

  // A data connection of a peer, its hello done: connected, non-blocking, bytes after the hello unread. Any thread.
  // Closed when the transport is stopped, the channel was revoked or the process is out of threads or descriptors; that
  // is logged.
  void accept(UniqueFd socket, InstanceId initiator, std::string initiator_name, uint64_t channel, uint32_t rail);

  std::string_view name() const override { return "tcp"; }
  std::vector<RailRecord> rails() const override { return rails_; }
  bool reaches(const PeerRecord& peer) const override;
  std::vector<std::pair<uint32_t, uint32_t>> pair_rails(const PeerRecord& peer) const override;
  uint32_t lanes_per_pair() const override;
  bool needs_revocation() const override { return true; }

  void open(ChannelId channel, const PeerRecord& peer, uint32_t local_rail, uint32_t remote_rail,
            Nanos deadline) override;
  void post(ChannelId channel, SlicePtr slice) override;
  void close(ChannelId channel, const Status& why) override;
  void revoke(ChannelId via, ChannelId victim) override;
  bool drive(ChannelId channel) override;
  bool silence(const InstanceId& initiator, Nanos deadline) override;
  void stop() override;
  std::string describe() const override;

 private:
  std::shared_ptr<InitiatorLane> find(ChannelId channel) const;
  Result<std::shared_ptr<IoThread>> next_thread();

  RegionTable& regions_;
  const Settings settings_;
  Events& events_;
  const Dial dial_;
  const std::vector<RailRecord> rails_;

  mutable std::mutex threads_mutex_;
  std::vector<std::shared_ptr<IoThread>> threads_;
  size_t next_ = 0;
  bool stopped_ = false;

  mutable std::shared_mutex lanes_mutex_;
  std::unordered_map<ChannelId, std::shared_ptr<InitiatorLane>> lanes_;

  TargetSide targets_;
};

}  // namespace tidewire::transport::tcp
