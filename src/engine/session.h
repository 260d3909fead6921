// SPDX-License-Identifier: Apache-2.0
//
// Session: all that an engine decides about one peer, as a state machine without I/O. Events and the time go in, actions come out; a driver
// (engine/peer.h, or the simulator) carries the actions out and reports back. Not thread-safe: the driver serialises.
//
// What it promises:
//  - Every job becomes terminal: at the latest 0.4 s after its deadline, provided the driver reports each closed channel.
//  - A job is terminal only when no slice of it is posted, and when the target has confirmed that lost channels can place nothing more, unless that can't
//    be had: then the error says that late bytes can't be excluded.
//  - Failed slices go to another channel, then to the next transport, within the deadline; the bytes of a job never go to another instance of the
//    peer than the one that got its first bytes.
//  - A peer that refuses fails its jobs at once, a silent one within the connect timeout (or, once it was in contact, within five of them); after that it is in
//    back-off: new jobs fail at once while probes look for its return.
// A refusal is a kUnreachable with the system error ECONNREFUSED: then no process of the old instance is left. No route, no name, no answer or a broken
// connection is silence.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "engine/job.h"
#include "engine/planner.h"
#include "transport/peer_record.h"

namespace tidewire::engine {

using transport::ChannelId;

// What the session must know of a transport. Lower index = preferred.
struct TransportTraits {
  std::string name;
  // The (local rail, remote rail) pairs worth using for this peer, empty when it does not reach it. No I/O.
  std::function<std::vector<std::pair<uint32_t, uint32_t>>(const PeerRecord&)> pairs;
  uint32_t lanes_per_pair = 1;
  bool needs_revocation = false;
  uint64_t slice_bytes = 1 << 20;
  uint64_t slice_pieces = 4096;
  uint64_t window_bytes = 8 << 20;
  // Told of each slice that a rail completed, for metrics; may be empty. Must be quick: called under the peer's lock.
  std::function<void(uint32_t local_rail, transport::Opcode, uint64_t bytes, Nanos elapsed)> on_slice;
};

struct SessionOptions {
  std::string peer_name;  // for messages
  Nanos connect_timeout = kSecond;
  Nanos probe_interval = 500 * kMillisecond;
  uint64_t least_slice = 64 << 10;
};

constexpr Nanos kRevocationTime = 400 * kMillisecond;  // design: "revocation is bounded (0.4 s)"
constexpr Nanos kStopGrace = 100 * kMillisecond;       // posted slices of a stopped job may finish; after it their channels are cut
constexpr int kPatience = 5;                           // connect timeouts for which a peer once in contact may be silent
constexpr Nanos kProbeWhileWanted = 60 * kSecond;      // probing a peer in back-off ends so long after the last request for it

struct FetchRecord { Nanos deadline = 0; };
struct OpenChannel {
  ChannelId channel = 0;
  uint32_t transport = 0, local_rail = 0, remote_rail = 0;
  Nanos deadline = 0;
  PeerRecord record;
};
struct PostSlice { ChannelId channel = 0; uint32_t transport = 0; JobSlicePtr slice; };
struct CloseChannel { ChannelId channel = 0; uint32_t transport = 0; Status why; };
struct RevokeChannel { ChannelId via = 0, victim = 0; uint32_t transport = 0; };
struct FinishJob { JobPtr job; };
using Action = std::variant<FetchRecord, OpenChannel, PostSlice, CloseChannel, RevokeChannel, FinishJob>;
using Actions = std::vector<Action>;

class Session {
 public:
  enum class State { kIdle, kFetching, kReady, kBackoff };

  // `first_channel`: ids are counted upwards from it; the driver keeps the ranges of sessions apart.
  Session(SessionOptions options, std::vector<TransportTraits> transports, ChannelId first_channel);

  // Events. `submit` wants transfers whose length and addresses don't wrap; empty ones are fine.
  void submit(const JobPtr& job, Nanos now, Actions& actions);
  void cancel(const JobPtr& job, Nanos now, Actions& actions);
  // Gives a job that is not stopping a later (or earlier) deadline.
  void extend(const JobPtr& job, Nanos deadline);
  // Asks for contact without a job, in back-off too: the driver learns of the outcome through state().
  void want_contact(Nanos now, Actions& actions);
  // The peer answered a probe from outside: ends its back-off and fetches its record.
  void found_alive(Nanos now, Actions& actions);
  void record_fetched(const Result<PeerRecord>& record, Nanos now, Actions& actions);
  void channel_up(ChannelId channel, Nanos now, Actions& actions);
  void channel_down(ChannelId channel, const Status& why, const InstanceId& seen, Nanos now, Actions& actions);
  void slice_done(ChannelId channel, const JobSlicePtr& slice, const Status& status, Nanos now, Actions& actions);
  void revoked(ChannelId victim, Nanos now, Actions& actions);
  // The control plane saw this instance leave (goodbye or a broken connection).
  void peer_closed(const InstanceId& instance, Nanos now, Actions& actions);
  // The engine stops: every job is canceled with `why`.
  void shut_down(const Status& why, Nanos now, Actions& actions);
  void tick(Nanos now, Actions& actions);
  // When tick must be called at the latest; kNever when nothing is due.
  Nanos next_tick() const;

  State state() const { return state_; }
  const Status& last_error() const { return last_error_; }
  const std::optional<PeerRecord>& record() const { return record_; }
  size_t jobs() const { return jobs_.size(); }
  uint64_t retries() const { return retries_; }
  uint64_t fallbacks() const { return fallbacks_; }
  uint64_t backoffs() const { return backoffs_; }

  struct ChannelInfo {
    ChannelId id;
    std::string transport;
    uint32_t local_rail, remote_rail;
    std::string state;
    uint64_t in_flight_bytes;
    double bytes_per_second;
  };
  std::vector<ChannelInfo> channels() const;

 private:
  struct Path {
    uint32_t local_rail, remote_rail;
    ChannelId channel = 0;     // 0 = none
    uint32_t failures = 0;     // since it last carried something
    Nanos retry_at = 0;
  };
  struct TransportState {
    TransportTraits traits;
    std::vector<Path> paths;
    std::deque<JobPtr> queue;  // jobs with bytes to post
    Status last_error;
  };
  struct Channel {
    uint32_t transport;
    size_t path;
    InstanceId instance;       // for which it was opened
    enum class State { kOpening, kUp, kClosing } state = State::kOpening;
    uint64_t in_flight = 0;
    std::unordered_map<uint64_t, JobSlicePtr> slices;
    double rate = 0;           // bytes per second while busy, smoothed; 0 = not yet known
    double recent_bytes = 0;   // what rate is made of: both fade with each slice
    double recent_busy = 0;    // ns
    Nanos last_done = 0;
    Nanos up_since = 0;
    bool void_instance = false;  // the process at its other end is known to be gone: nothing can be placed late
  };
  struct Victim {
    uint32_t transport;
    ChannelId via = 0;
    std::vector<JobPtr> jobs;
  };

  // session_jobs.cpp
  void finish_if_done(const JobPtr& job, Actions& actions);
  void settle(const JobPtr& job, Nanos now, Actions& actions);
  void stop_job(const JobPtr& job, Code code, const Status& why, Nanos now, Actions& actions);
  void stop_all(Code code, const Status& why, bool posted_only, Nanos now, Actions& actions);
  void fail_transfers(Job& job, const Range& range, const Status& why);
  void count_done(Job& job, const Range& range);
  void give_back(const JobSlicePtr& slice, Nanos now, Actions& actions);
  void handle_refusal(const JobSlicePtr& slice, const Status& why, Nanos now, Actions& actions);
  void handle_failure(ChannelId id, Channel& channel, const JobSlicePtr& slice, const Status& why, Nanos now, Actions& actions);
  void enqueue(const JobPtr& job, bool front);
  void dequeue(const JobPtr& job);
  void publish(Job& job);

  // session_paths.cpp
  void dispatch(Nanos now, Actions& actions);
  SliceLimits slice_limits(uint32_t t, const Job& job, const Channel& channel) const;
  void post_next(uint32_t transport, ChannelId id, Channel& channel, Nanos now, Actions& actions);
  Channel* pick(uint32_t transport, ChannelId& id);
  void open_paths(uint32_t transport, Nanos now, Actions& actions);
  void post_queue(uint32_t transport, Nanos now, Actions& actions);
  void pull_jobs(uint32_t transport);
  bool move_queue(uint32_t transport, Nanos now, Actions& actions);
  bool wants_channels(uint32_t transport) const;
  void cut(ChannelId id, Channel& channel, const Status& why, Actions& actions);
  bool alive(uint32_t transport) const;       // a channel is up or opening
  bool any_up() const;
  uint32_t up_channels(uint32_t transport) const;
  std::optional<uint32_t> next_level(const Job& job) const;
  void lose_channel(ChannelId id, Channel channel, const Status& why, Nanos now, Actions& actions);
  void assign_revocations(Actions& actions);
  void drop_victims(Actions& actions);
  void close_all(const Status& why, bool instance_gone, Actions& actions);
  void plan_paths();

  // session.cpp
  void fetch(Nanos now, Actions& actions);
  void check_contact(Nanos now, Actions& actions);
  void peer_failed(const Status& why, Nanos now, Actions& actions);
  void restarted(Nanos now, Actions& actions);

  // By the order of submission, so that equal schedules run equally.
  struct JobOrder {
    bool operator()(const JobPtr& a, const JobPtr& b) const { return a->number < b->number; }
    bool operator()(const std::pair<Nanos, JobPtr>& a, const std::pair<Nanos, JobPtr>& b) const {
      return a.first != b.first ? a.first < b.first : a.second->number < b.second->number;
    }
  };

  SessionOptions options_;
  std::vector<TransportState> transports_;
  State state_ = State::kIdle;
  bool fetching_ = false;
  bool answered_ = false;  // found alive while an older fetch was under way
  bool stopped_ = false;
  std::optional<PeerRecord> record_;
  Status last_error_;
  Nanos last_contact_ = 0;     // 0 = never
  Nanos last_wanted_ = 0;
  Nanos next_probe_ = kNever;
  Nanos next_check_ = kNever;  // when to ask the control plane again although it was silent
  uint64_t next_job_ = 1;
  uint64_t next_slice_ = 1;
  ChannelId next_channel_;
  std::unordered_map<ChannelId, Channel> channels_;
  std::map<ChannelId, Victim> victims_;
  std::set<JobPtr, JobOrder> jobs_;
  std::set<std::pair<Nanos, JobPtr>, JobOrder> timers_;  // deadline, stop_at and give_up_at of jobs
  uint64_t retries_ = 0, fallbacks_ = 0, backoffs_ = 0;
};

}  // namespace tidewire::engine
