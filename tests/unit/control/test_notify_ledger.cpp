// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "control/notify_ledger.h"

namespace tidewire::control {
namespace {

InstanceId id(uint8_t value) {
  InstanceId out{};
  out.fill(value);
  return out;
}

struct Outcomes {
  std::map<std::string, Status> by_message;
  NotifyOutbox::Done done(const std::string& message) {
    return [this, message](const Status& status) {
      EXPECT_EQ(by_message.count(message), 0u) << "settled twice: " << message;
      by_message[message] = status;
    };
  }
};

void settle(std::vector<NotifyOutbox::Settled> settled) {
  for (auto& one : settled) one.done(one.status);
}

TEST(NotifyOutbox, SendsAgainInOrderWhatWasNotAnswered) {
  NotifyOutbox outbox(1);
  Outcomes outcomes;
  for (const char* text : {"a", "b", "c"}) ASSERT_TRUE(outbox.enqueue("n", text, 100, outcomes.done(text)).ok());
  EXPECT_EQ(outbox.next(0), nullptr) << "not connected";
  settle(outbox.connected(id(1)));
  EXPECT_EQ(outbox.next(0)->message, "a");
  EXPECT_EQ(outbox.next(0)->message, "b");
  settle(outbox.answered(1, Status()));
  outbox.disconnected();
  EXPECT_EQ(outbox.next(0), nullptr);
  settle(outbox.connected(id(1)));
  const NotificationMessage* again = outbox.next(0);
  EXPECT_EQ(again->message, "b");
  EXPECT_EQ(again->sequence, 2u) << "the number stays";
  EXPECT_EQ(outbox.next(0)->message, "c");
  EXPECT_EQ(outbox.next(0), nullptr);
  settle(outbox.answered(2, Status(Code::kBusy, "full")));
  settle(outbox.answered(3, Status()));
  settle(outbox.answered(3, Status()));  // late answers of the old connection don't matter
  EXPECT_TRUE(outbox.empty());
  EXPECT_TRUE(outcomes.by_message["a"].ok());
  EXPECT_EQ(outcomes.by_message["b"].code(), Code::kBusy);
  EXPECT_TRUE(outcomes.by_message["c"].ok());
}

TEST(NotifyOutbox, WhatWasSentToAnotherInstanceIsGoneAndTheRestGoesOn) {
  NotifyOutbox outbox(1);
  Outcomes outcomes;
  for (const char* text : {"sent", "waiting"}) ASSERT_TRUE(outbox.enqueue("n", text, 100, outcomes.done(text)).ok());
  settle(outbox.connected(id(1)));
  outbox.next(0);
  outbox.disconnected();
  settle(outbox.connected(id(2)));
  EXPECT_EQ(outcomes.by_message["sent"].code(), Code::kPeerGone);
  EXPECT_EQ(outbox.next(0)->message, "waiting");
  settle(outbox.answered(2, Status()));
  EXPECT_TRUE(outcomes.by_message["waiting"].ok());
}

// Found by the simulator (seed 586): a notification of data that the instance before has.
TEST(NotifyOutbox, WhatIsForOneInstanceGoesToNoOther) {
  NotifyOutbox outbox(1);
  Outcomes outcomes;
  ASSERT_TRUE(outbox.enqueue("n", "for 1", 100, outcomes.done("for 1"), id(1)).ok());
  ASSERT_TRUE(outbox.enqueue("n", "for any", 100, outcomes.done("for any")).ok());
  settle(outbox.connected(id(2)));
  EXPECT_EQ(outcomes.by_message["for 1"].code(), Code::kPeerGone);
  EXPECT_EQ(outbox.next(0)->message, "for any");
  EXPECT_EQ(outbox.enqueue("n", "late", 100, outcomes.done("late"), id(1)).code(), Code::kPeerGone);
  ASSERT_TRUE(outbox.enqueue("n", "for 2", 100, outcomes.done("for 2"), id(2)).ok());
  EXPECT_EQ(outbox.next(0)->message, "for 2");
  settle(outbox.fail_all(Status(Code::kClosed, "end")));
}

TEST(NotifyOutbox, DeadlinesAreIndependent) {
  NotifyOutbox outbox(1);
  Outcomes outcomes;
  ASSERT_TRUE(outbox.enqueue("n", "late", 300, outcomes.done("late")).ok());
  ASSERT_TRUE(outbox.enqueue("n", "soon", 100, outcomes.done("soon")).ok());
  EXPECT_EQ(outbox.earliest_deadline(), 100);
  settle(outbox.expire(99));
  EXPECT_TRUE(outcomes.by_message.empty());
  settle(outbox.expire(100));
  EXPECT_EQ(outcomes.by_message["soon"].code(), Code::kTimeout);
  EXPECT_EQ(outbox.earliest_deadline(), 300);
  settle(outbox.connected(id(1)));
  EXPECT_EQ(outbox.next(0)->message, "late");
  settle(outbox.expire(300));
  EXPECT_EQ(outbox.earliest_deadline(), kNever);
  EXPECT_EQ(outbox.next(0), nullptr);
}

TEST(NotifyOutbox, WindowAndMemoryAreBounded) {
  NotifyOutbox outbox(1);
  settle(outbox.connected(id(1)));
  const std::string large(kMaxNotificationBytes, 'x');
  size_t count = 0;
  while (outbox.enqueue("", large, 100, [](const Status&) {}).ok()) ++count;
  EXPECT_EQ(count, NotifyOutbox::kMaxQueuedBytes / large.size());
  EXPECT_EQ(outbox.enqueue("", large, 100, [](const Status&) {}).code(), Code::kNoResources);
  size_t sent = 0;
  while (outbox.next(0) != nullptr) ++sent;
  EXPECT_EQ(sent, NotifyOutbox::kWindow);
  settle(outbox.fail_all(Status(Code::kClosed, "")));
  EXPECT_TRUE(outbox.enqueue("", large, 100, [](const Status&) {}).ok()) << "room again";
}

TEST(NotifyInbox, DeliversEachNumberOnceAndRepeatsItsOutcome) {
  NotifyInbox inbox;
  int delivered = 0;
  const auto deliver = [&] { return ++delivered == 2 ? Status(Code::kBusy, "full") : Status(); };
  EXPECT_TRUE(inbox.receive(id(1), 1, 1, 0, deliver).ok());
  EXPECT_EQ(inbox.receive(id(1), 1, 2, 0, deliver).code(), Code::kBusy);
  EXPECT_TRUE(inbox.receive(id(1), 1, 1, 0, deliver).ok());
  EXPECT_EQ(inbox.receive(id(1), 1, 2, 0, deliver).code(), Code::kBusy);
  EXPECT_EQ(delivered, 2);
  // A gap is a message given up by its sender; when it comes late it is not delivered out of order.
  EXPECT_TRUE(inbox.receive(id(1), 1, 5, 0, deliver).ok());
  EXPECT_EQ(delivered, 3);
  (void)inbox.receive(id(1), 1, 4, 0, deliver);
  EXPECT_EQ(delivered, 3);
  // Other streams and other senders have their own numbers.
  (void)inbox.receive(id(1), 2, 1, 0, deliver);
  (void)inbox.receive(id(2), 1, 1, 0, deliver);
  EXPECT_EQ(delivered, 5);
}

TEST(NotifyInbox, ForgetsTheSilentAndIsBounded) {
  NotifyInbox inbox;
  const auto deliver = [] { return Status(); };
  (void)inbox.receive(id(1), 1, 1, 0, deliver);
  (void)inbox.receive(id(1), 2, 1, NotifyInbox::kForget - 1, deliver);
  EXPECT_EQ(inbox.streams(), 2u);
  (void)inbox.receive(id(1), 3, 1, NotifyInbox::kForget, deliver);
  EXPECT_EQ(inbox.streams(), 2u) << "the first one is forgotten";
  for (uint64_t stream = 0; stream < NotifyInbox::kMaxStreams + 100; ++stream)
    (void)inbox.receive(id(2), stream, 1, NotifyInbox::kForget, deliver);
  EXPECT_LE(inbox.streams(), NotifyInbox::kMaxStreams);
}

// A sender and a receiver over a line that breaks at random, in either direction, with messages under way lost.
TEST(NotifyLedger, ExactlyOnceInOrderOverALineThatBreaks) {
  for (uint32_t seed = 1; seed <= 500; ++seed) {
    std::mt19937 random(seed);
    NotifyOutbox outbox(1);
    NotifyInbox inbox;
    std::vector<std::string> sent, received;
    size_t settled = 0;
    std::deque<NotificationMessage> forward;
    std::deque<uint64_t> back;
    bool up = false;
    for (int step = 0; step < 100'000 && settled < 60; ++step) {
      switch (random() % 6) {
        case 0:
          if (sent.size() == 60) break;
          sent.push_back(std::to_string(sent.size()));
          ASSERT_TRUE(outbox
                          .enqueue("n", sent.back(), kNever,
                                   [&](const Status& status) {
                                     EXPECT_TRUE(status.ok());
                                     ++settled;
                                   })
                          .ok());
          break;
        case 1:
          if (!up) settle(outbox.connected(id(1)));
          up = true;
          break;
        case 2:
          if (random() % 4 != 0) break;
          // What was in the receiver's socket may still be read, its answers are lost.
          for (size_t keep = forward.empty() ? 0 : random() % (forward.size() + 1); keep > 0;
               --keep, forward.pop_front())
            (void)inbox.receive(id(7), 1, forward.front().sequence, 0, [&] {
              received.push_back(forward.front().message);
              return Status();
            });
          forward.clear();
          back.clear();
          outbox.disconnected();
          up = false;
          break;
        case 3:
          if (const NotificationMessage* message = outbox.next(0)) forward.push_back(*message);
          break;
        case 4:
          if (forward.empty()) break;
          (void)inbox.receive(id(7), 1, forward.front().sequence, 0, [&] {
            received.push_back(forward.front().message);
            return Status();
          });
          back.push_back(forward.front().sequence);
          forward.pop_front();
          break;
        case 5:
          if (back.empty()) break;
          settle(outbox.answered(back.front(), Status()));
          back.pop_front();
          break;
      }
    }
    ASSERT_EQ(settled, 60u) << "seed " << seed;
    ASSERT_EQ(received, sent) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tidewire::control
