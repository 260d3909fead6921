// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "control/handshake.h"

namespace tidewire::control {
namespace {

constexpr const char* kSecret = "a cluster secret of some length";

InstanceId id(uint8_t value) {
  InstanceId out{};
  out.fill(value);
  return out;
}

HandshakeConfig config(uint8_t number, const std::string& secret = "") {
  HandshakeConfig out;
  out.instance = id(number);
  out.name = "engine" + std::to_string(number) + ":4000";
  out.secret = secret;
  out.nonce.fill(static_cast<uint8_t>(100 + number));
  return out;
}

// Carries bytes in both directions until both sides are done or nothing moves. Returns the number of messages.
int converse(Handshake& initiator, Handshake& acceptor) {
  int messages = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (auto [from, to] : {std::pair{&initiator, &acceptor}, std::pair{&acceptor, &initiator}}) {
      const std::vector<uint8_t> bytes = from->take_output();
      if (bytes.empty()) continue;
      moved = true;
      ++messages;
      if (!to->over()) {
        EXPECT_EQ(to->feed(bytes), bytes.size());
      }
    }
  }
  return messages;
}

TEST(Handshake, AgreesInOneRoundTripWithoutASecret) {
  HandshakeConfig asker = config(1);
  asker.role = Role::kData;
  asker.channel = 77;
  asker.rail = 3;
  asker.expected = id(2);
  Handshake initiator = Handshake::initiator(asker), acceptor = Handshake::acceptor(config(2));
  EXPECT_EQ(converse(initiator, acceptor), 2);
  ASSERT_TRUE(initiator.over() && acceptor.over());
  ASSERT_TRUE(initiator.status().ok()) << initiator.status().to_string();
  ASSERT_TRUE(acceptor.status().ok()) << acceptor.status().to_string();
  EXPECT_EQ(initiator.agreement().peer, id(2));
  EXPECT_EQ(initiator.agreement().peer_name, "engine2:4000");
  EXPECT_EQ(initiator.agreement().version, kProtocolVersion);
  EXPECT_EQ(acceptor.agreement().peer, id(1));
  EXPECT_EQ(acceptor.agreement().role, Role::kData);
  EXPECT_EQ(acceptor.agreement().channel, 77u);
  EXPECT_EQ(acceptor.agreement().rail, 3u);
}

TEST(Handshake, ProvesTheSecretBothWays) {
  Handshake initiator = Handshake::initiator(config(1, kSecret)), acceptor = Handshake::acceptor(config(2, kSecret));
  EXPECT_EQ(converse(initiator, acceptor), 3);
  EXPECT_TRUE(initiator.over() && initiator.status().ok());
  EXPECT_TRUE(acceptor.over() && acceptor.status().ok());
}

TEST(Handshake, AcceptorBelievesNothingBeforeTheProof) {
  Handshake initiator = Handshake::initiator(config(1, kSecret)), acceptor = Handshake::acceptor(config(2, kSecret));
  acceptor.feed(initiator.take_output());
  EXPECT_FALSE(acceptor.over());
}

TEST(Handshake, DifferentSecretsAreToldToBoth) {
  Handshake initiator = Handshake::initiator(config(1, kSecret)),
            acceptor = Handshake::acceptor(config(2, "another secret of some length"));
  converse(initiator, acceptor);
  for (const Handshake* side : {&initiator, &acceptor}) {
    ASSERT_TRUE(side->over());
    EXPECT_EQ(side->status().code(), Code::kUnauthenticated);
    EXPECT_NE(side->status().message().find("differ"), std::string::npos) << side->status().message();
    EXPECT_EQ(side->status().message().find("another secret"), std::string::npos);
  }
}

TEST(Handshake, OneSidedSecretsNameTheSideThatLacksIt) {
  for (const bool initiator_has : {true, false}) {
    Handshake initiator = Handshake::initiator(config(1, initiator_has ? kSecret : "")),
              acceptor = Handshake::acceptor(config(2, initiator_has ? "" : kSecret));
    converse(initiator, acceptor);
    const std::string lacking =
        initiator_has ? "engine2:4000 has no cluster secret" : "engine1:4000 has no cluster secret";
    for (const Handshake* side : {&initiator, &acceptor}) {
      ASSERT_TRUE(side->over());
      EXPECT_EQ(side->status().code(), Code::kUnauthenticated);
      EXPECT_NE(side->status().message().find(lacking), std::string::npos) << side->status().message();
    }
  }
}

TEST(Handshake, NeighbouringVersionsMeetAtTheLowerOne) {
  for (const auto& [mine, theirs] : {std::pair{2u, 1u}, {1u, 2u}, {2u, 2u}, {2u, 3u}, {3u, 2u}, {1u, 1u}}) {
    for (const std::string secret : {"", kSecret}) {
      HandshakeConfig a = config(1, secret), b = config(2, secret);
      a.version = mine;
      b.version = theirs;
      Handshake initiator = Handshake::initiator(a), acceptor = Handshake::acceptor(b);
      converse(initiator, acceptor);
      ASSERT_TRUE(initiator.status().ok() && acceptor.status().ok()) << initiator.status().to_string();
      EXPECT_EQ(initiator.agreement().version, std::min(mine, theirs));
      EXPECT_EQ(acceptor.agreement().version, std::min(mine, theirs));
    }
  }
}

TEST(Handshake, DistantVersionsAreRefusedAndNamed) {
  for (const auto& [mine, theirs] : {std::pair{2u, 4u}, {4u, 2u}, {1u, 3u}, {9u, 2u}}) {
    HandshakeConfig a = config(1), b = config(2);
    a.version = mine;
    b.version = theirs;
    Handshake initiator = Handshake::initiator(a), acceptor = Handshake::acceptor(b);
    converse(initiator, acceptor);
    for (const Handshake* side : {&initiator, &acceptor}) {
      ASSERT_TRUE(side->over());
      EXPECT_EQ(side->status().code(), Code::kProtocol);
      for (const uint32_t version : {mine, theirs})
        EXPECT_NE(side->status().message().find("to " + std::to_string(version)), std::string::npos)
            << side->status().message();
    }
  }
}

TEST(Handshake, FeaturesAreTheIntersection) {
  HandshakeConfig a = config(1), b = config(2);
  a.features = 0b0111;
  b.features = 0b1110;
  Handshake initiator = Handshake::initiator(a), acceptor = Handshake::acceptor(b);
  converse(initiator, acceptor);
  EXPECT_EQ(initiator.agreement().features, 0b0110u);
  EXPECT_EQ(acceptor.agreement().features, 0b0110u);
}

TEST(Handshake, AnotherInstanceIsToldAndSeen) {
  for (const std::string secret : {"", kSecret}) {
    HandshakeConfig a = config(1, secret);
    a.expected = id(9);
    Handshake initiator = Handshake::initiator(a), acceptor = Handshake::acceptor(config(2, secret));
    converse(initiator, acceptor);
    EXPECT_EQ(initiator.status().code(), Code::kPeerGone);
    EXPECT_EQ(acceptor.status().code(), Code::kPeerGone);
    EXPECT_EQ(initiator.seen(), id(2));
  }
}

// An attacker without the secret plays the acceptor by handing the initiator's own messages back, or those of an
// earlier conversation.
TEST(Handshake, ReflectionAndReplayAreRefused) {
  Handshake honest_initiator = Handshake::initiator(config(1, kSecret)),
            honest_acceptor = Handshake::acceptor(config(2, kSecret));
  const auto hello = honest_initiator.take_output();
  honest_acceptor.feed(hello);
  const auto answer = honest_acceptor.take_output();
  honest_initiator.feed(answer);
  const auto confirm = honest_initiator.take_output();

  // The answer, replayed to an initiator with a fresh nonce.
  HandshakeConfig fresh = config(1, kSecret);
  fresh.nonce.fill(7);
  Handshake initiator = Handshake::initiator(fresh);
  initiator.feed(answer);
  EXPECT_EQ(initiator.status().code(), Code::kUnauthenticated);

  // Hello and confirmation, replayed to an acceptor with a fresh nonce.
  HandshakeConfig other = config(2, kSecret);
  other.nonce.fill(8);
  Handshake acceptor = Handshake::acceptor(other);
  acceptor.feed(hello);
  acceptor.feed(confirm);
  ASSERT_TRUE(acceptor.over());
  EXPECT_EQ(acceptor.status().code(), Code::kUnauthenticated);

  // Two engines of one name and nonce: the acceptor's proof must not serve as the initiator's.
  Handshake mirror_initiator = Handshake::initiator(config(3, kSecret)),
            mirror_acceptor = Handshake::acceptor(config(3, kSecret));
  mirror_acceptor.feed(mirror_initiator.take_output());
  auto proof_frame = mirror_acceptor.take_output();
  proof_frame[5] = static_cast<uint8_t>(FrameType::kConfirm);
  mirror_acceptor.feed(proof_frame);
  ASSERT_TRUE(mirror_acceptor.over());
  EXPECT_FALSE(mirror_acceptor.status().ok());
}

TEST(Handshake, NoFlippedBitPassesUnderASecret) {
  const auto hello = Handshake::initiator(config(1, kSecret)).take_output();
  for (size_t bit = 0; bit < hello.size() * 8; ++bit) {
    Handshake initiator = Handshake::initiator(config(1, kSecret)), acceptor = Handshake::acceptor(config(2, kSecret));
    auto changed = initiator.take_output();
    changed[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    acceptor.feed(changed);
    converse(initiator, acceptor);
    if (!acceptor.over() || !acceptor.status().ok()) continue;
    // Only bits that mean nothing may change: padding, table offsets that read the same, and the name, which is for
    // messages.
    EXPECT_EQ(acceptor.agreement().peer, id(1));
    EXPECT_EQ(acceptor.agreement().role, Role::kControl);
    EXPECT_EQ(acceptor.agreement().version, kProtocolVersion);
    EXPECT_EQ(acceptor.agreement().channel, 0u);
  }
}

TEST(Handshake, GarbageEndsItAndNeverMore) {
  std::mt19937 random(2);
  const auto hello = Handshake::initiator(config(1)).take_output();
  for (int round = 0; round < 20'000; ++round) {
    auto bytes = hello;
    const int flips = 1 + static_cast<int>(random() % 8);
    for (int i = 0; i < flips; ++i) bytes[random() % bytes.size()] ^= static_cast<uint8_t>(1 << (random() % 8));
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    Handshake acceptor = Handshake::acceptor(config(2));
    EXPECT_LE(acceptor.feed(bytes), bytes.size());
    acceptor.take_output();
  }
}

TEST(Handshake, WantsExactlyTheBytesOfTheHello) {
  Handshake initiator = Handshake::initiator(config(1)), acceptor = Handshake::acceptor(config(2));
  auto bytes = initiator.take_output();
  const size_t hello = bytes.size();
  bytes.insert(bytes.end(), {'d', 'a', 't', 'a'});
  size_t at = 0;
  while (acceptor.wanted() > 0) {
    const size_t size = std::min(acceptor.wanted(), bytes.size() - at);
    ASSERT_EQ(acceptor.feed({bytes.data() + at, size}), size);
    at += size;
  }
  EXPECT_EQ(at, hello);
  EXPECT_TRUE(acceptor.status().ok());
}

TEST(Handshake, NoncesDiffer) {
  EXPECT_NE(make_nonce(), make_nonce());
}

}  // namespace
}  // namespace tidewire::control
