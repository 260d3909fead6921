// SPDX-License-Identifier: Apache-2.0
//
// Contact with a peer: silent and refusing peers, back-off and probes, restarts.
#include <gtest/gtest.h>

#include "session_harness.h"

namespace tidewire::engine {
namespace {

using State = Session::State;

TEST(SessionContact, ARefusedPeerFailsItsJobsAtOnce) {
  Harness h;
  const JobPtr job = make_job(2, 100, h.now, h.now + 30 * kSecond);
  h.submit(job);
  h.fetched(refused());
  ASSERT_TRUE(h.is_finished(job));
  EXPECT_EQ(code_of(job, 0), Code::kUnreachable);
  EXPECT_EQ(state_of(job, 1), TW_STATE_FAILED);
  EXPECT_EQ(h.session.state(), State::kBackoff);
}

TEST(SessionContact, ASilentPeerNeverSeenFailsWhenTheFetchDoes) {
  Harness h;
  const JobPtr job = make_job(1, 100, h.now, h.now + 30 * kSecond);
  h.submit(job);
  h.advance(kSecond);
  h.fetched(silent());
  ASSERT_TRUE(h.is_finished(job));
  EXPECT_EQ(code_of(job, 0), Code::kUnreachable);
}

// Answers each fetch with silence, a connect timeout later, and each attempt to connect after the first channel too.
struct BlackHole {
  Harness& h;
  Nanos fetch_fails = kNever, open_fails = kNever;
  int fetches = 1;
  size_t opened = 1;

  void run(Nanos until) {
    while (h.now < until) {
      h.advance(10 * kMillisecond);
      if (h.fetches > fetches && fetch_fails == kNever) fetch_fails = h.now + kSecond;
      if (h.opened.size() > opened && open_fails == kNever) open_fails = h.now + kSecond;
      if (h.now >= fetch_fails) {
        fetch_fails = kNever;
        fetches = h.fetches;
        h.fetched(silent());
      }
      if (h.now >= open_fails) {
        open_fails = kNever;
        const size_t end = h.opened.size();
        for (; opened < end; ++opened) h.down(h.opened[opened].channel, silent());
      }
      for (size_t i = 0; i < h.closed.size(); ++i) h.down(h.closed[i].channel, h.closed[i].why);
      h.closed.clear();
    }
  }
};

TEST(SessionContact, ASilentPeerOnceInContactIsGivenFiveConnectTimeouts) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + 30 * kSecond));
  const Nanos contact = h.now;
  h.down(h.take_post().channel, silent());
  BlackHole hole{h};
  hole.run(contact + 3 * kSecond);
  EXPECT_FALSE(h.is_finished(job)) << "a short silence is survived";
  hole.run(contact + 5 * kSecond);
  EXPECT_TRUE(h.is_finished(job));
  EXPECT_EQ(code_of(job, 0), Code::kUnreachable);
}

TEST(SessionContact, AShortSilenceIsSurvived) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + 30 * kSecond));
  const ChannelId lost = h.take_post().channel;
  h.down(lost, silent());
  BlackHole{h}.run(h.now + 3 * kSecond);
  for (Nanos end = h.now + 6 * kSecond; h.now < end && !h.is_finished(job); h.advance(10 * kMillisecond)) {
    if (h.fetches > 0) h.fetched(Harness::record(1, 1));
    for (size_t i = 0; i < h.opened.size(); ++i) h.up(h.opened[i].channel);
    h.complete_all();
    if (!h.revokes.empty()) h.revoked(lost);
  }
  EXPECT_EQ(state_of(job, 0), TW_STATE_COMPLETED);
}

TEST(SessionContact, ABrokenControlConnectionAloneFailsNothing) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + 30 * kSecond));
  h.peer_closed(1);
  ASSERT_EQ(h.fetches, 2);
  h.fetched(reset());
  EXPECT_EQ(h.session.state(), State::kReady) << "the fetch met the same fault";
  EXPECT_TRUE(h.closed.empty());
  h.complete_all();
  EXPECT_EQ(state_of(job, 0), TW_STATE_COMPLETED);
}

// Found by the simulator (seed 712): nobody asked any more, and new jobs waited for an answer to no question.
TEST(SessionContact, AJobAfterAnotherThatEndedInTheSilenceAsksAgain) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + 30 * kSecond));
  h.complete_all();
  h.peer_closed(1);
  const JobPtr next = make_job(1, 100, h.now, h.now + 100 * kMillisecond);
  h.submit(next);
  h.fetched(no_route());
  h.advance(kSecond);
  ASSERT_TRUE(h.is_finished(next));
  const int fetches = h.fetches;
  const JobPtr last = make_job(1, 100, h.now, h.now + 30 * kSecond);
  h.submit(last);
  EXPECT_EQ(h.fetches, fetches + 1);
  h.fetched(Harness::record(1, 1));
  h.complete_all();
  EXPECT_EQ(state_of(last, 0), TW_STATE_COMPLETED);
}

// Found by the simulator (seed 1283): a channel that is up, but dead at its other end, kept the session from asking again.
TEST(SessionContact, AChannelThatOnlySeemsUpDoesNotEndTheAsking) {
  Harness h;
  h.start(make_job(1, 100, h.now, h.now + 30 * kSecond));
  h.complete_all();
  h.peer_closed(1);
  const JobPtr job = make_job(1, 100, h.now, h.now + 30 * kSecond);
  h.submit(job);
  EXPECT_EQ(h.fetches, 2);
  h.advance(kSecond);
  h.fetched(silent());
  EXPECT_FALSE(h.is_finished(job));
  h.advance(kSecond);
  EXPECT_EQ(h.fetches, 3);
  for (int i = 0; i < 5 && !h.is_finished(job); ++i) {
    h.advance(kSecond);
    h.fetched(silent());
  }
  EXPECT_TRUE(h.is_finished(job)) << "silence for five connect timeouts is enough";
}

TEST(SessionContact, AFaultThatNobodyWaitedForStartsNoBackoff) {
  Harness h;
  h.start(make_job(1, 100, h.now, h.now + 30 * kSecond));
  h.peer_closed(1);
  h.complete_all();
  ASSERT_EQ(h.session.jobs(), 0u);
  h.fetched(reset());
  EXPECT_EQ(h.session.state(), State::kIdle);
}

TEST(SessionContact, AMissingRouteIsSilenceForAPeerThatWasInContact) {
  Harness h;
  const JobPtr job = h.start(make_job(1, 100, h.now, h.now + 30 * kSecond));
  h.down(h.take_post().channel, silent());
  h.down(h.opened.back().channel, no_route());
  ASSERT_EQ(h.fetches, 2);
  h.fetched(no_route());
  EXPECT_FALSE(h.is_finished(job)) << "the process may live, and its buffers may hold bytes";
  h.advance(kSecond);
  EXPECT_EQ(h.fetches, 3);
}

TEST(SessionContact, AMissingRouteFailsThePeerNeverSeenAtOnce) {
  Harness h;
  const JobPtr job = make_job(1, 100, h.now, h.now + 30 * kSecond);
  h.submit(job);
  h.fetched(no_route());
  EXPECT_TRUE(h.is_finished(job));
}

TEST(SessionContact, APeerThatSpeaksAnotherProtocolFailsAtOnce) {
  for (Code code : {Code::kProtocol, Code::kUnauthenticated}) {
    Harness h;
    const JobPtr job = make_job(1, 100, h.now, h.now + kSecond);
    h.submit(job);
    h.fetched(Status(code, "no"));
    ASSERT_TRUE(h.is_finished(job));
    EXPECT_EQ(code_of(job, 0), code);
  }
}

TEST(SessionBackoff, FailsNewJobsAtOnceWhileProbesGoOn) {
  Harness h;
  h.submit(make_job(1, 100, h.now, h.now + 30 * kSecond));
  h.fetched(silent());
  const JobPtr job = make_job(1, 100, h.now, h.now + 30 * kSecond);
  h.submit(job);
  ASSERT_TRUE(h.is_finished(job));
  EXPECT_EQ(code_of(job, 0), Code::kUnreachable);
  EXPECT_NE(job->error.message().find("back-off"), std::string::npos);
  h.advance(499 * kMillisecond);
  EXPECT_EQ(h.fetches, 1);
  h.advance(kMillisecond);
  EXPECT_EQ(h.fetches, 2) << "a probe each half second";
  h.fetched(refused());
  h.advance(500 * kMillisecond);
  EXPECT_EQ(h.fetches, 3);
}

TEST(SessionBackoff, EndsWithTheFirstProbeThatIsAnswered) {
  Harness h;
  h.submit(make_job(1, 100, h.now, h.now + 30 * kSecond));
  h.fetched(refused());
  h.advance(500 * kMillisecond);
  h.fetched(Harness::record(1, 1));
  EXPECT_EQ(h.session.state(), State::kReady);
  const JobPtr job = make_job(1, 100, h.now, h.now + kSecond);
  h.submit(job);
  for (const OpenChannel& open : std::vector<OpenChannel>(h.opened)) h.up(open.channel);
  h.complete_all();
  EXPECT_EQ(state_of(job, 0), TW_STATE_COMPLETED);
}

TEST(SessionBackoff, ProbingEndsAMinuteAfterTheLastRequestAndTheNextOneTriesAnew) {
  Harness h;
  h.submit(make_job(1, 100, h.now, h.now + 30 * kSecond));
  h.fetched(refused());
  const Nanos end = h.now + 120 * kSecond;
  int seen = h.fetches;
  while (h.now < end) {
    h.advance(100 * kMillisecond);
    if (h.fetches > seen) h.fetched(refused());
    seen = h.fetches;
  }
  EXPECT_EQ(h.session.next_tick(), kNever);
  EXPECT_LE(h.fetches, 122);
  const JobPtr job = make_job(1, 100, h.now, h.now + kSecond);
  h.submit(job);
  EXPECT_FALSE(h.is_finished(job)) << "nobody knows that the peer is still gone";
  EXPECT_EQ(h.fetches, seen + 1);
}

TEST(SessionBackoff, ProbesAlsoWhenOnlyALongJobWantedThePeer) {
  Harness h;
  h.start(make_job(1, 100, h.now, h.now + 300 * kSecond));
  h.advance(100 * kSecond);
  h.down(h.take_post().channel);
  h.peer_closed(1);
  h.fetched(refused());
  EXPECT_EQ(h.session.state(), State::kBackoff);
  EXPECT_NE(h.session.next_tick(), kNever) << "back-off without probes would never end";
}

TEST(SessionBackoff, AskingForContactProbesAtOnce) {
  Harness h;
  h.want_contact();
  EXPECT_EQ(h.fetches, 1);
  h.fetched(refused());
  h.want_contact();
  EXPECT_EQ(h.fetches, 2);
  h.fetched(Harness::record(1, 1));
  EXPECT_EQ(h.session.state(), State::kReady);
}

TEST(SessionBackoff, EndsAtOnceWhenTheOwnerFoundThePeerAlive) {
  Harness h;
  h.want_contact();
  h.fetched(refused());
  h.found_alive();
  const JobPtr job = make_job(1, 100, h.now, h.now + kSecond);
  h.submit(job);
  EXPECT_FALSE(h.is_finished(job)) << "it waits for the record";
  EXPECT_EQ(h.fetches, 2);
  h.fetched(refused());
  EXPECT_EQ(code_of(job, 0), Code::kUnreachable);
}

TEST(SessionBackoff, AFetchFromBeforeThePeerWasFoundAliveDoesNotCount) {
  Harness h;
  h.want_contact();
  h.fetched(refused());
  h.want_contact();
  h.found_alive();
  const JobPtr job = make_job(1, 100, h.now, h.now + kSecond);
  h.submit(job);
  h.fetched(refused());
  EXPECT_FALSE(h.is_finished(job));
  EXPECT_EQ(h.fetches, 3);
  h.fetched(Harness::record(1, 1));
  EXPECT_EQ(h.session.state(), State::kReady);
}

TEST(SessionRestart, FailsPostedJobsAndKeepsUnpostedOnesForTheNewInstance) {
  Harness h;
  SessionOptions options;
  const JobPtr posted = h.start(make_job(1, 100 << 20, h.now, h.now + 30 * kSecond));
  const JobPtr queued = make_job(1, 100, h.now, h.now + 30 * kSecond);
  ASSERT_TRUE(posted->posted);
  h.down(h.opened[0].channel);
  h.peer_closed(1);
  h.submit(queued);
  EXPECT_FALSE(queued->posted) << "nothing is posted while the record is in doubt";
  h.opened.clear();
  h.fetched(Harness::record(2, 1));
  ASSERT_TRUE(h.is_finished(posted));
  EXPECT_EQ(code_of(posted, 0), Code::kPeerGone);
  ASSERT_EQ(h.opened.size(), 1u);
  EXPECT_EQ(h.opened[0].record.instance, instance(2));
  h.posts.clear();
  h.up(h.opened[0].channel);
  EXPECT_EQ(h.take_post().slice->job, queued);
  EXPECT_TRUE(h.revokes.empty()) << "the old process is gone: nothing to revoke";
}

TEST(SessionRestart, IsRecognisedByTheInstanceThatAnswersAChannel) {
  Harness h;
  const JobPtr job = make_job(1, 100, h.now, h.now + 30 * kSecond);
  h.submit(job);
  h.fetched(Harness::record(1, 1));
  h.down(h.opened[0].channel, Status(Code::kPeerGone, "another instance"), instance(2));
  EXPECT_EQ(h.fetches, 2);
  EXPECT_FALSE(h.is_finished(job)) << "it was not posted yet";
  h.fetched(Harness::record(2, 1));
  h.up(h.opened.back().channel);
  h.complete_all();
  EXPECT_EQ(state_of(job, 0), TW_STATE_COMPLETED);
}

TEST(SessionRestart, IsNotSeenAgainInALateReportOfAnEarlierOne) {
  Harness h;
  h.submit(make_job(1, 100, h.now, h.now + 30 * kSecond));
  h.fetched(Harness::record(1, 2));
  const ChannelId first = h.opened[0].channel, second = h.opened[1].channel;
  h.down(first, Status(Code::kPeerGone, "another instance"), instance(2));
  h.fetched(Harness::record(3, 2));
  h.up(h.opened.back().channel);
  const JobPtr job = h.posts.at(0).slice->job;
  const int fetches = h.fetches;
  h.down(second, Status(Code::kPeerGone, "another instance"), instance(2));
  EXPECT_FALSE(h.is_finished(job)) << "the channel was opened for the record before";
  EXPECT_EQ(h.fetches, fetches);
  h.complete_all();
  EXPECT_EQ(state_of(job, 0), TW_STATE_COMPLETED);
}

TEST(SessionRestart, BringsJobsBackToTheFirstTransport) {
  Harness h;
  const JobPtr job = make_job(1, 100, h.now, h.now + 30 * kSecond);
  h.submit(job);
  h.fetched(Harness::record(1, 1, /*same_host=*/true));
  h.down(h.opened[0].channel, Status(Code::kUnreachable, "gone"));
  ASSERT_EQ(h.opened.size(), 2u);
  h.down(h.opened[1].channel, Status(Code::kPeerGone, "another instance"), instance(2));
  h.opened.clear();
  h.fetched(Harness::record(2, 0, /*same_host=*/true));
  ASSERT_EQ(h.opened.size(), 1u) << "the new instance has no rails, but is on the same host";
  h.up(h.opened[0].channel);
  h.complete_all();
  EXPECT_EQ(state_of(job, 0), TW_STATE_COMPLETED);
}

TEST(SessionContact, AnIdlePeerThatLeftIsAskedAgainBeforeItsRecordIsUsed) {
  Harness h;
  h.start(make_job(1, 100, h.now, h.now + kSecond));
  h.complete_all();
  h.peer_closed(1);
  EXPECT_EQ(h.fetches, 1) << "nothing is asked while nobody wants the peer";
  const JobPtr job = make_job(1, 100, h.now, h.now + kSecond);
  h.submit(job);
  EXPECT_EQ(h.fetches, 2);
  EXPECT_TRUE(h.posts.empty());
  h.fetched(Harness::record(1, 1));
  h.complete_all();
  EXPECT_EQ(state_of(job, 0), TW_STATE_COMPLETED) << "the channels were still good";
}

}  // namespace
}  // namespace tidewire::engine
