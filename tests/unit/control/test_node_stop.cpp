// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>

#include <thread>

#include "unit/control/support.h"

namespace tidewire::control::testing {
namespace {

int count_entries(const char* path) {
  DIR* directory = opendir(path);
  int count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

TEST(NodeStop, PendingCallbacksGetClosedOnceEach) {
  TestNode a;
  RawListener mute;
  Awaited<Status> probed, noted, unresolved;
  Awaited<Result<PeerRecord>> record;
  Awaited<Result<FirstRegion>> region;
  Awaited<Node::DataConnection> data;
  a->probe(mute.address(), in(kLong), probed.callback());
  a->notify(mute.address(), "n", "m", in(kLong), noted.callback());
  a->fetch_record(mute.address(), in(kLong), record.callback());
  a->fetch_first_region(mute.address(), in(kLong), region.callback());
  a->dial_data("", mute.address(), InstanceId{}, 0, in(kLong), data.callback());
  a->stop();
  EXPECT_EQ(probed.get().code(), Code::kClosed);
  EXPECT_EQ(noted.get().code(), Code::kClosed);
  EXPECT_EQ(record.get().status().code(), Code::kClosed);
  EXPECT_EQ(region.get().status().code(), Code::kClosed);
  EXPECT_EQ(data.get().status.code(), Code::kClosed);
  a->stop();
  a.node.reset();
  for (int calls : {probed.calls(), noted.calls(), record.calls(), region.calls(), data.calls()}) EXPECT_EQ(calls, 1);
}

TEST(NodeStop, LaterCallsGetClosed) {
  TestNode a, b;
  a->stop();
  EXPECT_EQ(probe(a, b.address()).code(), Code::kClosed);
  EXPECT_EQ(notify(a, b.address(), "n", "m").code(), Code::kClosed);
  EXPECT_EQ(dial(a, "", b->rail_addresses()[0], b.instance).status.code(), Code::kClosed);
  a->run_at(0, [] { ADD_FAILURE() << "ran after stop"; });
}

TEST(NodeStop, PendingRequestsOfPeersFailAtOnce) {
  // b is stopped while a's requests to it are under way: a learns it by the goodbye, not by its timeouts.
  TestNode a;
  auto b = std::make_unique<TestNode>();
  ASSERT_TRUE(probe(a, b->address()).ok());
  std::vector<Awaited<Status>> probes(100);
  for (auto& done : probes) a->probe(b->address(), in(kLong), done.callback());
  b->node->stop();
  for (auto& done : probes) {
    const Code code = done.get().code();
    EXPECT_TRUE(code == Code::kOk || code == Code::kPeerGone || code == Code::kUnreachable) << code_name(code);
  }
}

TEST(NodeStop, CallsFromManyThreadsDuringStopAreAllAnswered) {
  for (int round = 0; round < 20; ++round) {
    TestNode a, b;
    std::atomic<int> asked{0}, answered{0};
    std::atomic<bool> go{true};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        while (go) {
          if (asked - answered > 100) {  // as callers that wait for what they asked
            std::this_thread::yield();
            continue;
          }
          ++asked;
          a->probe(b.address(), in(kLong), [&](const Status&) { ++answered; });
          ++asked;
          a->notify(b.address(), "n", "m", in(kLong), [&](const Status&) { ++answered; });
        }
      });
    ASSERT_TRUE(probe(a, b.address()).ok());
    a->stop();
    go = false;
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(asked, answered);
  }
}

TEST(NodeStop, LeavesNoDescriptorAndNoThread) {
  {
    TestNode warm, up;
    ASSERT_TRUE(probe(warm, up.address()).ok());
  }
  const int descriptors = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
  for (int round = 0; round < 20; ++round) {
    TestNode a, b;
    ASSERT_TRUE(probe(a, b.address()).ok());
    ASSERT_TRUE(probe(b, a.address()).ok());
    ASSERT_TRUE(dial(a, "", b->rail_addresses()[0], b.instance).status.ok());
    Awaited<Status> pending;
    RawListener mute;
    a->probe(mute.address(), in(kLong), pending.callback());
  }
  EXPECT_EQ(count_entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(count_entries("/proc/self/task"), threads);
}

}  // namespace
}  // namespace tidewire::control::testing
