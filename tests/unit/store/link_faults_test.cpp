// SPDX-License-Identifier: Apache-2.0
//
// The link when something is wrong: masters that restart, secrets that differ, ports of something else, bytes that are
// no message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/rpc/codec.h"
#include "store/rpc/link.h"
#include "unit/store/link_support.h"

namespace tidewire::store {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using control::testing::closed_by_other;
using control::testing::connect_raw;
using control::testing::greet;
using control::testing::RawListener;
using control::testing::read_frame;
using control::testing::send_all;
using control::testing::TestNode;
using control::testing::with_secret;
using ::testing::HasSubstr;

constexpr const char* kSecret = "a secret of sixteen bytes";
constexpr const char* kOtherSecret = "another secret of sixteen bytes";

TEST(LinkFaults, TheConnectionIsMadeAgainWhenTheMasterRestarts) {
  auto master = std::make_unique<TestMaster>(answer_at_once);
  const uint16_t port = master->server->port();
  TestClient client(master->address());
  EXPECT_TRUE(client.start().call(Heartbeat{}).get().ok());
  for (int restart = 1; restart <= 3; ++restart) {
    master.reset();
    ASSERT_TRUE(client.wait([&] { return client.downs.size() == static_cast<size_t>(restart); }));
    auto waiting = client.call(Heartbeat{});
    master = std::make_unique<TestMaster>(answer_at_once, "", port);
    EXPECT_TRUE(waiting.get().ok()) << "made without a connection, sent when there was one: "
                                    << waiting.get().status().to_string();
    EXPECT_TRUE(client.wait_up(restart + 1));
  }
}

TEST(LinkFaults, CallsUnderABrokenConnectionFailAndLaterOnesDoNot) {
  TestMaster master([](TestMaster& self, ConnectionId connection, const Message& message) {
    if (std::holds_alternative<Unmount>(message.body)) return self.server->drop(connection);
    if (std::holds_alternative<Heartbeat>(message.body)) answer_at_once(self, connection, message);
  });
  TestClient client(master.address());
  client.start();
  ASSERT_TRUE(client.wait_up());
  auto unanswered = client.call(Exists{{"key"}}, kNever);
  auto fatal = client.call(Unmount{1}, kNever);
  EXPECT_EQ(unanswered.get().status().code(), StatusCode::kPeerGone);
  EXPECT_EQ(fatal.get().status().code(), StatusCode::kPeerGone);
  EXPECT_TRUE(client.call(Heartbeat{}).get().ok());
  EXPECT_EQ(client.ups, 2);
  EXPECT_TRUE(master.locked([&] { return master.closed.empty(); })) << "the master dropped it itself";
}

TEST(LinkFaults, ConnectionsHaveNumbersOfTheirOwn) {
  TestMaster master([](TestMaster& self, ConnectionId connection, const Message&) { self.server->drop(connection); });
  TestClient client(master.address());
  client.start();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(client.call(Heartbeat{}).get().ok());
  master.locked([&] {
    ASSERT_EQ(master.arrived.size(), 3u);
    EXPECT_NE(master.arrived[0].connection, master.arrived[1].connection);
    EXPECT_NE(master.arrived[1].connection, master.arrived[2].connection);
  });
}

TEST(LinkFaults, WhatTheClientCallsWhenItIsUpGoesOutFirst) {
  auto silent = std::make_unique<RawListener>();
  const uint16_t port = silent->port;
  silent.reset();
  TestClient client("127.0.0.1:" + std::to_string(port));
  client.at_up = [&] { client.link->call(Attach{}, kNever, [](const Result<Body>&) {}); };
  client.start();
  std::vector<Awaited<Result<Body>>> waiting;
  for (int i = 0; i < 10; ++i) waiting.push_back(client.call(Unmount{}));
  TestMaster master(answer_at_once, "", port);
  for (auto& one : waiting) EXPECT_TRUE(one.get().ok()) << one.get().status().to_string();
  EXPECT_TRUE(std::holds_alternative<Attach>(master.arrived[0].message.body));
}

TEST(LinkFaults, AnswersToAConnectionThatIsGoneAreDropped) {
  TestMaster master([](TestMaster& self, ConnectionId connection, const Message& message) {
    if (message.answer) return;
    self.server->send(connection, {7, false, Quiet{}});
    if (std::holds_alternative<Unmount>(message.body))
      self.server->send(connection, {message.request, true, CodeAnswer{}});
  });
  TestClient client(master.address());
  client.start();
  ASSERT_TRUE(client.wait_up());
  client.call(Heartbeat{});
  ASSERT_TRUE(client.wait([&] { return client.requests.size() == 1; }));
  master.server->post([&] { master.server->drop(1); });
  ASSERT_TRUE(client.wait_up(2));
  client.call(Heartbeat{});
  ASSERT_TRUE(client.wait([&] { return client.requests.size() == 2; }));
  // Both requests have number 7 at the master; only the second one may be answered.
  client.link->answer(client.requests[0].first, CodeAnswer{Code::kInternal});
  client.link->answer(client.requests[1].first, CodeAnswer{Code::kUnavailable});
  EXPECT_TRUE(client.call(Unmount{}).get().ok());
  master.locked([&] {
    std::vector<Code> answers;
    for (const auto& one : master.arrived)
      if (one.message.answer) answers.push_back(std::get<CodeAnswer>(one.message.body).code);
    EXPECT_EQ(answers, std::vector<Code>{Code::kUnavailable});
  });
}

TEST(LinkFaults, NoMasterMeansUnreachableAtTheDeadline) {
  auto nobody = std::make_unique<RawListener>();
  const std::string address = nobody->address();
  nobody.reset();
  TestClient client(address);
  auto answer = client.start().call(Heartbeat{}, kSecond);
  EXPECT_EQ(answer.get().status().code(), StatusCode::kUnreachable);
  EXPECT_THAT(answer.get().status().message(), HasSubstr(address));
  EXPECT_THAT(answer.get().status().message(), HasSubstr("refused"));
}

TEST(LinkFaults, APortThatNeverSpeaksMeansUnreachableAtTheDeadline) {
  RawListener silent;
  TestClient client(silent.address(), "", 50 * kMillisecond);
  auto answer = client.start().call(Heartbeat{}, kSecond);
  EXPECT_EQ(answer.get().status().code(), StatusCode::kUnreachable);
  EXPECT_THAT(answer.get().status().message(), HasSubstr("did not answer the hello"));
}

TEST(LinkFaults, AnAddressWithoutAPortIsRefused) {
  TestClient client("master.example");
  EXPECT_EQ(MasterLink::create(client.options, client).status().code(), StatusCode::kInvalidArgument);
}

TEST(LinkFaults, APortThatIsTakenIsRefused) {
  TestMaster master;
  MasterServer::Options options;
  options.host = "127.0.0.1";
  options.port = master.server->port();
  EXPECT_EQ(MasterServer::listen(options, master).status().code(), StatusCode::kAddressInUse);
}

TEST(LinkFaults, AMasterCanListenEverywhere) {
  struct Silent : MasterServer::Handler {
    void on_message(ConnectionId, Message) override {}
    void on_closed(ConnectionId, const Status&) override {}
  } handler;
  MasterServer::Options options;
  options.host = "0.0.0.0";
  options.secret = kSecret;
  auto server = MasterServer::listen(options, handler);
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  ASSERT_TRUE((*server)->start().ok());
  TestClient client("127.0.0.1:" + std::to_string((*server)->port()), kSecret);
  EXPECT_TRUE(client.start().wait_up());
}

TEST(LinkFaults, OneSecretConnectsAndWrongOnesAreToldAtOnce) {
  TestMaster master(answer_at_once, kSecret);
  TestClient right(master.address(), kSecret), wrong(master.address(), kOtherSecret), none(master.address());
  EXPECT_TRUE(right.start().call(Heartbeat{}).get().ok());
  // With no deadline: it is the refusal that ends the call.
  auto refused = wrong.start().call(Heartbeat{}, kNever);
  EXPECT_EQ(refused.get().status().code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(refused.get().status().message(), HasSubstr("differ"));
  auto naked = none.start().call(Heartbeat{}, kNever);
  EXPECT_EQ(naked.get().status().code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(naked.get().status().message(), HasSubstr("has no cluster secret"));
}

TEST(LinkFaults, AnEnginesPortReachedByMistakeIsNamed) {
  for (const std::string secret : {"", kSecret}) {
    TestNode engine(with_secret(secret));
    for (const std::string& own : {secret, std::string()}) {
      TestClient client(engine.address(), own);
      auto answer = client.start().call(Heartbeat{}, kNever);
      EXPECT_EQ(answer.get().status().code(), StatusCode::kUnsupported);
      EXPECT_THAT(answer.get().status().message(), HasSubstr(engine.address() + " is the port of an engine"));
    }
  }
}

TEST(LinkFaults, AMastersPortReachedByAnEngineIsNamed) {
  for (const std::string secret : {"", kSecret}) {
    TestMaster master(answer_at_once, secret);
    TestNode engine(with_secret(secret));
    const Status status = control::testing::probe(engine, master.address());
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr(master.address() + " is the port of a store's master"));
    const auto data = control::testing::dial(engine, "", master.address(), InstanceId{});
    EXPECT_EQ(data.status.code(), StatusCode::kUnsupported);
  }
}

// A client by hand, whose hello is done.
UniqueFd raw_client(const TestMaster& master) {
  UniqueFd fd = connect_raw(master.server->port());
  control::HandshakeConfig config;
  config.name = "by hand";
  config.nonce = control::make_nonce();
  config.role = control::Role::kStore;
  control::Handshake handshake = control::Handshake::initiator(config);
  EXPECT_TRUE(greet(fd.get(), handshake).ok());
  return fd;
}

TEST(LinkFaults, AClientThatSendsWhatIsNoMessageIsCutOff) {
  TestMaster master(answer_at_once);
  const auto malformed = [](uint8_t type) {
    return control::encode_frame(static_cast<control::FrameType>(type), 1, std::vector<uint8_t>{1, 2, 3, 4, 5});
  };
  const std::vector<std::vector<uint8_t>> bad = {
      malformed(kFirstStoreFrame), malformed(kFirstStoreFrame + 14),
      control::encode_frame(control::FrameType::kProbe, 1, {}), std::vector<uint8_t>(100, 'x'),
      // A frame that promises more than may be sent.
      [] {
        std::vector<uint8_t> header = control::encode_frame(static_cast<control::FrameType>(kFirstStoreFrame), 1, {});
        header[19] = 0xff;
        return header;
      }()};
  size_t connections = 0;
  for (const auto& bytes : bad) {
    const UniqueFd fd = raw_client(master);
    send_all(fd.get(), bytes);
    EXPECT_TRUE(closed_by_other(fd.get()));
    ++connections;
    ASSERT_TRUE(master.wait([&] { return master.closed.size() == connections; }));
    EXPECT_EQ(master.closed.rbegin()->second.code(), StatusCode::kProtocol);
    EXPECT_THAT(master.closed.rbegin()->second.message(), HasSubstr("by hand"));
  }
  EXPECT_TRUE(master.arrived.empty());
  TestClient client(master.address());
  EXPECT_TRUE(client.start().call(Heartbeat{}).get().ok()) << "others are served";
}

TEST(LinkFaults, RequestsOfANewerBuildAreAnsweredAsNotSupported) {
  TestMaster master(answer_at_once);
  const UniqueFd fd = raw_client(master);
  send_all(fd.get(), control::encode_frame(static_cast<control::FrameType>(kAnswerBit - 1), 9, {}));
  const Result<Message> answer = decode(read_frame(fd.get()));
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(answer->answer);
  EXPECT_EQ(answer->request, 9u);
  EXPECT_EQ(std::get<CodeAnswer>(answer->body).code, Code::kNotSupported);
}

// A master by hand.
struct RawMaster {
  UniqueFd accept() {
    UniqueFd fd = listener.accept_one();
    control::HandshakeConfig config;
    config.name = "by hand";
    config.nonce = control::make_nonce();
    config.store_port = true;
    control::Handshake handshake = control::Handshake::acceptor(config);
    EXPECT_TRUE(greet(fd.get(), handshake).ok());
    return fd;
  }
  RawListener listener;
};

TEST(LinkFaults, AMasterThatSendsWhatIsNoMessageIsLeftForANewConnection) {
  RawMaster master;
  TestClient client(master.listener.address());
  client.start();
  UniqueFd first = master.accept();
  auto pending = client.call(Heartbeat{}, kNever);
  EXPECT_EQ(read_frame(first.get()).request, 1u);
  send_all(first.get(), control::encode_frame(static_cast<control::FrameType>(kFirstStoreFrame | kAnswerBit), 1,
                                              std::vector<uint8_t>{1, 2, 3}));
  EXPECT_EQ(pending.get().status().code(), StatusCode::kPeerGone);
  EXPECT_THAT(pending.get().status().message(), HasSubstr("malformed Attach"));
  EXPECT_TRUE(closed_by_other(first.get()));
  const UniqueFd second = master.accept();
  EXPECT_TRUE(client.wait_up(2));
}

TEST(LinkFaults, AConnectionThatWentSilentIsReplaced) {
  RawMaster master;
  TestClient client(master.listener.address());
  client.options.silence = kMillisecond;
  client.start();
  const UniqueFd silent = master.accept();
  auto late = client.call(Heartbeat{}, 500 * kMillisecond);
  EXPECT_EQ(late.get().status().code(), StatusCode::kTimeout);
  const UniqueFd second = master.accept();
  auto answered = client.call(Heartbeat{});
  const control::Frame request = read_frame(second.get());
  send_all(second.get(), encode({request.request, true, HeartbeatAnswer{}}));
  EXPECT_TRUE(answered.get().ok());
  ASSERT_EQ(client.downs.size(), 1u);
  EXPECT_EQ(client.downs[0].code(), StatusCode::kTimeout);
}

}  // namespace
}  // namespace tidewire::store
