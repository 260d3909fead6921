// SPDX-License-Identifier: Apache-2.0
//
// A Session with time and events by hand: what it asks for is sorted into lists that a test takes from.
#pragma once

#include <cerrno>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "engine/session.h"

namespace tidewire::engine {

inline InstanceId instance(uint8_t number) {
  InstanceId id{};
  id[0] = number;
  return id;
}

// A job of `count` transfers of `length` bytes each, `gap` bytes apart.
inline JobPtr make_job(uint64_t count, uint64_t length, Nanos submitted, Nanos deadline, uint64_t gap = 0,
                       transport::Opcode opcode = transport::Opcode::kWrite) {
  auto job = std::make_shared<Job>(opcode, count, submitted, deadline);
  for (uint64_t i = 0; i < count; ++i) {
    job->transfers[i].local = (1 << 20) + i * (length + gap);
    job->transfers[i].remote = (64 << 20) + i * (length + gap);
    job->transfers[i].length = length;
  }
  job->bytes = count * length;
  return job;
}

inline Status refused() { return errno_status(ECONNREFUSED, "connect to 10.0.0.2:7000"); }
inline Status no_route() { return Status(Code::kUnreachable, "connect to 10.0.0.2:7000: No route to host"); }
inline Status silent() { return Status(Code::kTimeout, "no answer"); }
inline Status reset() { return Status(Code::kPeerGone, "connection reset"); }

class Harness {
 public:
  // Transport 0 ("near") reaches records with a host_id and needs no revocation; transport 1 ("far") has one channel for each rail of the record.
  explicit Harness(uint32_t lanes = 1, SessionOptions options = {}) : session(with_name(options), traits(lanes), 1ull << 32) {}

  static SessionOptions with_name(SessionOptions options) {
    options.peer_name = "10.0.0.2:7000";
    return options;
  }

  static std::vector<TransportTraits> traits(uint32_t lanes) {
    TransportTraits near;
    near.name = "near";
    near.pairs = [](const PeerRecord& record) {
      return record.host_id.empty() ? std::vector<std::pair<uint32_t, uint32_t>>{} : std::vector<std::pair<uint32_t, uint32_t>>{{0, 0}};
    };
    TransportTraits far;
    far.name = "far";
    far.needs_revocation = true;
    far.lanes_per_pair = lanes;
    far.pairs = [](const PeerRecord& record) {
      std::vector<std::pair<uint32_t, uint32_t>> pairs;
      for (uint32_t rail = 0; rail < record.rails.size(); ++rail) pairs.emplace_back(rail, rail);
      return pairs;
    };
    return {near, far};
  }

  static PeerRecord record(uint8_t number, uint32_t rails, bool same_host = false) {
    PeerRecord record;
    record.instance = instance(number);
    record.rails.resize(rails);
    if (same_host) record.host_id = "this host";
    return record;
  }

  void sort() {
    for (Action& action : actions) {
      if (std::get_if<FetchRecord>(&action)) {
        ++fetches;
      } else if (auto* open = std::get_if<OpenChannel>(&action)) {
        opened.push_back(*open);
      } else if (auto* post = std::get_if<PostSlice>(&action)) {
        posts.push_back(*post);
      } else if (auto* close = std::get_if<CloseChannel>(&action)) {
        closed.push_back(*close);
      } else if (auto* revoke = std::get_if<RevokeChannel>(&action)) {
        revokes.push_back(*revoke);
      } else if (auto* finish = std::get_if<FinishJob>(&action)) {
        finished.push_back(finish->job);
      }
    }
    actions.clear();
  }

  void submit(const JobPtr& job) { session.submit(job, now, actions), sort(); }
  void cancel(const JobPtr& job) { session.cancel(job, now, actions), sort(); }
  void fetched(const Result<PeerRecord>& result) { session.record_fetched(result, now, actions), sort(); }
  void up(ChannelId channel) { session.channel_up(channel, now, actions), sort(); }
  void down(ChannelId channel, const Status& why = reset(), const InstanceId& seen = {}) {
    session.channel_down(channel, why, seen, now, actions), sort();
  }
  void done(const PostSlice& post, const Status& status = {}) {
    session.slice_done(post.channel, post.slice, status, now, actions), sort();
  }
  void revoked(ChannelId victim) { session.revoked(victim, now, actions), sort(); }
  void peer_closed(uint8_t number) { session.peer_closed(instance(number), now, actions), sort(); }
  void want_contact() { session.want_contact(now, actions), sort(); }
  void found_alive() { session.found_alive(now, actions), sort(); }
  void shut_down() { session.shut_down(Status(Code::kCanceled, "the engine closes"), now, actions), sort(); }
  void tick() { session.tick(now, actions), sort(); }
  void advance(Nanos by) { advance_to(now + by); }
  // Ticks whenever the session asks for it; a session that asks again for a time that it was just ticked at would spin.
  void advance_to(Nanos until) {
    int at_once = 0;
    for (Nanos next = session.next_tick(); next <= until; next = session.next_tick()) {
      at_once = next <= now ? at_once + 1 : 0;
      ASSERT_LT(at_once, 4) << "next_tick stays in the past: a busy loop";
      now = std::max(now, next);
      tick();
    }
    now = until;
  }
  void expect_no_spin() {
    tick();
    EXPECT_GT(session.next_tick(), now) << "next_tick is due again right after a tick";
  }

  PostSlice take_post() {
    if (posts.empty()) {
      ADD_FAILURE() << "nothing was posted";
      return {};
    }
    PostSlice post = posts.front();
    posts.pop_front();
    return post;
  }
  // Completes everything posted, and what is posted then.
  void complete_all() {
    while (!posts.empty()) done(take_post());
  }
  // Submits a job and brings it as far as having all channels up.
  JobPtr start(JobPtr job, uint32_t rails = 1, bool same_host = false, uint8_t number = 1) {
    submit(job);
    fetched(record(number, rails, same_host));
    for (const OpenChannel& open : std::vector<OpenChannel>(opened)) up(open.channel);
    return job;
  }
  bool is_finished(const JobPtr& job) const { return std::count(finished.begin(), finished.end(), job) == 1; }

  Nanos now = 100 * kSecond;
  Session session;
  Actions actions;
  int fetches = 0;
  std::vector<OpenChannel> opened;
  std::deque<PostSlice> posts;
  std::vector<CloseChannel> closed;
  std::vector<RevokeChannel> revokes;
  std::vector<JobPtr> finished;
};

inline int state_of(const JobPtr& job, uint64_t transfer) { return job->transfers[transfer].state.load(); }
inline Code code_of(const JobPtr& job, uint64_t transfer) { return static_cast<Code>(job->transfers[transfer].code.load()); }

}  // namespace tidewire::engine
