// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "transport/tcp/lane_ledger.h"

namespace tidewire::transport::tcp {
namespace {

const InstanceId kAlice{1}, kBob{2};

TEST(LaneLedger, ALaneLivesOnceAtATime) {
  LaneLedger ledger;
  EXPECT_TRUE(ledger.admit(kAlice, 7, 0).ok());
  EXPECT_EQ(ledger.admit(kAlice, 7, 0).code(), Code::kProtocol);
  EXPECT_TRUE(ledger.admit(kBob, 7, 0).ok());
  ledger.gone(kAlice, 7);
  EXPECT_TRUE(ledger.admit(kAlice, 7, 0).ok());
  EXPECT_EQ(ledger.live(), 2u);
}

TEST(LaneLedger, RevokingTellsWhetherThereIsSomethingToCut) {
  LaneLedger ledger;
  EXPECT_TRUE(ledger.admit(kAlice, 1, 0).ok());
  EXPECT_TRUE(ledger.revoke(kAlice, 1, 0));
  EXPECT_TRUE(ledger.revoke(kAlice, 1, 0)) << "still live until it is gone: asking again must cut again";
  ledger.gone(kAlice, 1);
  EXPECT_FALSE(ledger.revoke(kAlice, 1, 0));
  EXPECT_FALSE(ledger.revoke(kAlice, 2, 0));
}

TEST(LaneLedger, ARevokedLaneThatConnectsLaterIsRefused) {
  LaneLedger ledger;
  EXPECT_FALSE(ledger.revoke(kAlice, 5, 0));
  EXPECT_EQ(ledger.admit(kAlice, 5, LaneLedger::kTombstoneLife - 1).code(), Code::kCanceled);
  EXPECT_TRUE(ledger.admit(kAlice, 6, 0).ok());
}

TEST(LaneLedger, InitiatorsRevokeOnlyTheirOwn) {
  LaneLedger ledger;
  EXPECT_TRUE(ledger.admit(kBob, 5, 0).ok());
  EXPECT_FALSE(ledger.revoke(kAlice, 5, 0));
  EXPECT_TRUE(ledger.revoke(kBob, 5, 0));
}

TEST(LaneLedger, TombstonesExpire) {
  LaneLedger ledger;
  for (uint64_t channel = 1; channel <= 100; ++channel) ledger.revoke(kAlice, channel, 0);
  EXPECT_EQ(ledger.tombstones(), 100u);
  ledger.revoke(kBob, 1, LaneLedger::kTombstoneLife);
  EXPECT_EQ(ledger.tombstones(), 1u);
  EXPECT_TRUE(ledger.admit(kAlice, 5, LaneLedger::kTombstoneLife).ok());
}

TEST(LaneLedger, TooManyTombstonesMergeAndNoneIsForgottenEarly) {
  LaneLedger ledger;
  const uint64_t many = LaneLedger::kMaxTombstones + 1'000;
  EXPECT_TRUE(ledger.admit(kAlice, 10, 0).ok());
  for (uint64_t channel = 11; channel <= many; ++channel) ledger.revoke(kAlice, channel, 1);
  EXPECT_LE(ledger.tombstones(), LaneLedger::kMaxTombstones);
  for (uint64_t channel = 11; channel <= many; ++channel) {
    ASSERT_EQ(ledger.admit(kAlice, channel, 2).code(), Code::kCanceled) << channel;
  }
  EXPECT_TRUE(ledger.admit(kAlice, many + 1, 2).ok());
  EXPECT_EQ(ledger.live(), 2u) << "what lives is not touched by the floor";
  ledger.gone(kAlice, 10);
  ledger.gone(kAlice, many + 1);
  EXPECT_TRUE(ledger.admit(kBob, 1, 10 * LaneLedger::kTombstoneLife).ok());
  EXPECT_EQ(ledger.tombstones(), 0u);
}

}  // namespace
}  // namespace tidewire::transport::tcp
