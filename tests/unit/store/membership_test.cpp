// SPDX-License-Identifier: Apache-2.0
#include "store/client/membership.h"

#include <gtest/gtest.h>

#include <deque>

namespace tidewire::store {
namespace {

struct Wire : Membership::Io {
  std::deque<std::pair<Body, std::function<void(const Body*)>>> asked;
  std::vector<std::pair<uint64_t, Body>> answered;
  std::vector<std::function<void()>> quiets;
  int changes = 0;
  void ask(Body request, std::function<void(const Body*)> done) override { asked.emplace_back(std::move(request), std::move(done)); }
  void answer(uint64_t request, Body body) override { answered.emplace_back(request, std::move(body)); }
  void quiet(const Quiet&, std::function<void()> done) override { quiets.push_back(std::move(done)); }
  void on_standing() override { ++changes; }
  // Answers the oldest request.
  template <typename Request>
  Request reply(const Body& body) {
    auto [request, done] = std::move(asked.front());
    asked.pop_front();
    done(&body);
    return std::get<Request>(request);
  }
};

AttachAnswer welcome(InventoryWish wish = InventoryWish::kNone) {
  AttachAnswer answer;
  answer.inventory = wish;
  answer.heartbeat = kSecond;
  answer.client_ttl = 10 * kSecond;
  answer.max_lease = 10 * kSecond;
  return answer;
}

TEST(Membership, AttachesAndThenShowsThatItLives) {
  Wire wire;
  Membership membership({1}, "a:1", "a", wire);
  membership.on_connected(0);
  EXPECT_FALSE(membership.attached());
  EXPECT_EQ(wire.reply<Attach>(welcome()).name, "a:1");
  EXPECT_TRUE(membership.attached());
  EXPECT_EQ(membership.tick(0), kSecond);
  membership.tick(kSecond);
  wire.reply<Heartbeat>(HeartbeatAnswer{});
  EXPECT_TRUE(membership.attached());
}

TEST(Membership, AttachesAgainWhenTheMasterDoesNotKnowIt) {
  Wire wire;
  Membership membership({1}, "a:1", "a", wire);
  membership.on_connected(0);
  wire.reply<Attach>(welcome());
  membership.tick(kSecond);
  wire.reply<Heartbeat>(CodeAnswer{Code::kClientNotFound});
  EXPECT_FALSE(membership.attached());
  wire.reply<Attach>(welcome());
  EXPECT_TRUE(membership.attached());
}

TEST(Membership, TriesAgainWhileTheMasterIsNotReady) {
  Wire wire;
  Membership membership({1}, "a:1", "a", wire);
  membership.on_connected(0);
  AttachAnswer later = welcome();
  later.code = Code::kUnavailable;
  wire.reply<Attach>(later);
  EXPECT_TRUE(wire.asked.empty());
  membership.tick(membership.tick(0));
  ASSERT_EQ(wire.asked.size(), 1u);
  wire.reply<Attach>(welcome());
  EXPECT_TRUE(membership.attached());
}

TEST(Membership, HandsItsInventoryToANewMaster) {
  Wire wire;
  Membership membership({1}, "a:1", "a", wire);
  membership.mount({0, "a:1", 0, 4096}, 0);
  membership.on_connected(0);
  wire.reply<Attach>(welcome());
  membership.on_request(1, Grant{1, {9}, 0, kSecond}, 0);
  membership.on_request(2, Record{1, {{"k", 5, 0, 0, 64}}}, 0);
  membership.on_disconnected();
  membership.on_connected(0);
  EXPECT_EQ(wire.reply<Attach>(welcome(InventoryWish::kSend)).entries, 1u);
  EXPECT_FALSE(membership.attached());
  const auto chunk = wire.reply<InventoryChunk>(CodeAnswer{Code::kOk});
  ASSERT_EQ(chunk.entries.size(), 1u);
  EXPECT_TRUE(chunk.last);
  EXPECT_TRUE(membership.attached());
}

TEST(Membership, StartsEmptyWhenItMissedRemovals) {
  Wire wire;
  Membership membership({1}, "a:1", "a", wire);
  membership.mount({0, "a:1", 0, 4096}, 0);
  membership.on_connected(0);
  wire.reply<Attach>(welcome());
  membership.on_request(1, Grant{1, {9}, 0, kSecond}, 0);
  membership.on_request(2, Record{1, {{"k", 5, 0, 0, 64}}}, 0);
  membership.on_disconnected();
  membership.on_connected(0);
  wire.reply<Attach>(welcome(InventoryWish::kClear));
  EXPECT_EQ(wire.reply<Attach>(welcome()).entries, 0u);
  EXPECT_TRUE(membership.attached());
}

TEST(Membership, AnswersQuietOnlyOnceItIsAndOnlyToTheConnectionThatAsked) {
  Wire wire;
  Membership membership({1}, "a:1", "a", wire);
  membership.on_connected(0);
  membership.on_request(7, Quiet{1, {2}, "b:1"}, 0);
  EXPECT_TRUE(wire.answered.empty());
  wire.quiets[0]();
  ASSERT_EQ(wire.answered.size(), 1u);
  membership.on_request(8, Quiet{1, {2}, "b:1"}, 0);
  membership.on_disconnected();
  wire.quiets[1]();
  EXPECT_EQ(wire.answered.size(), 1u);
}

TEST(Membership, IgnoresAnswersOfAnEarlierConnection) {
  Wire wire;
  Membership membership({1}, "a:1", "a", wire);
  membership.on_connected(0);
  membership.on_disconnected();
  membership.on_connected(0);
  wire.reply<Attach>(welcome());
  EXPECT_FALSE(membership.attached());
  wire.reply<Attach>(welcome());
  EXPECT_TRUE(membership.attached());
}

}  // namespace
}  // namespace tidewire::store
