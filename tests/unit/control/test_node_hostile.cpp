// SPDX-License-Identifier: Apache-2.0
//
// Strangers, broken clients and impostors against a live node: it stays alive and answers.
#include <random>
#include <thread>

#include "control/handshake.h"
#include "control/messages.h"
#include "unit/control/support.h"

namespace tidewire::control::testing {
namespace {

constexpr const char* kSecret = "a cluster secret of some length";

// Without features: what comes back answers what was asked.
HandshakeConfig hello_of(const InstanceId& instance, const std::string& secret = "") {
  HandshakeConfig config;
  config.features = 0;
  config.instance = instance;
  config.name = "stranger:1";
  config.secret = secret;
  config.nonce = make_nonce();
  return config;
}

TEST(NodeHostile, SecretsThatDifferOrLackAreToldApart) {
  TestNode with(with_secret(kSecret)), without, other(with_secret("another secret of some length"));
  ASSERT_TRUE(probe(with, with.address()).ok());
  Status status = probe(with, other.address());
  EXPECT_EQ(status.code(), Code::kUnauthenticated);
  EXPECT_NE(status.message().find("differ"), std::string::npos) << status.message();
  status = probe(with, without.address());
  EXPECT_EQ(status.code(), Code::kUnauthenticated);
  EXPECT_NE(status.message().find(without.address() + " has no cluster secret"), std::string::npos) << status.message();
  status = probe(without, with.address());
  EXPECT_EQ(status.code(), Code::kUnauthenticated);
  EXPECT_NE(status.message().find(without.address() + " has no cluster secret"), std::string::npos) << status.message();
  const Node::DataConnection data = dial(other, "", with->rail_addresses()[0], with.instance);
  EXPECT_EQ(data.status.code(), Code::kUnauthenticated);
  EXPECT_TRUE(with.recorder.data.empty());
}

TEST(NodeHostile, APeerOfTheVersionBeforeIsServed) {
  TestNode node;
  HandshakeConfig config = hello_of(make_instance_id());
  config.version = kProtocolVersion - 1;
  Handshake handshake = Handshake::initiator(config);
  UniqueFd fd = connect_raw(node->port());
  ASSERT_TRUE(greet(fd.get(), handshake).ok());
  EXPECT_EQ(handshake.agreement().version, kProtocolVersion - 1);
  send_all(fd.get(), encode_frame(FrameType::kRecordRequest, 5, {}));
  const Frame frame = read_frame(fd.get());
  EXPECT_EQ(frame.type, FrameType::kRecord);
  EXPECT_EQ(frame.request, 5u);
  EXPECT_TRUE(decode_record(frame.payload).ok());

  config.version = kProtocolVersion + 2;
  Handshake distant = Handshake::initiator(config);
  fd = connect_raw(node->port());
  EXPECT_EQ(greet(fd.get(), distant).code(), Code::kProtocol);
}

TEST(NodeHostile, UnknownRequestsAreAnsweredAndTheConnectionGoesOn) {
  TestNode node;
  Handshake handshake = Handshake::initiator(hello_of(make_instance_id()));
  UniqueFd fd = connect_raw(node->port());
  ASSERT_TRUE(greet(fd.get(), handshake).ok());
  send_all(fd.get(), encode_frame(static_cast<FrameType>(200), 7, {}));
  Frame frame = read_frame(fd.get());
  EXPECT_EQ(frame.type, FrameType::kError);
  EXPECT_EQ(frame.request, 7u);
  EXPECT_EQ(decode_outcome(frame.payload).code(), Code::kUnsupported);
  send_all(fd.get(), encode_frame(FrameType::kProbe, 8, {}));
  EXPECT_EQ(read_frame(fd.get()).type, FrameType::kProbeAnswer);
}

TEST(NodeHostile, StrangersAreClosedAndDoNoHarm) {
  for (const std::string secret : {"", kSecret}) {
    TestNode node(with_secret(secret)), peer(with_secret(secret));
    std::vector<std::vector<uint8_t>> greetings;
    const std::string http = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    greetings.emplace_back(http.begin(), http.end());
    std::vector<uint8_t> mooncake = {20, 0, 0, 0, 0, 0, 0, 0};
    const std::string json = R"({"protocol": "tcp"})";
    mooncake.insert(mooncake.end(), json.begin(), json.end());
    greetings.push_back(mooncake);
    greetings.push_back(std::vector<uint8_t>(100'000, 0xff));
    greetings.push_back(encode_frame(FrameType::kProbe, 1, {}));  // without a hello
    greetings.push_back(encode_frame(FrameType::kHello, 0, {}));  // an empty one
    greetings.push_back(encode_frame(FrameType::kHello, 0, std::vector<uint8_t>(kMaxHelloBytes + 1)));
    greetings.push_back(encode_frame(FrameType::kConfirm, 0, {}));
    for (const auto& bytes : greetings) {
      UniqueFd fd = connect_raw(node->port());
      send_all(fd.get(), bytes);
      EXPECT_TRUE(closed_by_other(fd.get()));
    }
    EXPECT_TRUE(probe(peer, node.address()).ok());
    EXPECT_TRUE(node.recorder.closed.empty()) << "strangers are no peers";
  }
}

TEST(NodeHostile, RequestsBeforeTheProofAreNotServed) {
  TestNode node(with_secret(kSecret));
  UniqueFd fd = connect_raw(node->port());
  Handshake handshake = Handshake::initiator(hello_of(make_instance_id(), "some other secret, also long"));
  std::vector<uint8_t> bytes = handshake.take_output();
  for (const auto& frame : {encode_frame(FrameType::kRecordRequest, 1, {}), encode_notification(1, {1, 1, "n", "m"})})
    bytes.insert(bytes.end(), frame.begin(), frame.end());
  send_all(fd.get(), bytes);
  EXPECT_EQ(read_frame(fd.get()).type, FrameType::kHelloAnswer);
  EXPECT_TRUE(closed_by_other(fd.get()));
  EXPECT_TRUE(node.recorder.notifications.empty());
}

TEST(NodeHostile, BitFlipsAndTruncationsOfGoodConversations) {
  TestNode node, peer;
  std::mt19937 random(3);
  std::vector<uint8_t> good = Handshake::initiator(hello_of(make_instance_id())).take_output();
  for (const auto& frame :
       {encode_frame(FrameType::kRecordRequest, 1, {}), encode_notification(1, {1, 1, "name", "message"}),
        encode_frame(FrameType::kFirstRegionRequest, 2, {}), encode_frame(FrameType::kProbe, 3, {}),
        encode_goodbye(false)})
    good.insert(good.end(), frame.begin(), frame.end());
  for (int round = 0; round < 1'000; ++round) {
    std::vector<uint8_t> bytes = good;
    for (int flips = static_cast<int>(random() % 4); flips >= 0; --flips)
      bytes[random() % bytes.size()] ^= static_cast<uint8_t>(1 << (random() % 8));
    if (random() % 2 == 0) bytes.resize(random() % bytes.size());
    UniqueFd fd = connect_raw(node->port());
    send_all(fd.get(), bytes);
    shutdown(fd.get(), SHUT_WR);
    ASSERT_TRUE(closed_by_other(fd.get()));
  }
  EXPECT_TRUE(probe(peer, node.address()).ok());
}

TEST(NodeHostile, RandomBytesAfterAGoodHello) {
  TestNode node, peer;
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    UniqueFd fd = connect_raw(node->port());
    Handshake handshake = Handshake::initiator(hello_of(make_instance_id()));
    ASSERT_TRUE(greet(fd.get(), handshake).ok());
    std::vector<uint8_t> payload(random() % 300);
    for (uint8_t& byte : payload) byte = static_cast<uint8_t>(random());
    const auto type = static_cast<FrameType>(16 + random() % 12);
    send_all(fd.get(), round % 2 == 0 ? encode_frame(type, random(), payload) : payload);
    shutdown(fd.get(), SHUT_WR);
    ASSERT_TRUE(closed_by_other(fd.get()));
  }
  EXPECT_TRUE(probe(peer, node.address()).ok());
}

// The other direction: a malicious peer answers our requests.
TEST(NodeHostile, MalformedAnswersFailTheRequestAlone) {
  TestNode a, healthy;
  for (const auto& answer : {std::pair{FrameType::kRecord, std::vector<uint8_t>(64, 0x7f)},
                             {FrameType::kRecord, std::vector<uint8_t>{}},
                             {FrameType::kProbeAnswer, std::vector<uint8_t>{}},
                             {FrameType::kError, std::vector<uint8_t>{1, 2, 3}}}) {
    RawListener listener;
    Awaited<Result<PeerRecord>> done;
    a->fetch_record(listener.address(), in(kLong), done.callback());
    UniqueFd fd = listener.accept_one();
    Handshake handshake = Handshake::acceptor(hello_of(make_instance_id()));
    ASSERT_TRUE(greet(fd.get(), handshake).ok());
    const Frame request = read_frame(fd.get());
    send_all(fd.get(), encode_frame(answer.first, request.request, answer.second));
    EXPECT_EQ(done.get().status().code(), Code::kProtocol) << done.get().status().to_string();
    EXPECT_TRUE(probe(a, healthy.address()).ok());
  }
}

TEST(NodeHostile, WhoNeverFinishesTheHelloIsClosed) {
  Options options;
  options.settings.connect_timeout = 100 * kMillisecond;
  TestNode node(options), peer;
  std::vector<UniqueFd> slow;
  const auto hello = Handshake::initiator(hello_of(make_instance_id())).take_output();
  for (size_t i = 0; i < 20; ++i) {
    slow.push_back(connect_raw(node->port()));
    send_all(slow.back().get(), {hello.begin(), hello.begin() + static_cast<ptrdiff_t>(i)});
  }
  EXPECT_TRUE(probe(peer, node.address()).ok());
  for (const UniqueFd& fd : slow) EXPECT_TRUE(closed_by_other(fd.get()));
}

TEST(NodeHostile, ManyMuteConnectionsLeaveRoomForAPeer) {
  Options options;
  options.settings.connect_timeout = 30 * kSecond;
  TestNode node(options), peer;
  std::vector<UniqueFd> mute;
  for (size_t i = 0; i < kMaxInHandshake + 50; ++i) mute.push_back(connect_raw(node->port()));
  EXPECT_TRUE(probe(peer, node.address()).ok());
  EXPECT_TRUE(closed_by_other(mute.front().get())) << "the oldest made room";
}

TEST(NodeHostile, WhoNeverReadsItsAnswersIsNotServedOn) {
  TestNode node, peer;
  node.recorder.locked([&] {
    node.recorder.record.rails.assign(500, {"tcp", std::string(500, 'n'), std::string(500, 'a'), 1});
  });
  UniqueFd fd = connect_raw(node->port());
  Handshake handshake = Handshake::initiator(hello_of(make_instance_id()));
  ASSERT_TRUE(greet(fd.get(), handshake).ok());
  // Requests for half a megabyte each, never read. The node serves what fits its limit and the sockets' buffers, then
  // stops reading, until our own sending stops.
  timeval limit{0, 500'000};
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  std::vector<uint8_t> requests;
  for (int i = 0; i < 10'000; ++i) {
    const auto request = encode_frame(FrameType::kRecordRequest, i, {});
    requests.insert(requests.end(), request.begin(), request.end());
  }
  bool stalled = false;
  for (int i = 0; i < 200 && !stalled; ++i)
    stalled = send(fd.get(), requests.data(), requests.size(), MSG_NOSIGNAL) < static_cast<ssize_t>(requests.size());
  EXPECT_TRUE(stalled);
  EXPECT_LT(node.recorder.locked([&] { return node.recorder.records_told; }), 100);

  // Once it reads, it is served on.
  const Frame first = read_frame(fd.get());
  EXPECT_EQ(first.type, FrameType::kRecord);
  for (uint64_t i = 1; i < 200; ++i) ASSERT_EQ(read_frame(fd.get()).request, i);
  EXPECT_TRUE(probe(peer, node.address()).ok());
}

}  // namespace
}  // namespace tidewire::control::testing
