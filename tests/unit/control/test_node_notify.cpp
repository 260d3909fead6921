// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <thread>

#include "control/handshake.h"
#include "control/messages.h"
#include "unit/control/support.h"

namespace tidewire::control::testing {
namespace {

TEST(NodeNotify, CarriesNamesMessagesWithNulBytesAndTheSender) {
  TestNode a, b;
  const std::string binary("\0binary\0", 8), large(kMaxNotificationBytes, 'x');
  ASSERT_TRUE(notify(a, b.address(), "first", binary).ok());
  ASSERT_TRUE(notify(a, b.address(), "", "").ok());
  ASSERT_TRUE(notify(a, b.address(), "large", large).ok());
  ASSERT_TRUE(notify(a, a.address(), "self", "me").ok());
  ASSERT_EQ(b.recorder.notifications.size(), 3u);
  EXPECT_EQ(b.recorder.notifications[0].name, "first");
  EXPECT_EQ(b.recorder.notifications[0].message, binary);
  EXPECT_EQ(b.recorder.notifications[0].sender, a.address());
  EXPECT_EQ(b.recorder.notifications[1].message, "");
  EXPECT_EQ(b.recorder.notifications[2].message, large);
  ASSERT_EQ(a.recorder.notifications.size(), 1u);
}

TEST(NodeNotify, RefusesWhatIsTooLarge) {
  TestNode a, b;
  EXPECT_EQ(notify(a, b.address(), "n", std::string(kMaxNotificationBytes + 1, 'x')).code(), Code::kInvalidArgument);
  EXPECT_EQ(notify(a, b.address(), std::string(kMaxNotificationNameBytes + 1, 'x'), "").code(), Code::kInvalidArgument);
  EXPECT_TRUE(notify(a, b.address(), "n", "fits").ok());
  EXPECT_EQ(b.recorder.notifications.size(), 1u);
}

TEST(NodeNotify, TheReceiversRefusalComesBack) {
  TestNode a, b;
  b.recorder.locked([&] { b.recorder.notification_verdict = Status(Code::kNoResources, "queue is full"); });
  const Status status = notify(a, b.address(), "n", "m");
  EXPECT_EQ(status.code(), Code::kNoResources);
  EXPECT_NE(status.message().find("queue is full"), std::string::npos);
}

TEST(NodeNotify, ManyThreadsEachInOrderAndOnce) {
  TestNode a, b;
  constexpr int kThreads = 8, kMessages = 2'000;
  std::atomic<int> failed{0}, done{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kMessages; ++i)
        a->notify(b.address(), std::to_string(thread), std::to_string(i), in(kLong), [&](const Status& status) {
          failed += !status.ok();
          ++done;
        });
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(b.recorder.wait([&] { return b.recorder.notifications.size() == kThreads * kMessages; }));
  std::vector<int> next(kThreads, 0);
  for (const Notification& notification : b.recorder.notifications) {
    const int thread = std::stoi(notification.name);
    ASSERT_EQ(notification.message, std::to_string(next[thread]++));
  }
  a.node->stop();  // settles what is still under way
  EXPECT_EQ(done, kThreads * kMessages);
  EXPECT_EQ(b.recorder.notifications.size(), static_cast<size_t>(kThreads * kMessages));
}

// Plays a peer by hand: says hello with the real class, then reads frames.
struct ManualPeer {
  RawListener listener;
  InstanceId instance = make_instance_id();
  UniqueFd fd;

  void take() {
    fd = listener.accept_one();
    HandshakeConfig config;
    config.features = 0;
    config.instance = instance;
    config.name = listener.address();
    config.nonce = make_nonce();
    Handshake handshake = Handshake::acceptor(config);
    uint8_t buffer[1024];
    while (handshake.wanted() > 0) {
      const ssize_t count = recv(fd.get(), buffer, std::min(sizeof(buffer), handshake.wanted()), 0);
      ASSERT_GT(count, 0);
      handshake.feed({buffer, static_cast<size_t>(count)});
    }
    ASSERT_TRUE(handshake.status().ok());
    send_all(fd.get(), handshake.take_output());
  }
  Frame read() {
    FrameDecoder decoder(kMaxRequestBytes);
    uint8_t buffer[65536];
    while (!decoder.ready()) {
      const ssize_t count = recv(fd.get(), buffer, std::min(sizeof(buffer), decoder.wanted()), 0);
      if (count <= 0 || !decoder.status().ok()) {
        ADD_FAILURE() << "no frame";
        return {};
      }
      decoder.feed({buffer, static_cast<size_t>(count)});
    }
    return decoder.take();
  }
  NotificationMessage read_notification() {
    const Frame frame = read();
    EXPECT_EQ(frame.type, FrameType::kNotification);
    const Result<NotificationMessage> message = decode_notification(frame.payload);
    EXPECT_TRUE(message.ok());
    return message.ok() ? *message : NotificationMessage{};
  }
  void answer(uint64_t sequence, const Status& status = Status()) {
    send_all(fd.get(), encode_outcome(FrameType::kNotificationAnswer, sequence, status));
  }
};

TEST(NodeNotify, SendsAgainWithTheSameNumberAfterABreak) {
  TestNode a;
  ManualPeer peer;
  std::vector<Awaited<Status>> done(3);
  for (int i = 0; i < 3; ++i) a->notify(peer.listener.address(), "n", std::to_string(i), in(kLong), done[i].callback());
  peer.take();
  EXPECT_EQ(peer.read_notification().message, "0");
  EXPECT_EQ(peer.read_notification().message, "1");
  peer.answer(1);
  EXPECT_TRUE(done[0].get().ok());
  peer.fd.reset();
  peer.take();
  const NotificationMessage again = peer.read_notification();
  EXPECT_EQ(again.message, "1");
  EXPECT_EQ(again.sequence, 2u);
  EXPECT_EQ(peer.read_notification().sequence, 3u);
  peer.answer(2);
  peer.answer(3);
  EXPECT_TRUE(done[1].get().ok());
  EXPECT_TRUE(done[2].get().ok());
  a.node->stop();
  for (auto& one : done) EXPECT_EQ(one.calls(), 1);
}

TEST(NodeNotify, ARestartedPeerFailsVisiblyWhatTheFormerOneMayHaveHad) {
  TestNode a;
  ManualPeer peer;
  Awaited<Status> first;
  a->notify(peer.listener.address(), "n", "under way", in(kLong), first.callback());
  peer.take();
  peer.read_notification();
  peer.fd.reset();
  peer.instance = make_instance_id();
  peer.take();
  EXPECT_EQ(first.get().code(), Code::kPeerGone);
  Awaited<Status> second;
  a->notify(peer.listener.address(), "n", "new", in(kLong), second.callback());
  const NotificationMessage message = peer.read_notification();
  EXPECT_EQ(message.message, "new");
  peer.answer(message.sequence);
  EXPECT_TRUE(second.get().ok());
}

// A sender by hand, which repeats what it sent: the node must deliver it once.
TEST(NodeNotify, RepeatedNumbersAreDeliveredOnceAcrossConnections) {
  TestNode node;
  const InstanceId sender = make_instance_id();
  const auto connect = [&] {
    UniqueFd fd = connect_raw(node->port());
    HandshakeConfig config;
    config.features = 0;
    config.instance = sender;
    config.name = "sender:1";
    config.nonce = make_nonce();
    Handshake handshake = Handshake::initiator(config);
    send_all(fd.get(), handshake.take_output());
    uint8_t buffer[1024];
    while (handshake.wanted() > 0) {
      const ssize_t count = recv(fd.get(), buffer, std::min(sizeof(buffer), handshake.wanted()), 0);
      if (count <= 0) break;
      handshake.feed({buffer, static_cast<size_t>(count)});
    }
    EXPECT_TRUE(handshake.over() && handshake.status().ok());
    return fd;
  };
  const auto read_answer = [](int fd) {
    FrameDecoder decoder(kMaxFrameBytes);
    uint8_t buffer[4096];
    while (!decoder.ready()) {
      const ssize_t count = recv(fd, buffer, std::min(sizeof(buffer), decoder.wanted()), 0);
      if (count <= 0) return Status(Code::kPeerGone, "closed");
      decoder.feed({buffer, static_cast<size_t>(count)});
    }
    return decode_outcome(decoder.take().payload);
  };
  for (int round = 0; round < 3; ++round) {
    UniqueFd fd = connect();
    for (uint64_t sequence = 1; sequence <= 5; ++sequence) {
      send_all(fd.get(), encode_notification(sequence, {9, sequence, "n", std::to_string(sequence)}));
      EXPECT_TRUE(read_answer(fd.get()).ok());
    }
  }
  ASSERT_EQ(node.recorder.notifications.size(), 5u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(node.recorder.notifications[i].message, std::to_string(i + 1));
}

}  // namespace
}  // namespace tidewire::control::testing
