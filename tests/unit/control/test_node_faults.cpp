// SPDX-License-Identifier: Apache-2.0
//
// Peers that refuse, keep silent, die, restart.
#include <fcntl.h>
#include <sys/resource.h>

#include "unit/control/support.h"

namespace tidewire::control::testing {
namespace {

// A port whose backlog is full: connection attempts get no answer at all.
struct BlackHole {
  BlackHole() : listener(0) {
    const Endpoint to = *literal_endpoint("127.0.0.1", listener.port);
    for (;;) {
      UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      (void)connect(fd.get(), to.address(), to.size);
      pollfd writable{fd.get(), POLLOUT, 0};
      const bool connected = poll(&writable, 1, 100) == 1;
      fillers.push_back(std::move(fd));
      if (!connected) return;
    }
  }
  std::string address() const { return listener.address(); }
  RawListener listener;
  std::vector<UniqueFd> fillers;
};

std::string refused_address() {
  RawListener listener;
  return listener.address();  // closed when this returns
}

TEST(NodeFaults, RefusalFailsAtOnce) {
  TestNode a;
  const std::string address = refused_address();
  const Status status = probe(a, address);
  EXPECT_EQ(status.code(), Code::kUnreachable);
  EXPECT_NE(status.message().find(address), std::string::npos) << status.message();
  const Node::DataConnection data = dial(a, "", address, InstanceId{});
  EXPECT_EQ(data.status.code(), Code::kUnreachable);
}

TEST(NodeFaults, SilenceFailsEachRequestAtItsOwnDeadline) {
  Options options;
  options.settings.connect_timeout = 200 * kMillisecond;
  TestNode a(options);
  BlackHole hole;
  const Nanos start = monotonic_now();
  Awaited<Status> first, second, note;
  Awaited<Node::DataConnection> data;
  a->probe(hole.address(), start + 900 * kMillisecond, second.callback());
  a->probe(hole.address(), start + 100 * kMillisecond, first.callback());
  a->notify(hole.address(), "n", "m", start + 300 * kMillisecond, note.callback());
  a->dial_data("", hole.address(), InstanceId{}, 1, start + 300 * kMillisecond, data.callback());
  EXPECT_EQ(first.get().code(), Code::kTimeout);
  EXPECT_EQ(second.calls(), 0);
  EXPECT_EQ(note.get().code(), Code::kTimeout);
  EXPECT_EQ(data.get().status.code(), Code::kTimeout);
  EXPECT_EQ(second.calls(), 0);
  EXPECT_EQ(second.get().code(), Code::kTimeout);
  EXPECT_GE(monotonic_now() - start, 900 * kMillisecond);
}

TEST(NodeFaults, AHealthyPeerAnswersWhileHundredsOfProbesHang) {
  TestNode a, healthy;
  BlackHole hole;
  constexpr int kProbes = 200;
  std::vector<Awaited<Status>> hanging(kProbes);
  std::vector<Awaited<Node::DataConnection>> dialling(kProbes);
  const Nanos deadline = in(1 * kSecond);
  for (int i = 0; i < kProbes; ++i) {
    a->probe(hole.address(), deadline, hanging[i].callback());
    a->dial_data("", hole.address(), InstanceId{}, i, deadline, dialling[i].callback());
  }
  int answered_meanwhile = 0;
  while (hanging[0].calls() == 0 && answered_meanwhile < 500) {
    ASSERT_TRUE(probe(a, healthy.address()).ok());
    ++answered_meanwhile;
  }
  EXPECT_GE(answered_meanwhile, 20);
  for (int i = 0; i < kProbes; ++i) {
    EXPECT_EQ(hanging[i].get().code(), Code::kTimeout);
    EXPECT_EQ(dialling[i].get().status.code(), Code::kTimeout);
  }
}

TEST(NodeFaults, AcceptsButNeverAnswersTheHello) {
  TestNode a;
  RawListener mute;
  Awaited<Status> done;
  a->probe(mute.address(), in(300 * kMillisecond), done.callback());
  UniqueFd taken = mute.accept_one();
  EXPECT_EQ(done.get().code(), Code::kTimeout);
  const Node::DataConnection data = dial(a, "", mute.address(), InstanceId{}, 0, 200 * kMillisecond);
  EXPECT_EQ(data.status.code(), Code::kTimeout);
  EXPECT_NE(data.status.message().find("hello"), std::string::npos) << data.status.message();
}

TEST(NodeFaults, ClosesDuringTheHello) {
  TestNode a;
  RawListener rude;
  Awaited<Status> done;
  a->probe(rude.address(), in(kLong), done.callback());
  rude.accept_one().reset();
  EXPECT_EQ(done.get().code(), Code::kPeerGone) << done.get().to_string();
}

TEST(NodeFaults, AnswersWithAnotherProtocol) {
  TestNode a;
  RawListener server;
  Awaited<Status> done;
  a->probe(server.address(), in(kLong), done.callback());
  UniqueFd taken = server.accept_one();
  const std::string text = "HTTP/1.1 400 Bad Request\r\n\r\n";
  send_all(taken.get(), {text.begin(), text.end()});
  EXPECT_EQ(done.get().code(), Code::kProtocol);
  EXPECT_NE(done.get().message().find("HTTP"), std::string::npos);
}

TEST(NodeFaults, GoodbyeIsToldToBothSidesWithTheInstance) {
  TestNode a;
  auto b = std::make_unique<TestNode>();
  const std::string address = b->address();
  const InstanceId instance = b->instance;
  ASSERT_TRUE(probe(a, address).ok());
  ASSERT_TRUE(probe(*b, a.address()).ok());
  b->node->stop();
  // a had dialled b and b had dialled a.
  ASSERT_TRUE(a.recorder.wait([&] { return a.recorder.closed.size() == 2; }));
  for (const auto& closed : a.recorder.closed) {
    EXPECT_EQ(closed.instance, instance);
    EXPECT_EQ(closed.address, address);
    EXPECT_EQ(closed.why.code(), Code::kPeerGone);
    EXPECT_NE(closed.why.message().find("goodbye"), std::string::npos);
  }
  b.reset();
  EXPECT_EQ(probe(a, address).code(), Code::kUnreachable);
}

TEST(NodeFaults, ARestartedPeerIsReachedAgainByItsAddress) {
  TestNode a;
  auto b = std::make_unique<TestNode>();
  const std::string address = b->address();
  const uint16_t port = b->node->port();
  ASSERT_TRUE(probe(a, address).ok());
  b.reset();
  Options again;
  again.port = port;
  TestNode successor(again);
  ASSERT_TRUE(successor.status.ok()) << successor.status.to_string();
  Awaited<Result<PeerRecord>> record;
  a->fetch_record(address, in(kLong), record.callback());
  ASSERT_TRUE(record.get().ok()) << record.get().status().to_string();
  EXPECT_EQ(record.get()->instance, successor.instance);
}

// A peer between two nodes that can cut, stall or vanish: it carries bytes of one connection at a time.
class Relay {
 public:
  explicit Relay(uint16_t target) : target_(target) {}
  // Takes the next connection and connects it on.
  void take() {
    front_ = listener_.accept_one();
    back_ = connect_raw(target_);
  }
  // Carries until `forward` bytes have gone to the target or one side closes; returns what is left.
  void carry(std::atomic<bool>& stop) {
    while (!stop) {
      pollfd entries[2] = {{front_.get(), POLLIN, 0}, {back_.get(), POLLIN, 0}};
      if (poll(entries, 2, 10) <= 0) continue;
      uint8_t buffer[65536];
      for (int side = 0; side < 2; ++side) {
        if (entries[side].revents == 0) continue;
        const ssize_t count = recv(entries[side].fd, buffer, sizeof(buffer), 0);
        if (count <= 0) return;
        send_all(entries[1 - side].fd, {buffer, buffer + count});
      }
    }
  }
  void cut() {
    front_.reset();
    back_.reset();
  }
  std::string address() const { return listener_.address(); }

 private:
  RawListener listener_;
  uint16_t target_;
  UniqueFd front_, back_;
};

TEST(NodeFaults, RequestsSurviveOneBrokenConnection) {
  TestNode a, b;
  Relay relay(b->port());
  std::atomic<bool> stop{false};
  std::thread carrier([&] {
    relay.take();
    relay.cut();  // in the middle of the hello
    relay.take();
    relay.carry(stop);
  });
  // The first connection breaks before its hello: nothing was promised yet.
  EXPECT_EQ(probe(a, relay.address()).code(), Code::kPeerGone);
  EXPECT_TRUE(probe(a, relay.address()).ok());
  stop = true;
  carrier.join();
  relay.cut();
  ASSERT_TRUE(a.recorder.wait([&] { return !a.recorder.closed.empty(); }));
  EXPECT_EQ(a.recorder.closed[0].instance, b.instance);
  ASSERT_TRUE(b.recorder.wait([&] { return !b.recorder.closed.empty(); }));
  EXPECT_EQ(b.recorder.closed[0].instance, a.instance);
}

TEST(NodeFaults, ASilentConnectionIsReplacedAfterAnUnansweredRequest) {
  TestNode a, b;
  Relay relay(b->port());
  std::atomic<bool> stop{false};
  std::thread carrier([&] {
    relay.take();
    relay.carry(stop);
  });
  ASSERT_TRUE(probe(a, relay.address()).ok());
  stop = true;  // from here on bytes vanish, as with a host that lost its power
  carrier.join();
  EXPECT_EQ(probe(a, relay.address(), 700 * kMillisecond).code(), Code::kTimeout);
  stop = false;
  std::thread again([&] {
    relay.take();
    relay.carry(stop);
  });
  EXPECT_TRUE(probe(a, relay.address()).ok());
  stop = true;
  again.join();
}

TEST(NodeFaults, ANotificationThatASilentConnectionSwallowedDoesNotHoldUpTheNext) {
  TestNode a, b;
  Relay relay(b->port());
  std::atomic<bool> stop{false};
  std::thread carrier([&] {
    relay.take();
    relay.carry(stop);
  });
  ASSERT_TRUE(notify(a, relay.address(), "n", "first").ok());
  stop = true;
  carrier.join();
  EXPECT_EQ(notify(a, relay.address(), "n", "swallowed", 700 * kMillisecond).code(), Code::kTimeout);
  stop = false;
  std::thread again([&] {
    relay.take();
    relay.carry(stop);
  });
  EXPECT_TRUE(notify(a, relay.address(), "n", "second").ok());
  stop = true;
  again.join();
  ASSERT_EQ(b.recorder.notifications.size(), 2u);
  EXPECT_EQ(b.recorder.notifications[1].message, "second");
}

TEST(NodeFaults, IdleConnectionsCloseWithoutAlarm) {
  Options options;
  options.settings.idle_close = 50 * kMillisecond;
  TestNode a(options), b;
  ASSERT_TRUE(probe(a, b.address()).ok());
  const auto sessions_gone = [&](TestNode& node, const char* text) {
    const Nanos end = in(30 * kSecond);
    while (node->describe().find(text) == std::string::npos && monotonic_now() < end) {
      Awaited<bool> tick;
      node->run_at(in(5 * kMillisecond), [done = tick.callback()] { done(true); });
      tick.get();
    }
    return node->describe().find(text) != std::string::npos;
  };
  EXPECT_TRUE(sessions_gone(a, "\"sessions\":0")) << a->describe();
  EXPECT_TRUE(sessions_gone(b, "\"accepted\":0")) << b->describe();
  EXPECT_TRUE(a.recorder.closed.empty());
  EXPECT_TRUE(b.recorder.closed.empty());
  EXPECT_TRUE(probe(a, b.address()).ok());
}

TEST(NodeFaults, ThousandsOfKnownAddressesCostNoDescriptors) {
  TestNode a, b;
  const auto descriptors = [] {
    int count = 0;
    for (int fd = 0; fd < 4096; ++fd) count += fcntl(fd, F_GETFD) >= 0;
    return count;
  };
  ASSERT_TRUE(probe(a, b.address()).ok());
  const int before = descriptors();
  std::vector<Awaited<Status>> probes(2'000);
  const std::string address = refused_address();
  const std::string port = address.substr(address.find(':'));
  for (size_t i = 0; i < probes.size(); ++i)
    a->probe(fmt::format("127.0.{}.{}{}", 1 + i / 250, 1 + i % 250, port), in(kLong), probes[i].callback());
  for (auto& done : probes) EXPECT_EQ(done.get().code(), Code::kUnreachable);
  EXPECT_TRUE(probe(a, b.address()).ok());
  EXPECT_LE(descriptors(), before + 2);
}

TEST(NodeFaults, OutOfDescriptorsIsSaidAndOver) {
  TestNode a, b;
  ASSERT_TRUE(probe(a, b.address()).ok());
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  std::vector<UniqueFd> hogs;
  rlimit low = before;
  low.rlim_cur = 256;
  setrlimit(RLIMIT_NOFILE, &low);
  for (int fd; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) hogs.emplace_back(fd);
  const Node::DataConnection data = dial(a, "", b->rail_addresses()[0], b.instance);
  EXPECT_EQ(data.status.code(), Code::kNoResources);
  EXPECT_NE(data.status.message().find("ulimit -n"), std::string::npos) << data.status.message();
  // One descriptor for us: b has none to accept with, and drops us instead of leaving us to wait.
  hogs.pop_back();
  const Node::DataConnection dropped = dial(a, "", b->rail_addresses()[0], b.instance);
  EXPECT_FALSE(dropped.status.ok());
  EXPECT_NE(dropped.status.code(), Code::kTimeout) << dropped.status.message();
  EXPECT_TRUE(probe(a, b.address()).ok()) << "what is open goes on";
  hogs.clear();
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(dial(a, "", b->rail_addresses()[0], b.instance).status.ok());
}

TEST(NodeFaults, LocalAddressesThatAreNotOursAreNamed) {
  TestNode a, b;
  const Node::DataConnection foreign = dial(a, "203.0.113.7", b->rail_addresses()[0], b.instance);
  EXPECT_EQ(foreign.status.code(), Code::kNoResources);
  EXPECT_NE(foreign.status.message().find("203.0.113.7"), std::string::npos) << foreign.status.message();
  EXPECT_EQ(dial(a, "::1", b->rail_addresses()[0], b.instance).status.code(), Code::kInvalidArgument);
  EXPECT_EQ(dial(a, "", "nonsense:host:1", b.instance).status.code(), Code::kInvalidArgument);
  EXPECT_EQ(dial(a, "", "127.0.0.1", b.instance).status.code(), Code::kInvalidArgument);
}

TEST(NodeFaults, DeadlinesInThePastFailAndNothingElse) {
  TestNode a, b;
  EXPECT_EQ(probe(a, b.address(), -1).code(), Code::kTimeout);
  EXPECT_EQ(notify(a, b.address(), "n", "m", -1).code(), Code::kTimeout);
  EXPECT_EQ(dial(a, "", b->rail_addresses()[0], b.instance, 0, -1).status.code(), Code::kTimeout);
  EXPECT_TRUE(probe(a, b.address()).ok());
}

}  // namespace
}  // namespace tidewire::control::testing
