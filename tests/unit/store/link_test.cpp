// SPDX-License-Identifier: Apache-2.0
#include "store/rpc/link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <thread>

#include "store/rpc/codec.h"
#include "unit/store/link_support.h"

namespace tidewire::store {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

Exists exists(const std::string& key, size_t times = 1) {
  return Exists{std::vector<std::string>(times, key)};
}

TEST(Link, ACallIsAnswered) {
  TestMaster master(answer_at_once);
  TestClient client(master.address());
  auto answer = client.start().call(exists("key", 3));
  ASSERT_TRUE(answer.get().ok()) << answer.get().status().to_string();
  EXPECT_EQ(std::get<CodesAnswer>(*answer.get()).codes.size(), 3u);
  EXPECT_TRUE(client.wait_up());
  EXPECT_TRUE(client.link->connected());
  master.locked([&] {
    ASSERT_EQ(master.arrived.size(), 1u);
    EXPECT_EQ(std::get<Exists>(master.arrived[0].message.body).keys[0], "key");
  });
}

TEST(Link, AThreadCanWaitForItsAnswer) {
  TestMaster master(answer_at_once);
  TestClient client(master.address());
  client.start();
  const Result<Body> answer = client.link->call_and_wait(Heartbeat{}, kNever);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(std::get<CodeAnswer>(*answer).code, Code::kOk);

  Awaited<Result<Body>> inside;
  client.link->post([&] { inside.callback()(client.link->call_and_wait(Heartbeat{}, kNever)); });
  EXPECT_EQ(inside.get().status().code(), StatusCode::kInvalidArgument) << "it would wait for itself";
}

TEST(Link, ManyThreadsWaitWhileOthersOnlyAsk) {
  TestMaster master(answer_at_once);
  TestClient client(master.address());
  client.start();
  std::atomic<int> waited{0}, told{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) {
        if (client.link->call_and_wait(Exists{{"k"}}, kNever).ok()) ++waited;
        client.link->call(Heartbeat{}, kNever, [&](const Result<Body>& answer) { told += answer.ok() ? 1 : 0; });
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(waited, 1200);
  // The calls of before are answered before this one, whoever runs the loop now.
  Awaited<Result<Body>> last = client.call(Heartbeat{});
  EXPECT_TRUE(last.get().ok());
  EXPECT_EQ(told, 1200);
}

TEST(Link, ThreadsThatWaitAreToldWhenItStopsAndItMayGoAtOnce) {
  TestMaster master(answer_never);
  TestClient client(master.address());
  client.start();
  ASSERT_TRUE(client.wait_up());
  MasterLink& link = *client.link;
  std::vector<std::thread> threads;
  std::atomic<int> closed{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      if (link.call_and_wait(Heartbeat{}, kNever).status().code() == StatusCode::kClosed) ++closed;
    });
  ASSERT_TRUE(master.wait([&] { return master.arrived.size() == 4; }));
  link.stop();
  client.link.reset();  // nobody is in it any more
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(closed, 4);
}

// The master asks a client in which nobody waits any more, right after somebody did.
TEST(Link, ARequestIsHeardThoughNobodyWaitsAnyMore) {
  TestMaster master(answer_at_once);
  TestClient client(master.address());
  client.start();
  for (size_t i = 1; i <= 20; ++i) {
    ASSERT_TRUE(client.link->call_and_wait(Heartbeat{}, kNever).ok());
    const ConnectionId connection = master.locked([&] { return master.arrived.back().connection; });
    master.server->post([&, connection] { master.server->send(connection, {100, false, Heartbeat{}}); });
    ASSERT_TRUE(client.wait([&] { return client.requests.size() == i; }));
  }
}

TEST(Link, AnswersMayComeInAnyOrder) {
  std::vector<std::pair<ConnectionId, Message>> held;
  TestMaster master([&](TestMaster& self, ConnectionId connection, const Message& message) {
    held.emplace_back(connection, message);
    if (held.size() < 3) return;
    for (auto one = held.rbegin(); one != held.rend(); ++one)
      self.server->send(
          one->first, {one->second.request, true, CountAnswer{Code::kOk, std::get<Unmount>(one->second.body).ordinal}});
  });
  TestClient client(master.address());
  client.start();
  std::mutex mutex;
  std::vector<uint64_t> order;
  std::vector<Awaited<bool>> done(3);
  for (uint32_t i = 0; i < 3; ++i)
    client.link->call(Unmount{i}, in(kLong), [&, i](const Result<Body>& answer) {
      {
        std::lock_guard lock(mutex);
        order.push_back(std::get<CountAnswer>(*answer).count);
      }
      done[i].callback()(std::get<CountAnswer>(*answer).count == i);
    });
  for (auto& one : done) EXPECT_TRUE(one.get());
  EXPECT_EQ(order, (std::vector<uint64_t>{2, 1, 0}));
}

TEST(Link, AThousandCallsFromSeveralThreadsAreEachAnsweredOnce) {
  TestMaster master(answer_at_once);
  TestClient client(master.address());
  client.start();
  constexpr size_t kThreads = 4, kCalls = 250;
  std::vector<Awaited<Result<Body>>> answers(kThreads * kCalls);
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (size_t i = thread * kCalls; i < (thread + 1) * kCalls; ++i)
        client.link->call(exists("key", i % 50), in(kLong), answers[i].callback());
    });
  for (auto& thread : threads) thread.join();
  for (size_t i = 0; i < answers.size(); ++i) {
    ASSERT_TRUE(answers[i].get().ok());
    EXPECT_EQ(std::get<CodesAnswer>(*answers[i].get()).codes.size(), i % 50);
  }
  client.link->stop();
  for (auto& answer : answers) EXPECT_EQ(answer.calls(), 1);
}

TEST(Link, BothSidesAskAndAnswerOverOneConnection) {
  // For every request of the client the master first asks one itself, and answers once it has its own answer.
  std::map<uint64_t, uint64_t> asked;  // by the master's number
  TestMaster master([&](TestMaster& self, ConnectionId connection, const Message& message) {
    if (!message.answer) {
      const uint64_t request = 1'000 + message.request;
      asked[request] = message.request;
      self.server->send(connection, {request, false, Grant{message.request, {}, 0, 0}});
    } else {
      const uint64_t term = std::get<GrantAnswer>(message.body).term;
      self.server->send(connection, {asked.at(message.request), true, CountAnswer{Code::kOk, term}});
    }
  });
  TestClient client(master.address());
  client.at_request = [&](uint64_t request, const Body& body) {
    client.link->answer(request, GrantAnswer{Code::kOk, std::get<Grant>(body).term});
  };
  client.start();
  std::vector<Awaited<Result<Body>>> answers;
  for (int i = 0; i < 20; ++i) answers.push_back(client.call(Heartbeat{}));
  uint64_t sum = 0;
  for (auto& answer : answers) {
    ASSERT_TRUE(answer.get().ok());
    sum += std::get<CountAnswer>(*answer.get()).count;
  }
  EXPECT_EQ(sum, 20u * 21 / 2) << "the calls' numbers are 1 … 20";
}

TEST(Link, AnswersFromOtherThreadsReachTheMaster) {
  TestMaster master([](TestMaster& self, ConnectionId connection, const Message& message) {
    if (!message.answer) self.server->send(connection, {42, false, Quiet{}});
  });
  TestClient client(master.address());
  client.start().call(Heartbeat{});
  ASSERT_TRUE(client.wait([&] { return !client.requests.empty(); }));
  client.link->answer(client.locked([&] { return client.requests[0].first; }), CodeAnswer{Code::kUnavailable});
  ASSERT_TRUE(master.wait([&] { return master.arrived.size() == 2; }));
  const Message& answer = master.arrived[1].message;
  EXPECT_TRUE(answer.answer);
  EXPECT_EQ(answer.request, 42u);
  EXPECT_EQ(std::get<CodeAnswer>(answer.body).code, Code::kUnavailable);
}

TEST(Link, ACallWithoutAnAnswerEndsAtItsDeadline) {
  TestMaster master(answer_never);
  TestClient client(master.address());
  client.start();
  ASSERT_TRUE(client.wait_up());
  auto late = client.call(exists("key"), 200 * kMillisecond);
  EXPECT_EQ(late.get().status().code(), StatusCode::kTimeout);
  EXPECT_THAT(late.get().status().message(), HasSubstr("did not answer Exists in time"));
  EXPECT_EQ(client.call(Heartbeat{}, 0).get().status().code(), StatusCode::kTimeout) << "passed already";
  EXPECT_TRUE(client.link->connected());
}

TEST(Link, AnAnswerAfterTheDeadlineIsDropped) {
  std::optional<Message> first;
  TestMaster master([&](TestMaster& self, ConnectionId connection, const Message& message) {
    if (std::holds_alternative<Unmount>(message.body)) {
      first = message;
      return;
    }
    if (first) self.server->send(connection, {first->request, true, CodeAnswer{Code::kInternal}});
    self.server->send(connection, {message.request, true, CodeAnswer{Code::kOk}});
  });
  TestClient client(master.address());
  client.start();
  ASSERT_TRUE(client.wait_up());
  auto late = client.call(Unmount{}, 200 * kMillisecond);
  ASSERT_EQ(late.get().status().code(), StatusCode::kTimeout);
  auto next = client.call(Heartbeat{});
  ASSERT_TRUE(next.get().ok());
  EXPECT_EQ(std::get<CodeAnswer>(*next.get()).code, Code::kOk);
  EXPECT_EQ(late.calls(), 1);
}

TEST(Link, ACallThatIsTooLargeIsRefusedAtOnce) {
  TestMaster master(answer_at_once);
  TestClient client(master.address());
  client.start();
  EXPECT_EQ(client.call(exists("key", kMaxBatch + 1)).get().status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(client.call(exists(std::string(300, 'k'), kMaxBatch)).get().ok()) << "the largest batch";
}

TEST(Link, AnAnswerThatIsTooLargeBecomesAnError) {
  TestMaster master([](TestMaster& self, ConnectionId connection, const Message& message) {
    EXPECT_FALSE(self.server->send(connection, {message.request, true, CodesAnswer{std::vector<Code>(kMaxBatch + 1)}}));
    EXPECT_FALSE(self.server->send(connection, {1, false, Drop{1, 1, {}, {1}}}));
    EXPECT_FALSE(self.server->send(connection + 1, {1, false, Heartbeat{}})) << "no such connection";
  });
  TestClient client(master.address());
  auto answer = client.start().call(Heartbeat{});
  ASSERT_TRUE(answer.get().ok());
  EXPECT_EQ(std::get<CodeAnswer>(*answer.get()).code, Code::kInternal);
}

TEST(Link, StopEndsPendingCalls) {
  TestMaster master(answer_never);
  TestClient client(master.address());
  client.start();
  ASSERT_TRUE(client.wait_up());
  Awaited<Result<Body>> again;
  Awaited<Result<Body>> first;
  client.link->call(Heartbeat{}, kNever, [&](Result<Body> result) {
    client.link->call(Heartbeat{}, kNever, again.callback());
    first.callback()(std::move(result));
  });
  std::vector<Awaited<Result<Body>>> others;
  for (int i = 0; i < 100; ++i) others.push_back(client.call(exists("key"), kNever));
  client.link->stop();
  client.link->stop();
  EXPECT_EQ(first.calls(), 1);
  EXPECT_EQ(first.get().status().code(), StatusCode::kClosed);
  EXPECT_EQ(again.get().status().code(), StatusCode::kClosed);
  for (auto& other : others) {
    EXPECT_EQ(other.calls(), 1);
    EXPECT_EQ(other.get().status().code(), StatusCode::kClosed);
  }
  EXPECT_EQ(client.call(Heartbeat{}).get().status().code(), StatusCode::kClosed);
  EXPECT_FALSE(client.link->post([] {}));
  EXPECT_FALSE(client.link->start().ok());
  ASSERT_TRUE(master.wait([&] { return master.closed.size() == 1; }));
  EXPECT_TRUE(client.downs.empty()) << "it went by itself";
}

TEST(Link, StopMayBeCalledOnTheLoop) {
  TestMaster master(answer_at_once);
  TestClient client(master.address());
  client.start();
  Awaited<Result<Body>> pending;
  client.link->call(Heartbeat{}, kNever, [&](const Result<Body>&) {
    client.link->stop();
    client.link->call(Heartbeat{}, kNever, pending.callback());
  });
  EXPECT_EQ(pending.get().status().code(), StatusCode::kClosed);
}

TEST(Link, ALinkThatWasNeverStartedStillEndsItsCalls) {
  TestClient client("127.0.0.1:1");
  auto made = MasterLink::create(client.options, client);
  ASSERT_TRUE(made.ok());
  Awaited<Result<Body>> answer;
  (*made)->call(Heartbeat{}, kNever, answer.callback());
  made->reset();
  EXPECT_EQ(answer.calls(), 1);
  EXPECT_EQ(answer.get().status().code(), StatusCode::kClosed);
}

TEST(Link, AServerThatIsStoppedTellsItsHandlerNothingMore) {
  TestMaster master(answer_at_once);
  TestClient client(master.address());
  client.start();
  ASSERT_TRUE(client.wait_up());
  master.server->stop();
  master.server->stop();
  ASSERT_TRUE(client.wait([&] { return client.downs.size() == 1; }));
  EXPECT_TRUE(master.closed.empty());
  EXPECT_FALSE(master.server->post([] {}));
}

TEST(Link, TasksRunOnTheLoopInOrderAndTimersInTheirs) {
  TestMaster master;
  Awaited<std::vector<int>> done;
  auto order = std::make_shared<std::vector<int>>();
  const Nanos now = monotonic_now();
  master.server->run_at(now + 30 * kMillisecond, [=, callback = done.callback()] {
    order->push_back(4);
    callback(*order);
  });
  master.server->run_at(now + 10 * kMillisecond, [=] { order->push_back(3); });
  master.server->post([=] { order->push_back(1); });
  master.server->post([=] { order->push_back(2); });
  EXPECT_EQ(done.get(), (std::vector<int>{1, 2, 3, 4}));
}

TEST(Link, AForkedChildsCopyIsInert) {
  TestMaster master(answer_at_once);
  TestClient client(master.address());
  client.start();
  ASSERT_TRUE(client.wait_up());
  const pid_t child = fork();
  if (child == 0) {
    bool forked = false;
    client.link->call(Heartbeat{}, kNever,
                      [&](const Result<Body>& answer) { forked = answer.status().code() == StatusCode::kForked; });
    forked = forked && client.link->call_and_wait(Heartbeat{}, kNever).status().code() == StatusCode::kForked;
    forked = forked && !client.link->post([] {}) && !master.server->post([] {}) && !client.link->connected();
    client.link->stop();
    client.link.reset();
    master.server->stop();
    master.server.reset();
    _exit(forked ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(client.call(Heartbeat{}).get().ok()) << "the parent's goes on";
}

}  // namespace
}  // namespace tidewire::store
