// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <netinet/tcp.h>

#include "unit/control/support.h"

namespace tidewire::control::testing {
namespace {

// A record that was told too early would have no rails.
TEST(Node, WhoConnectsBeforeTheNodeServesWaits) {
  TestNode a, other;
  TestNode late({}, false);
  Awaited<Result<PeerRecord>> done;
  a->fetch_record(late.address(), in(kLong), done.callback());
  EXPECT_TRUE(probe(a, other.address()).ok());  // the loops have had their turn
  late.recorder.record.rails.push_back({"tcp", "eth0", "10.0.0.1:4000", 0});
  late->serve();
  const Result<PeerRecord> record = done.get();
  ASSERT_TRUE(record.ok()) << record.status().message();
  EXPECT_EQ(record->rails.size(), 1u);
}

TEST(Node, FetchesTheRecordOfAPeer) {
  TestNode a, b;
  b.recorder.record.features = 5;
  b.recorder.record.name = "b";
  b.recorder.record.host_id = "host";
  b.recorder.record.same_host_socket = "@socket";
  b.recorder.record.process_id = 42;
  b.recorder.record.rails = {{"tcp", "eth0", "10.0.0.1:4000", 100}, {"tcp", "eth1", "[fe80::1%eth1]:4000", 200}};
  Awaited<Result<PeerRecord>> done;
  a->fetch_record(b.address(), in(kLong), done.callback());
  ASSERT_TRUE(done.get().ok()) << done.get().status().to_string();
  const PeerRecord& record = *done.get();
  EXPECT_EQ(record.protocol_version, kProtocolVersion);
  EXPECT_EQ(record.features, 5u);
  EXPECT_EQ(record.instance, b.instance);
  EXPECT_EQ(record.name, "b");
  EXPECT_EQ(record.host_id, "host");
  EXPECT_EQ(record.same_host_socket, "@socket");
  EXPECT_EQ(record.process_id, 42u);
  ASSERT_EQ(record.rails.size(), 2u);
  EXPECT_EQ(record.rails[1].address, "[fe80::1%eth1]:4000");
  EXPECT_EQ(record.rails[1].bits_per_second, 200u);
}

TEST(Node, ProbesAPeerAndItself) {
  TestNode a, b;
  EXPECT_TRUE(probe(a, b.address()).ok());
  EXPECT_TRUE(probe(a, a.address()).ok());
}

TEST(Node, TellsTheFirstRegionOrThatThereIsNone) {
  TestNode a, b;
  Awaited<Result<FirstRegion>> none;
  a->fetch_first_region(b.address(), in(kLong), none.callback());
  EXPECT_EQ(none.get().status().code(), Code::kNotFound);
  b.recorder.locked([&] { b.recorder.region = FirstRegion{0x7000, 123}; });
  Awaited<Result<FirstRegion>> some;
  a->fetch_first_region(b.address(), in(kLong), some.callback());
  ASSERT_TRUE(some.get().ok());
  EXPECT_EQ(some.get()->address, 0x7000u);
  EXPECT_EQ(some.get()->length, 123u);
}

TEST(Node, HandsOverDataConnectionsWithBytesAfterTheHelloUnread) {
  for (const std::string secret : {"", "a secret of sixteen bytes"}) {
    TestNode a(with_secret(secret)), b(with_secret(secret));
    auto connection = dial(a, "127.0.0.1", b->rail_addresses()[0], b.instance, 77);
    ASSERT_TRUE(connection.status.ok()) << connection.status.to_string();
    EXPECT_EQ(connection.seen, b.instance);
    ASSERT_EQ(send(connection.socket.get(), "data", 4, MSG_NOSIGNAL), 4);
    ASSERT_TRUE(b.recorder.wait([&] { return !b.recorder.data.empty(); }));
    Recorder::Data& taken = b.recorder.data.front();
    EXPECT_EQ(taken.hello.channel, 77u);
    EXPECT_EQ(taken.hello.initiator, a.instance);
    EXPECT_EQ(taken.hello.initiator_name, a.address());
    EXPECT_EQ(taken.hello.rail, 0u);
    pollfd readable{taken.socket.get(), POLLIN, 0};
    ASSERT_EQ(poll(&readable, 1, 60'000), 1);
    char text[8] = {};
    EXPECT_EQ(recv(taken.socket.get(), text, sizeof(text), 0), 4);
    EXPECT_STREQ(text, "data");
    for (int fd : {taken.socket.get(), connection.socket.get()}) {
      int no_delay = 0;
      socklen_t size = sizeof(no_delay);
      EXPECT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay, &size), 0);
      EXPECT_NE(no_delay, 0);
      EXPECT_NE(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
      EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    }
    a.node->stop();
    b.node->stop();
    // The connection belongs to its new owners.
    EXPECT_EQ(send(connection.socket.get(), "more", 4, MSG_NOSIGNAL), 4);
  }
}

TEST(Node, DataConnectionToARestartedPeerTellsWhoAnswers) {
  for (const std::string secret : {"", "a secret of sixteen bytes"}) {
    TestNode a(with_secret(secret)), b(with_secret(secret));
    InstanceId former = make_instance_id();
    auto connection = dial(a, "", b->rail_addresses()[0], former);
    EXPECT_EQ(connection.status.code(), Code::kPeerGone) << connection.status.to_string();
    EXPECT_EQ(connection.seen, b.instance);
    EXPECT_FALSE(connection.socket.valid());
  }
}

TEST(Node, DataConnectionsSayWhichRailTookThem) {
  Options options;
  options.rail_addresses = {"127.0.0.2", "127.0.0.3"};
  TestNode a, b(options);
  ASSERT_TRUE(b.status.ok()) << b.status.to_string();
  const auto rails = b->rail_addresses();
  ASSERT_EQ(rails.size(), 3u);
  for (uint32_t rail = 0; rail < 3; ++rail) {
    ASSERT_TRUE(dial(a, "", rails[rail], b.instance, rail).status.ok());
    ASSERT_TRUE(b.recorder.wait([&] { return b.recorder.data.size() == rail + 1; }));
    EXPECT_EQ(b.recorder.data.back().hello.rail, rail);
  }
}

TEST(Node, RunsTasksOnItsThreadAtTheirTime) {
  TestNode a;
  Awaited<Nanos> later, sooner;
  const Nanos start = monotonic_now();
  a->run_at(start + 50 * kMillisecond, [done = later.callback()] { done(monotonic_now()); });
  a->run_at(0, [done = sooner.callback()] { done(monotonic_now()); });
  EXPECT_GE(later.get(), start + 50 * kMillisecond);
  EXPECT_LT(sooner.get(), later.get());
}

TEST(Node, DescribesItselfAsJson) {
  TestNode a;
  EXPECT_NE(a->describe().find("\"address\":\"" + a.address() + "\""), std::string::npos) << a->describe();
}

}  // namespace
}  // namespace tidewire::control::testing
