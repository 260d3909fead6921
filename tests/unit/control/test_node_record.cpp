// SPDX-License-Identifier: Apache-2.0
//
// The record that comes with the hello, and how few connections many known peers hold.
#include <nlohmann/json.hpp>
#include <thread>

#include "control/frame.h"
#include "control/handshake.h"
#include "control/messages.h"
#include "unit/control/support.h"

namespace tidewire::control::testing {
namespace {

HandshakeConfig hello_with(uint64_t features) {
  HandshakeConfig config;
  config.instance = make_instance_id();
  config.name = "raw:1";
  config.nonce = make_nonce();
  config.features = features;
  return config;
}

struct RawPeer {
  // Takes the connection that `a` is opening to it.
  void take() {
    fd = listener.accept_one();
    Handshake handshake = Handshake::acceptor(hello_with(kPushedRecord));
    ASSERT_TRUE(greet(fd.get(), handshake).ok());
  }
  RawListener listener;
  UniqueFd fd;
};

PeerRecord record_of(const InstanceId& instance) {
  PeerRecord record;
  record.instance = instance;
  record.protocol_version = kProtocolVersion;
  record.name = "raw:1";
  return record;
}

TEST(NodeRecord, ComesUnaskedToWhoUnderstandsThat) {
  TestNode node;
  UniqueFd fd = connect_raw(node->port());
  Handshake handshake = Handshake::initiator(hello_with(kPushedRecord));
  ASSERT_TRUE(greet(fd.get(), handshake).ok());
  const Frame pushed = read_frame(fd.get());
  EXPECT_EQ(pushed.type, FrameType::kRecord);
  EXPECT_EQ(pushed.request, kPushedRequest);
  ASSERT_TRUE(decode_record(pushed.payload).ok());
  EXPECT_EQ(decode_record(pushed.payload)->instance, node.instance);
  send_all(fd.get(), encode_frame(FrameType::kRecordRequest, 9, {}));
  EXPECT_EQ(read_frame(fd.get()).request, 9u) << "it can still be asked for";
}

TEST(NodeRecord, IsNotSentToWhoDoesNot) {
  TestNode node;
  UniqueFd fd = connect_raw(node->port());
  Handshake handshake = Handshake::initiator(hello_with(0));
  ASSERT_TRUE(greet(fd.get(), handshake).ok());
  send_all(fd.get(), encode_frame(FrameType::kProbe, 3, {}));
  EXPECT_EQ(read_frame(fd.get()).type, FrameType::kProbeAnswer);
}

TEST(NodeRecord, ThatWasPushedAnswersAllWhoWaitWithoutARequest) {
  TestNode a;
  RawPeer peer;
  Awaited<Result<PeerRecord>> first, second;
  a->fetch_record(peer.listener.address(), in(kLong), first.callback());
  a->fetch_record(peer.listener.address(), in(kLong), second.callback());
  peer.take();
  const InstanceId instance = make_instance_id();
  send_all(peer.fd.get(), encode_record(kPushedRequest, record_of(instance)));
  ASSERT_TRUE(first.get().ok()) << first.get().status().to_string();
  ASSERT_TRUE(second.get().ok());
  EXPECT_EQ(first.get()->instance, instance);

  Awaited<Status> probed;
  a->probe(peer.listener.address(), in(kLong), probed.callback());
  EXPECT_EQ(read_frame(peer.fd.get()).type, FrameType::kProbe) << "nothing was asked before";
}

TEST(NodeRecord, ThatWasPushedServesOneFetchOnly) {
  TestNode a;
  RawPeer peer;
  Awaited<Result<PeerRecord>> first, second;
  a->fetch_record(peer.listener.address(), in(kLong), first.callback());
  peer.take();
  send_all(peer.fd.get(), encode_record(kPushedRequest, record_of(make_instance_id())));
  ASSERT_TRUE(first.get().ok());
  // A later fetch wants the record of then.
  a->fetch_record(peer.listener.address(), in(kLong), second.callback());
  const Frame request = read_frame(peer.fd.get());
  ASSERT_EQ(request.type, FrameType::kRecordRequest);
  const InstanceId later = make_instance_id();
  send_all(peer.fd.get(), encode_record(request.request, record_of(later)));
  ASSERT_TRUE(second.get().ok());
  EXPECT_EQ(second.get()->instance, later);
}

TEST(NodeRecord, MalformedWhenPushedFailsTheFetch) {
  TestNode a;
  for (const auto& payload : {std::vector<uint8_t>(64, 0x7f), std::vector<uint8_t>{}}) {
    RawPeer peer;
    Awaited<Result<PeerRecord>> done;
    a->fetch_record(peer.listener.address(), in(kLong), done.callback());
    peer.take();
    send_all(peer.fd.get(), encode_frame(FrameType::kRecord, kPushedRequest, payload));
    EXPECT_EQ(done.get().status().code(), Code::kProtocol) << done.get().status().to_string();
  }
}

TEST(NodeRecord, PushPromisedAndNotKeptEndsAtTheDeadline) {
  TestNode a;
  RawPeer peer;
  Awaited<Result<PeerRecord>> done;
  a->fetch_record(peer.listener.address(), in(200 * kMillisecond), done.callback());
  peer.take();
  EXPECT_EQ(done.get().status().code(), Code::kTimeout);
}

TEST(NodeRecord, FeaturesThatWereNotOfferedAreRefused) {
  Handshake offers = Handshake::initiator(hello_with(kPushedRecord)), offers_none = Handshake::initiator(hello_with(0));
  Handshake acceptor = Handshake::acceptor(hello_with(kPushedRecord));
  acceptor.feed(offers.take_output());
  const std::vector<uint8_t> answer = acceptor.take_output();
  offers.feed(answer);
  EXPECT_TRUE(offers.status().ok());
  EXPECT_EQ(offers.agreement().features, kPushedRecord);
  offers_none.feed(answer);
  ASSERT_TRUE(offers_none.over());
  EXPECT_EQ(offers_none.status().code(), Code::kProtocol);
}

// Ten thousand known peers must not hold ten thousand connections.
TEST(NodeRecord, ManyPeersHoldFewConnectionsAndNobodyIsAlarmed) {
  Options everywhere;
  everywhere.advertised = "192.0.2.1";  // not of this host: listens on all addresses
  TestNode a, b(everywhere);
  constexpr int kPeers = 240;
  for (int i = 0; i < kPeers; ++i)
    ASSERT_TRUE(probe(a, "127.0.1." + std::to_string(i + 1) + ":" + std::to_string(b->port())).ok()) << i;
  const auto accepted = [&] { return nlohmann::json::parse(b->describe())["accepted"].get<int>(); };
  const auto stop = std::chrono::steady_clock::now() + kHardStop;
  while (accepted() > 160 && std::chrono::steady_clock::now() < stop) std::this_thread::yield();
  EXPECT_LE(accepted(), 160);
  EXPECT_GE(accepted(), 128) << "recent ones are kept";
  EXPECT_TRUE(a.recorder.locked([&] { return a.recorder.closed.empty(); }));
  EXPECT_TRUE(b.recorder.locked([&] { return b.recorder.closed.empty(); }));
  EXPECT_TRUE(probe(a, "127.0.1.1:" + std::to_string(b->port())).ok()) << "one that made room comes back";
}

}  // namespace
}  // namespace tidewire::control::testing
