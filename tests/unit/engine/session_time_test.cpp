// SPDX-License-Identifier: Apache-2.0
//
// Deadlines, cancellation, revocation of lost channels, shutdown, and when a session wants to be ticked.
#include <gtest/gtest.h>

#include "session_harness.h"

namespace tidewire::engine {
namespace {

const char* const kLate = "late bytes";

TEST(SessionDeadline, EndsAJobThatWaitsForThePeer) {
  Harness h;
  const JobPtr job = make_job(1, 100, h.now, h.now + 300 * kMillisecond);
  h.submit(job);
  h.advance(299 * kMillisecond);
  EXPECT_FALSE(h.is_finished(job));
  h.advance(kMillisecond);
  ASSERT_TRUE(h.is_finished(job));
  EXPECT_EQ(state_of(job, 0), TW_STATE_TIMEOUT);
  EXPECT_EQ(job->error.code(), Code::kTimeout);
}

TEST(SessionDeadline, GivesPostedSlicesAGraceThenCutsRevokesAndEnds) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + kSecond), 2);
  const ChannelId carrier = h.take_post().channel;
  h.advance(kSecond);
  EXPECT_TRUE(h.closed.empty());
  EXPECT_FALSE(h.is_finished(job)) << "the slice may still touch memory";
  h.advance(100 * kMillisecond);
  ASSERT_EQ(h.closed.size(), 1u);
  EXPECT_EQ(h.closed[0].channel, carrier);
  h.down(carrier, h.closed[0].why);
  ASSERT_EQ(h.revokes.size(), 1u);
  EXPECT_EQ(h.revokes[0].victim, carrier);
  EXPECT_FALSE(h.is_finished(job));
  h.revoked(carrier);
  ASSERT_TRUE(h.is_finished(job));
  EXPECT_EQ(state_of(job, 0), TW_STATE_TIMEOUT);
  EXPECT_EQ(job->error.message().find(kLate), std::string::npos);
}

TEST(SessionDeadline, CountsASliceThatCompletesWithinTheGrace) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + kSecond));
  h.advance(kSecond + 50 * kMillisecond);
  h.complete_all();
  ASSERT_TRUE(h.is_finished(job));
  EXPECT_EQ(state_of(job, 0), TW_STATE_COMPLETED);
}

TEST(SessionDeadline, EndsWithoutConfirmationAfterTheTimeOfRevocationAndSaysSo) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + kSecond), 2);
  h.advance(kSecond + 100 * kMillisecond);
  h.down(h.closed.at(0).channel, h.closed[0].why);
  h.advance(299 * kMillisecond);
  EXPECT_FALSE(h.is_finished(job));
  h.advance(kMillisecond);
  ASSERT_TRUE(h.is_finished(job));
  EXPECT_NE(job->error.message().find(kLate), std::string::npos);
  EXPECT_EQ(h.session.next_tick(), kNever);
}

TEST(SessionDeadline, EndsAlsoWhenTheDriverReportsTheClosedChannelLate) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + kSecond), 2);
  h.advance(2 * kSecond);
  EXPECT_FALSE(h.is_finished(job)) << "the channel may still touch local memory";
  h.down(h.closed.at(0).channel, h.closed[0].why);
  ASSERT_TRUE(h.is_finished(job)) << "there is no time left to wait for a revocation";
  EXPECT_NE(job->error.message().find(kLate), std::string::npos);
}

TEST(SessionDeadline, OfAReadNeedsNoRevocation) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + kSecond, 0, transport::Opcode::kRead));
  h.advance(kSecond + 100 * kMillisecond);
  h.down(h.closed.at(0).channel, h.closed[0].why);
  ASSERT_TRUE(h.is_finished(job));
  EXPECT_EQ(job->error.message().find(kLate), std::string::npos);
}

TEST(SessionDeadline, DoesNotCallATransferCompletedWhoseOlderCopyCanNotBeRevoked) {
  Harness h;
  const JobPtr job = h.start(make_job(2, 100, h.now, h.now + kSecond, 8), 2);
  const PostSlice post = h.take_post();
  h.down(post.channel, silent());
  h.complete_all();
  EXPECT_NE(state_of(job, 0), TW_STATE_COMPLETED) << "its first copy may still be on the way";
  h.advance(kSecond + 400 * kMillisecond);
  ASSERT_TRUE(h.is_finished(job));
  EXPECT_EQ(state_of(job, 0), TW_STATE_TIMEOUT);
  EXPECT_NE(job->error.message().find(kLate), std::string::npos);
}

TEST(SessionDeadline, LeavesOtherJobsOnTheSameChannelUnharmed) {
  Harness h;
  const JobPtr slow = h.start(make_job(1, 100, h.now, h.now + kSecond), 2);
  const PostSlice first = h.take_post();
  JobPtr other;
  do {
    other = make_job(1, 100, h.now, h.now + 30 * kSecond);
    h.submit(other);
  } while (h.posts.back().channel != first.channel);
  h.advance(kSecond + 100 * kMillisecond);
  const ChannelId lost = first.channel;
  h.down(lost, h.closed.at(0).why);
  h.complete_all();
  h.revoked(lost);
  EXPECT_EQ(state_of(slow, 0), TW_STATE_TIMEOUT);
  EXPECT_EQ(state_of(other, 0), TW_STATE_COMPLETED);
}

TEST(SessionCancel, EndsAQueuedJobAtOnce) {
  Harness h;
  const JobPtr job = make_job(2, 100, h.now, h.now + kSecond);
  h.submit(job);
  h.cancel(job);
  ASSERT_TRUE(h.is_finished(job));
  EXPECT_EQ(state_of(job, 0), TW_STATE_CANCELED);
}

TEST(SessionCancel, KeepsWhatWasCompleted) {
  Harness h;
  const JobPtr job = make_job(2, 8 << 20, h.now, h.now + kSecond);
  h.start(job);
  for (int i = 0; i < 8; ++i) h.done(h.take_post());
  EXPECT_EQ(state_of(job, 0), TW_STATE_COMPLETED);
  h.cancel(job);
  while (!h.posts.empty()) h.done(h.take_post(), reset());
  ASSERT_TRUE(h.is_finished(job));
  EXPECT_EQ(state_of(job, 0), TW_STATE_COMPLETED);
  EXPECT_EQ(state_of(job, 1), TW_STATE_CANCELED);
}

TEST(SessionCancel, TwiceOrAfterTheEndDoesNothing) {
  Harness h;
  const JobPtr job = make_job(1, 100, h.now, h.now + kSecond);
  h.submit(job);
  h.cancel(job);
  h.cancel(job);
  EXPECT_EQ(h.finished.size(), 1u);
}

TEST(SessionCancel, PostsNothingMore) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100 << 20, h.now, h.now + kSecond));
  h.cancel(job);
  const size_t posted = h.posts.size();
  h.done(h.take_post());
  EXPECT_EQ(h.posts.size(), posted - 1);
}

TEST(SessionRevocation, IsAskedAgainOverAnotherChannelWhenTheFirstIsLost) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + 30 * kSecond), 3);
  const ChannelId victim = h.take_post().channel;
  h.down(victim);
  ASSERT_EQ(h.revokes.size(), 1u);
  h.down(h.revokes[0].via);
  ASSERT_GE(h.revokes.size(), 2u);
  EXPECT_EQ(h.revokes.back().victim, victim);
  EXPECT_NE(h.revokes.back().via, h.revokes.front().via);
}

TEST(SessionRevocation, GoesOverTheChannelThatWorkedLast) {
  Harness h;
  h.start(make_job(1, 24 << 20, h.now, h.now + 30 * kSecond), 3);
  const ChannelId victim = h.opened[0].channel;
  h.advance(10 * kMillisecond);
  for (const ChannelId channel : {h.opened[1].channel, h.opened[2].channel}) {
    const auto post = std::find_if(h.posts.begin(), h.posts.end(), [&](const PostSlice& p) { return p.channel == channel; });
    ASSERT_NE(post, h.posts.end());
    h.done(*post);
    h.advance(10 * kMillisecond);
  }
  h.down(victim);
  ASSERT_EQ(h.revokes.size(), 1u);
  EXPECT_EQ(h.revokes[0].via, h.opened[2].channel);
}

TEST(SessionRevocation, OpensAChannelWhenNoneIsLeft) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + kSecond));
  const ChannelId victim = h.take_post().channel;
  h.cancel(job);
  h.opened.clear();
  h.down(victim);
  h.advance(100 * kMillisecond);
  ASSERT_EQ(h.opened.size(), 1u) << "a canceled job has nothing to post, but something to revoke";
  h.up(h.opened[0].channel);
  ASSERT_EQ(h.revokes.size(), 1u);
  h.revoked(victim);
  EXPECT_TRUE(h.is_finished(job));
}

TEST(SessionRevocation, IsNotAwaitedWhenTheProcessAtTheOtherEndIsGone) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + 30 * kSecond));
  h.down(h.take_post().channel);
  ASSERT_EQ(h.opened.size(), 2u);
  h.down(h.opened[1].channel, refused());
  EXPECT_EQ(h.fetches, 2) << "without any channel left the control plane is asked";
  h.fetched(refused());
  ASSERT_TRUE(h.is_finished(job));
  EXPECT_EQ(job->error.message().find(kLate), std::string::npos);
}

TEST(SessionShutdown, EndsQueuedJobsAtOnceAndPostedOnesWithinTheTimeOfRevocation) {
  Harness h;
  const JobPtr posted = h.start(make_job(1, 100 << 20, h.now, h.now + 30 * kSecond));
  const JobPtr queued = make_job(1, 100, h.now, h.now + 30 * kSecond);
  h.submit(queued);
  h.shut_down();
  EXPECT_TRUE(h.is_finished(queued));
  h.advance(100 * kMillisecond);
  ASSERT_EQ(h.closed.size(), 1u);
  h.down(h.closed[0].channel, h.closed[0].why);
  h.expect_no_spin();
  h.advance(300 * kMillisecond);
  EXPECT_TRUE(h.is_finished(posted));
  EXPECT_EQ(h.session.next_tick(), kNever);
}

TEST(SessionShutdown, StillRevokesOverTheChannelsThatAreLeft) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + 30 * kSecond), 2);
  const ChannelId carrier = h.take_post().channel;
  h.shut_down();
  h.down(carrier);
  ASSERT_EQ(h.revokes.size(), 1u);
  h.revoked(carrier);
  EXPECT_TRUE(h.is_finished(job));
}

TEST(SessionShutdown, RefusesNewJobsAndFetchesNothingMore) {
  Harness h;
  h.submit(make_job(1, 100, h.now, h.now + 30 * kSecond));
  h.fetched(silent());
  h.shut_down();
  const int fetches = h.fetches;
  const JobPtr job = make_job(1, 100, h.now, h.now + kSecond);
  h.submit(job);
  ASSERT_TRUE(h.is_finished(job));
  EXPECT_EQ(code_of(job, 0), Code::kClosed);
  h.advance(10 * kSecond);
  EXPECT_EQ(h.fetches, fetches);
}

TEST(SessionTick, IsNotDueWhileTheRecordIsAwaited) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + 30 * kSecond));
  h.peer_closed(1);
  h.down(h.take_post().channel);
  h.expect_no_spin();
}

TEST(SessionTick, IsNotDueForPathsThatNobodyNeeds) {
  Harness h;
  const JobPtr job = make_job(1, 100, h.now, h.now + 30 * kSecond);
  h.submit(job);
  h.fetched(Harness::record(1, 2, /*same_host=*/true));
  h.down(h.opened[0].channel, Status(Code::kUnsupported, "no shared memory"));
  h.up(h.opened[1].channel);
  h.up(h.opened[2].channel);
  const ChannelId carrier = h.take_post().channel;
  h.down(carrier);
  h.complete_all();
  h.advance(20 * kSecond);
  h.expect_no_spin();
}

TEST(SessionTick, IsNotDueInBackoffForJobsThatAwaitTheirRevocation) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + 30 * kSecond));
  const ChannelId carrier = h.take_post().channel;
  h.down(carrier);
  for (size_t i = 0; i < h.opened.size(); ++i) h.down(h.opened[i].channel, Status(Code::kProtocol, "garbage"));
  EXPECT_EQ(h.session.state(), Session::State::kBackoff);
  h.expect_no_spin();
  h.advance(400 * kMillisecond);
  EXPECT_TRUE(h.is_finished(job));
}

}  // namespace
}  // namespace tidewire::engine
