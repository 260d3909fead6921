// SPDX-License-Identifier: Apache-2.0
//
// The transport's decisions that need no socket: which rails pair up, when a lane is dead.
#include <gtest/gtest.h>

#include "transport/tcp/rail_pairs.h"
#include "transport/tcp/stall_watch.h"

namespace tidewire::transport::tcp {
namespace {

using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;
std::vector<RailRecord> rails(std::initializer_list<const char*> addresses) {
  std::vector<RailRecord> records;
  for (const char* address : addresses) records.push_back({"tcp", "eth", address, 0});
  return records;
}

TEST(RailPairs, RailsOfOneSubnetMeet) {
  EXPECT_EQ(pair_rails(rails({"10.0.1.1:4", "10.0.2.1:4"}), rails({"10.0.2.9:7", "10.0.1.9:7"})),
            (Pairs{{0, 1}, {1, 0}}));
}

TEST(RailPairs, ByIndexWhereAddressesDontDecide) {
  EXPECT_EQ(pair_rails(rails({"10.0.0.1:4", "10.0.0.2:4"}), rails({"10.0.0.8:7", "10.0.0.9:7"})),
            (Pairs{{0, 0}, {1, 1}}));
  const Pairs far = pair_rails(rails({"10.0.0.1:4", "10.0.1.1:4"}), rails({"192.168.0.8:7", "192.168.1.9:7"}));
  EXPECT_EQ(far, (Pairs{{0, 0}, {1, 1}}));
}

TEST(RailPairs, FamiliesDontMixAndLeftOverRailsShare) {
  EXPECT_EQ(pair_rails(rails({"[fd00::1]:4", "10.0.0.1:4"}), rails({"10.0.0.2:7"})), (Pairs{{1, 0}}));
  EXPECT_TRUE(pair_rails(rails({"[fd00::1]:4"}), rails({"10.0.0.2:7"})).empty());
  EXPECT_EQ(pair_rails(rails({"10.0.0.1:4", "10.0.0.2:4"}), rails({"10.0.0.3:7"})), (Pairs{{0, 0}, {1, 0}}));
  EXPECT_EQ(pair_rails(rails({"10.0.0.1:4"}), rails({"10.0.0.3:7", "10.0.0.4:7"})), (Pairs{{0, 0}}));
}

TEST(RailPairs, OtherTransportsAndNonsenseAreLeftOut) {
  auto remote = rails({"nonsense", "10.0.0.2:7"});
  remote.insert(remote.begin(), {"fabric", "efa0", "10.0.0.9:7", 0});
  EXPECT_EQ(pair_rails(rails({"10.0.0.1:4"}), remote), (Pairs{{0, 2}}));
}

TEST(RailPairs, AddressesOfAllForms) {
  EXPECT_EQ(parse_rail_address("10.0.0.1:4000")->host, "10.0.0.1");
  EXPECT_EQ(parse_rail_address("10.0.0.1")->host, "10.0.0.1");
  EXPECT_EQ(parse_rail_address("[fe80::1%eth0]:4000")->host, "fe80::1%eth0");
  EXPECT_EQ(parse_rail_address("::1")->host, "::1");
  EXPECT_FALSE(parse_rail_address("host:1").has_value());
  EXPECT_FALSE(parse_rail_address("[::1").has_value());
  EXPECT_FALSE(parse_rail_address("").has_value());
}

class StallWatchTest : public testing::Test {
 protected:
  static constexpr Nanos kTimeout = 500 * kMillisecond;
  StallWatchTest() : watch_(kTimeout) { watch_.restart(0); }
  // Checks each 100 ms from `from` to `to`; the first verdict that is not kFine, and when.
  std::pair<StallWatch::Verdict, Nanos> run(Nanos from, Nanos to) {
    for (Nanos now = from; now <= to; now += 100 * kMillisecond) {
      const auto verdict = watch_.check(link_, now);
      if (verdict != StallWatch::Verdict::kFine) return {verdict, now};
    }
    return {StallWatch::Verdict::kFine, to};
  }
  LinkProgress link_;
  StallWatch watch_;
};

TEST_F(StallWatchTest, UnacknowledgedBytesThatDontMoveAreAStall) {
  link_.unacked_segments = 3;
  const auto [verdict, when] = run(0, 10 * kSecond);
  EXPECT_EQ(verdict, StallWatch::Verdict::kDead);
  EXPECT_GE(when, kTimeout);
  EXPECT_LE(when, kTimeout + 200 * kMillisecond);
}

TEST_F(StallWatchTest, ASlowLinkThatMovesIsFine) {
  link_.unacked_segments = 1'000;
  link_.unsent_bytes = 4 << 20;
  for (Nanos now = 0; now < 60 * kSecond; now += 100 * kMillisecond) {
    if (now % (400 * kMillisecond) == 0) link_.bytes_acked += 1448;
    ASSERT_EQ(watch_.check(link_, now), StallWatch::Verdict::kFine) << now;
  }
}

TEST_F(StallWatchTest, LongRoundTripsStretchThePatience) {
  link_.unacked_segments = 3;
  link_.rtt = 400 * kMillisecond;
  link_.rtt_variance = 50 * kMillisecond;
  EXPECT_EQ(run(0, 1'100 * kMillisecond).first, StallWatch::Verdict::kFine);
  EXPECT_EQ(run(1'200 * kMillisecond, 3 * kSecond).first, StallWatch::Verdict::kDead);
}

TEST_F(StallWatchTest, AClosedWindowIsLeftToTheDeadlines) {
  link_.unsent_bytes = 1 << 20;
  EXPECT_EQ(run(0, 60 * kSecond).first, StallWatch::Verdict::kFine);
}

// What the kernel says after the interface under a connection went down between two packets.
TEST_F(StallWatchTest, BytesThatTheOwnInterfaceRefusesAreAStall) {
  link_.unsent_bytes = 2 << 20;
  link_.window_bytes = 8 << 20;
  const auto [verdict, when] = run(0, 10 * kSecond);
  EXPECT_EQ(verdict, StallWatch::Verdict::kDead);
  EXPECT_LE(when, kTimeout + 200 * kMillisecond);
}

TEST_F(StallWatchTest, TheRestOfAClosingWindowIsLeftToTheDeadlines) {
  link_.unsent_bytes = 1 << 20;
  link_.window_bytes = 30'000;
  link_.segment_bytes = 65'483;
  EXPECT_EQ(run(0, 60 * kSecond).first, StallWatch::Verdict::kFine);
}

TEST_F(StallWatchTest, SilenceIsAskedAndADeadLinkThenShows) {
  const auto [verdict, when] = run(0, 10 * kSecond);
  EXPECT_EQ(verdict, StallWatch::Verdict::kAsk);
  EXPECT_LE(when, kTimeout);
  link_.unacked_segments = 1;  // the ping
  const auto [second, dead_at] = run(when + 100 * kMillisecond, 10 * kSecond);
  EXPECT_EQ(second, StallWatch::Verdict::kDead);
  EXPECT_LE(dead_at, 2 * kTimeout);
}

TEST_F(StallWatchTest, AnAnsweredPingIsAskedAgainLater) {
  const auto [verdict, when] = run(0, 10 * kSecond);
  ASSERT_EQ(verdict, StallWatch::Verdict::kAsk);
  link_.bytes_acked += 40;
  EXPECT_EQ(run(when + 100 * kMillisecond, when + 200 * kMillisecond).first, StallWatch::Verdict::kFine);
  EXPECT_EQ(run(when + 300 * kMillisecond, when + 10 * kSecond).first, StallWatch::Verdict::kAsk);
}

}  // namespace
}  // namespace tidewire::transport::tcp
