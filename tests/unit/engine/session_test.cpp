// SPDX-License-Identifier: Apache-2.0
//
// How a session posts slices, spreads them over channels, retries them, and reports each transfer.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "session_harness.h"

namespace tidewire::engine {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TEST(SessionPosts, FetchesTheRecordOnceForAllJobsThatWait) {
  Harness h;
  for (int i = 0; i < 5; ++i) h.submit(make_job(1, 100, h.now, h.now + kSecond));
  EXPECT_EQ(h.fetches, 1);
  EXPECT_TRUE(h.posts.empty());
}

TEST(SessionPosts, OpensEachLaneOfEachPairOfRails) {
  Harness h(/*lanes=*/2);
  h.submit(make_job(1, 100, h.now, h.now + kSecond));
  h.fetched(Harness::record(1, 3));
  EXPECT_EQ(h.opened.size(), 6u);
  std::set<ChannelId> ids;
  for (const OpenChannel& open : h.opened) {
    ids.insert(open.channel);
    EXPECT_EQ(open.record.instance, instance(1));
    EXPECT_EQ(open.deadline, h.now + kSecond);
  }
  EXPECT_EQ(ids.size(), 6u);
}

TEST(SessionPosts, PrefersTheNearTransport) {
  Harness h;
  h.start(make_job(1, 100, h.now, h.now + kSecond), 2, /*same_host=*/true);
  ASSERT_EQ(h.opened.size(), 1u);
  EXPECT_EQ(h.opened[0].transport, 0u);
  EXPECT_EQ(h.take_post().transport, 0u);
}

TEST(SessionPosts, PostsNothingOnChannelsThatAreNotUp) {
  Harness h;
  h.submit(make_job(1, 100, h.now, h.now + kSecond));
  h.fetched(Harness::record(1, 2));
  EXPECT_TRUE(h.posts.empty());
  h.up(h.opened[1].channel);
  EXPECT_EQ(h.take_post().channel, h.opened[1].channel);
}

TEST(SessionPosts, MergesManySmallTransfersIntoOneSlice) {
  Harness h;
  const JobPtr job = h.start(make_job(1000, 256, h.now, h.now + kSecond, /*gap=*/64));
  ASSERT_EQ(h.posts.size(), 1u);
  EXPECT_EQ(h.posts[0].slice->pieces.size(), 1000u);
  h.complete_all();
  EXPECT_TRUE(h.is_finished(job));
  for (uint64_t i = 0; i < 1000; ++i) EXPECT_EQ(state_of(job, i), TW_STATE_COMPLETED);
}

TEST(SessionPosts, BindsSlicesLate) {
  Harness h;
  h.start(make_job(1, 64 * kMiB, h.now, h.now + kSecond), 2);
  uint64_t posted = 0;
  for (const PostSlice& post : h.posts) posted += post.slice->bytes;
  EXPECT_LE(posted, 2 * (8 * kMiB + kMiB)) << "only a window for each channel is bound";
  const size_t before = h.posts.size();
  const PostSlice first = h.posts.front();
  h.done(first);
  EXPECT_EQ(h.posts.size(), before + 1) << "one done, one more";
  EXPECT_EQ(h.posts.back().channel, first.channel);
}

TEST(SessionPosts, GivesAFasterChannelMore) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 256 * kMiB, h.now, h.now + 100 * kSecond), 2);
  // Rail 0 takes 1 ms a slice, rail 1 takes 4 ms; each serves its slices in turn.
  std::map<ChannelId, std::pair<Nanos, std::deque<PostSlice>>> lanes;
  std::map<ChannelId, uint64_t> bytes;
  lanes[h.opened[0].channel].first = kMillisecond;
  lanes[h.opened[1].channel].first = 4 * kMillisecond;
  std::map<ChannelId, Nanos> free_at;
  auto collect = [&] {
    while (!h.posts.empty()) {
      const PostSlice post = h.take_post();
      lanes[post.channel].second.push_back(post);
    }
  };
  for (auto& [id, lane] : lanes) free_at[id] = h.now + lane.first;
  for (collect(); !h.is_finished(job); collect()) {
    ChannelId next = 0;
    for (auto& [id, lane] : lanes)
      if (!lane.second.empty() && (next == 0 || free_at[id] < free_at[next])) next = id;
    ASSERT_NE(next, 0u);
    h.now = std::max(h.now, free_at[next]);
    const PostSlice post = lanes[next].second.front();
    lanes[next].second.pop_front();
    bytes[next] += post.slice->bytes;
    free_at[next] = h.now + lanes[next].first;
    h.done(post);
  }
  EXPECT_GT(bytes[h.opened[0].channel], 3 * bytes[h.opened[1].channel]);
}

TEST(SessionPosts, LetsJobsTakeTurns) {
  Harness h;
  h.start(make_job(1, 256 * kMiB, h.now, h.now + 10 * kSecond));
  const JobPtr small = make_job(1, 100, h.now, h.now + kSecond);
  h.submit(small);
  EXPECT_FALSE(std::any_of(h.posts.begin(), h.posts.end(), [&](const PostSlice& post) { return post.slice->job == small; }));
  for (int i = 0; i < 2; ++i) h.done(h.take_post());
  EXPECT_TRUE(std::any_of(h.posts.begin(), h.posts.end(), [&](const PostSlice& post) { return post.slice->job == small; }))
      << "the small job need not wait for the large one";
}

TEST(SessionPosts, SharesAPeerEvenlyBetweenTwoLargeJobs) {
  Harness h;
  const JobPtr one = h.start(make_job(1, 128 * kMiB, h.now, h.now + 10 * kSecond));
  const JobPtr two = make_job(1, 128 * kMiB, h.now, h.now + 10 * kSecond);
  h.submit(two);
  for (int i = 0; i < 60; ++i) h.done(h.take_post());
  EXPECT_GE(two->transfers[0].done.load(), one->transfers[0].done.load() / 2);
}

TEST(SessionPosts, FinishesEmptyJobsAtOnceAndCountsEmptyTransfersAsCompleted) {
  Harness h;
  const JobPtr none = make_job(0, 0, h.now, h.now + kSecond);
  h.submit(none);
  EXPECT_TRUE(h.is_finished(none));
  const JobPtr zeros = make_job(3, 0, h.now, h.now + kSecond);
  h.submit(zeros);
  EXPECT_TRUE(h.is_finished(zeros));
  EXPECT_EQ(state_of(zeros, 1), TW_STATE_COMPLETED);
  EXPECT_EQ(h.fetches, 0);
}

TEST(SessionPosts, SkipsTransfersThatTheEngineRefusedBeforehand) {
  Harness h;
  const JobPtr job = make_job(3, 100, h.now, h.now + kSecond);
  job->transfers[1].code = TW_INVALID_ARGUMENT;
  h.start(job);
  EXPECT_EQ(h.posts.at(0).slice->bytes, 200u);
  h.complete_all();
  EXPECT_TRUE(h.is_finished(job));
  EXPECT_EQ(state_of(job, 0), TW_STATE_COMPLETED);
  EXPECT_EQ(state_of(job, 1), TW_STATE_INVALID);
}

TEST(SessionPosts, TellsWhenNoTransportReachesThePeer) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + kSecond), /*rails=*/0);
  ASSERT_TRUE(h.is_finished(job));
  EXPECT_EQ(code_of(job, 0), Code::kUnreachable);
  EXPECT_NE(job->error.message().find("no transport"), std::string::npos);
}

TEST(SessionRefusals, AreNarrowedDownToTheTransfersToBlame) {
  Harness h;
  const JobPtr job = h.start(make_job(100, 1000, h.now, h.now + kSecond, /*gap=*/8));
  const std::map<uint64_t, Code> bad{{7, Code::kNotRegistered}, {63, Code::kPermissionDenied}, {64, Code::kNotRegistered}};
  int rounds = 0;
  while (!h.posts.empty()) {
    ASSERT_LT(++rounds, 200);
    const PostSlice post = h.take_post();
    Status status;
    for (const auto& [index, code] : bad)
      for (const transport::Piece& piece : post.slice->pieces)
        if (piece.local <= job->transfers[index].local && job->transfers[index].local < piece.local + piece.length && status.ok())
          status = Status(code, "refused");
    h.done(post, status);
  }
  ASSERT_TRUE(h.is_finished(job));
  for (uint64_t i = 0; i < 100; ++i) {
    const auto found = bad.find(i);
    EXPECT_EQ(code_of(job, i), found == bad.end() ? Code::kOk : found->second) << i;
    EXPECT_EQ(state_of(job, i), found == bad.end() ? TW_STATE_COMPLETED : TW_STATE_FAILED) << i;
  }
}

TEST(SessionRefusals, OfAllTransfersFailThemAllAndLeaveThePeerUsable) {
  Harness h;
  const JobPtr job = h.start(make_job(10, 1000, h.now, h.now + kSecond, 8));
  while (!h.posts.empty()) h.done(h.take_post(), Status(Code::kNotRegistered, "not registered"));
  ASSERT_TRUE(h.is_finished(job));
  EXPECT_EQ(job->error.code(), Code::kNotRegistered);
  const JobPtr next = make_job(1, 100, h.now, h.now + kSecond);
  h.submit(next);
  h.complete_all();
  EXPECT_EQ(state_of(next, 0), TW_STATE_COMPLETED);
}

TEST(SessionRetries, GoToAnotherChannel) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + kSecond), 2);
  const PostSlice post = h.take_post();
  h.down(post.channel);
  const PostSlice again = h.take_post();
  EXPECT_NE(again.channel, post.channel);
  EXPECT_NE(again.slice->id, post.slice->id);
  EXPECT_EQ(again.slice->bytes, 100u);
  EXPECT_EQ(h.session.retries(), 1u);
  h.done(again);
  ASSERT_EQ(h.revokes.size(), 1u);
  EXPECT_FALSE(h.is_finished(job)) << "the lost channel may still place bytes";
  h.revoked(post.channel);
  EXPECT_TRUE(h.is_finished(job));
  EXPECT_EQ(state_of(job, 0), TW_STATE_COMPLETED);
}

TEST(SessionRetries, IgnoreWhatALostChannelReportsLater) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + kSecond), 2);
  const PostSlice post = h.take_post();
  h.down(post.channel);
  h.done(post);
  EXPECT_EQ(job->transfers[0].done.load(), 0u);
  EXPECT_FALSE(h.is_finished(job));
}

TEST(SessionRetries, ReopenTheOnlyChannelAtOnceWhenItWorkedBefore) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + kSecond));
  h.done(h.take_post());
  const JobPtr next = make_job(1, 100, h.now, h.now + kSecond);
  h.submit(next);
  h.opened.clear();
  const PostSlice post = h.take_post();
  h.down(post.channel);
  ASSERT_EQ(h.opened.size(), 1u);
  h.up(h.opened[0].channel);
  h.complete_all();
  ASSERT_EQ(h.revokes.size(), 1u);
  EXPECT_EQ(h.revokes[0].victim, post.channel);
  h.revoked(post.channel);
  EXPECT_TRUE(h.is_finished(next));
}

TEST(SessionRetries, SlowDownWhenAChannelNeverCarriesAnything) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + 10 * kSecond));
  // The peer accepts and then resets, again and again.
  for (Nanos end = h.now + 9 * kSecond; h.now < end; h.advance(kMillisecond)) {
    while (!h.posts.empty()) {
      const PostSlice post = h.take_post();
      h.down(post.channel);
    }
    if (h.opened.back().channel != 0) {
      const ChannelId id = h.opened.back().channel;
      h.opened.back().channel = 0;
      h.up(id);
    }
  }
  EXPECT_FALSE(h.is_finished(job));
  EXPECT_LT(h.opened.size(), 30u) << "no storm of connections";
  EXPECT_GE(h.opened.size(), 5u);
}

TEST(SessionRetries, DoNotSpinOnAChannelThatSaysItIsNotUp) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + kSecond), 2);
  const PostSlice post = h.take_post();
  h.done(post, Status(Code::kUnreachable, "channel is not up"));
  ASSERT_EQ(h.posts.size(), 1u);
  EXPECT_NE(h.posts.front().channel, post.channel) << "its channel_down is under way: it must not be picked again";
}

TEST(SessionRetries, CutAChannelThatFailsTheSameBytesTwice) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + kSecond), 2);
  const Status fault(Code::kInternal, "a fault of the channel");
  const PostSlice first = h.take_post();
  h.done(first, fault);
  const PostSlice second = h.take_post();
  EXPECT_TRUE(h.closed.empty()) << "once may be chance";
  h.done(second, fault);
  ASSERT_EQ(h.closed.size(), 1u);
  EXPECT_EQ(h.closed[0].channel, second.channel);
  const PostSlice third = h.take_post();
  EXPECT_NE(third.channel, second.channel);
  h.done(third);
  EXPECT_TRUE(h.is_finished(job));
}

TEST(SessionRetries, GiveUpBytesThatFailEverywhere) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + 60 * kSecond), 2);
  for (int i = 0; i < 40 && !h.is_finished(job); ++i) {
    while (!h.posts.empty()) h.done(h.take_post(), Status(Code::kInternal, "a fault of the bytes"));
    for (const CloseChannel& close : std::exchange(h.closed, {})) h.down(close.channel, close.why);
    h.advance(kSecond);
    for (const OpenChannel& open : std::exchange(h.opened, {})) h.up(open.channel);
  }
  ASSERT_TRUE(h.is_finished(job));
  EXPECT_EQ(code_of(job, 0), Code::kInternal);
}

TEST(SessionRetries, ReopenAChannelThatWasClosedIdleWithoutDelay) {
  Harness h;
  h.start(make_job(1, 100, h.now, h.now + kSecond));
  h.complete_all();
  for (int i = 0; i < 3; ++i) {
    const ChannelId idle = h.opened.back().channel;
    h.down(idle, Status(Code::kClosed, "idle"));
    const JobPtr job = make_job(1, 100, h.now, h.now + kSecond);
    h.submit(job);
    ASSERT_NE(h.opened.back().channel, idle);
    h.up(h.opened.back().channel);
    h.complete_all();
    EXPECT_TRUE(h.is_finished(job));
  }
}

TEST(SessionFallback, MovesToTheNextTransportWhenTheFirstDoesNotConnect) {
  Harness h;
  const JobPtr job = make_job(1, 100, h.now, h.now + kSecond);
  h.submit(job);
  h.fetched(Harness::record(1, 1, /*same_host=*/true));
  ASSERT_EQ(h.opened.size(), 1u);
  h.down(h.opened[0].channel, Status(Code::kUnsupported, "no shared memory"));
  ASSERT_EQ(h.opened.size(), 2u);
  EXPECT_EQ(h.opened[1].transport, 1u);
  h.up(h.opened[1].channel);
  h.complete_all();
  EXPECT_TRUE(h.is_finished(job));
  EXPECT_EQ(h.session.fallbacks(), 1u);
}

TEST(SessionFallback, MovesToTheNextTransportWhatTheFirstCanNotCarry) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 4 * kMiB, h.now, h.now + kSecond), 1, /*same_host=*/true);
  ASSERT_EQ(h.posts.size(), 4u) << "several slices are posted";
  for (int i = 0; i < 4; ++i) h.done(h.take_post(), Status(Code::kUnsupported, "this memory can't be mapped"));
  EXPECT_EQ(code_of(job, 0), Code::kOk) << "each of them goes to the next transport";
  ASSERT_EQ(h.opened.size(), 2u);
  h.up(h.opened[1].channel);
  h.complete_all();
  ASSERT_TRUE(h.is_finished(job));
  EXPECT_EQ(state_of(job, 0), TW_STATE_COMPLETED);
}

TEST(SessionFallback, FailsWhatNoTransportCanCarry) {
  Harness h;
  const JobPtr job = h.start(make_job(2, 100, h.now, h.now + kSecond, 8));
  while (!h.posts.empty()) h.done(h.take_post(), Status(Code::kUnsupported, "no"));
  ASSERT_TRUE(h.is_finished(job));
  EXPECT_EQ(code_of(job, 0), Code::kUnsupported);
}

TEST(SessionFallback, GoesBackToTheFirstTransportWhenTheNextIsLost) {
  Harness h;
  const JobPtr job = make_job(1, 100, h.now, h.now + 10 * kSecond);
  h.submit(job);
  h.fetched(Harness::record(1, 1, /*same_host=*/true));
  h.down(h.opened[0].channel, Status(Code::kUnreachable, "socket is gone"));
  ASSERT_EQ(h.opened.size(), 2u);
  h.down(h.opened[1].channel, silent());
  h.advance(2 * kSecond);
  bool near = false;
  for (size_t i = 2; i < h.opened.size(); ++i) near |= h.opened[i].transport == 0;
  ASSERT_TRUE(near) << "a path that came back is used, whatever its transport";
  for (size_t i = 2; i < h.opened.size(); ++i)
    if (h.opened[i].transport == 0) h.up(h.opened[i].channel);
  ASSERT_FALSE(h.posts.empty());
  h.complete_all();
  EXPECT_TRUE(h.is_finished(job));
}

TEST(SessionEnd, LeavesNothingBehind) {
  Harness h;
  std::vector<std::weak_ptr<Job>> jobs;
  for (int i = 0; i < 20; ++i) {
    const JobPtr job = make_job(5, 1000, h.now, h.now + kSecond, 8);
    jobs.push_back(job);
    if (i == 0) h.start(job, 2); else h.submit(job);
    if (i % 3 == 0) h.cancel(job);
    if (i % 3 == 1) h.down(h.posts.back().channel);
    for (const OpenChannel& open : std::vector<OpenChannel>(h.opened)) h.up(open.channel);
    h.complete_all();
    for (const RevokeChannel& revoke : std::vector<RevokeChannel>(h.revokes)) h.revoked(revoke.victim);
    h.advance(10 * kMillisecond);
  }
  h.complete_all();
  EXPECT_EQ(h.session.jobs(), 0u);
  EXPECT_EQ(h.session.next_tick(), kNever);
  h.finished.clear();
  for (const auto& job : jobs) EXPECT_TRUE(job.expired()) << "no queue, timer, victim or channel holds a finished job";
}

}  // namespace
}  // namespace tidewire::engine
