// SPDX-License-Identifier: Apache-2.0
//
// Peer: drives the Session of one peer. Events from transports, the control plane, timers and callers enter under one lock; the actions that come out are
// carried out after it is released. Thread-safe; owned by shared_ptr because events may outlive the engine's interest.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "engine/session.h"

namespace tidewire::engine {

class Peer : public std::enable_shared_from_this<Peer> {
 public:
  // What a peer needs of its engine.
  class Host {
   public:
    virtual ~Host() = default;
    virtual transport::Transport& transport(uint32_t index) = 0;
    virtual RegionTable& regions() = 0;
    // Resolves the name and fetches the record; `done` from any thread.
    virtual void fetch_record(const std::shared_ptr<Peer>& peer, Nanos deadline, std::function<void(Result<PeerRecord>)> done) = 0;
    virtual void run_at(Nanos when, std::function<void()> task) = 0;
  };

  Peer(Host& host, std::string name, SessionOptions options, std::vector<TransportTraits> transports, ChannelId first_channel);

  const std::string& name() const { return name_; }
  // The control address ("host:port") as last resolved.
  std::string address() const;
  void set_address(std::string address);

  void submit(const JobPtr& job);
  void cancel(const JobPtr& job);
  void extend(const JobPtr& job, Nanos deadline);
  bool drive(Job& job);
  // Waits until the peer answered or failed; OK when it is there.
  Status contact(Nanos until);
  // A probe from outside found it alive.
  void found_alive();

  void channel_up(ChannelId channel);
  void channel_down(ChannelId channel, const Status& why, const InstanceId& seen);
  void slice_done(ChannelId channel, const JobSlicePtr& slice, const Status& status);
  void revoked(ChannelId victim);
  void peer_closed(const InstanceId& instance);
  void shut_down(const Status& why);
  // Waits until no job is left, or `until`.
  bool wait_idle(Nanos until);

  // Calls read(const Session&) under the lock, for status.
  template <typename Read>
  auto inspect(Read&& read) const {
    std::lock_guard lock(mutex_);
    return read(session_);
  }

 private:
  template <typename Event>
  void handle(Event&& event);
  void perform(Action& action);
  void post(PostSlice& post);
  void arm(Nanos when);
  void tick();

  Host& host_;
  const std::string name_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string address_;
  Session session_;
  Nanos armed_ = kNever;
};
using PeerPtr = std::shared_ptr<Peer>;

}  // namespace tidewire::engine
