// SPDX-License-Identifier: Apache-2.0
#include "store/owner/inventory.h"

#include <gtest/gtest.h>

namespace tidewire::store {
namespace {

const InstanceId kFirst{1}, kSecondMaster{2};

InventoryEntry entry(const std::string& key, Version version, uint64_t offset, uint64_t size = 64, uint32_t segment = 0) {
  return {key, version, segment, offset, size};
}

TEST(Inventory, ObeysOnlyTheHighestTermThatItGranted) {
  Inventory inventory;
  EXPECT_EQ(inventory.on_grant({2, kFirst, 0, kSecond}, 0).code, Code::kOk);
  const GrantAnswer refused = inventory.on_grant({1, kSecondMaster, 0, kSecond}, 0);
  EXPECT_EQ(refused.code, Code::kInvalidVersion);
  EXPECT_EQ(refused.term, 2u);
  EXPECT_EQ(inventory.on_record({1, {entry("k", 1, 0)}}).codes[0], Code::kInvalidVersion);
  EXPECT_EQ(inventory.on_record({2, {entry("k", 1, 0)}}).codes[0], Code::kOk);
  EXPECT_EQ(inventory.on_drop({1, 0, {{"k", 1}}, {}}, 0).codes[0], Code::kInvalidVersion);
  EXPECT_EQ(inventory.size(), 1u);
}

TEST(Inventory, TellsANewMasterHowLongTheOneBeforeMayHaveWriters) {
  Inventory inventory;
  inventory.on_grant({1, kFirst, 0, 4 * kSecond}, 0);
  EXPECT_EQ(inventory.on_grant({2, kSecondMaster, 0, 4 * kSecond}, kSecond).wait, 3 * kSecond);
  EXPECT_EQ(inventory.on_grant({2, kSecondMaster, 0, 4 * kSecond}, kSecond).wait, 0);
}

TEST(Inventory, TakesARecordTwiceWithoutHarm) {
  Inventory inventory;
  inventory.on_grant({1, kFirst, 0, kSecond}, 0);
  inventory.on_record({1, {entry("k", 7, 64)}});
  inventory.on_record({1, {entry("k", 7, 64)}});
  EXPECT_EQ(inventory.size(), 1u);
}

TEST(Inventory, ReportsDroppedRangesWhileReadersMayBeAtThem) {
  Inventory inventory;
  inventory.on_grant({1, kFirst, 0, kSecond}, 0);
  inventory.on_record({1, {entry("k", 7, 64)}});
  inventory.on_drop({1, 0, {{"k", 7}}, {5 * kSecond}}, 0);
  Inventory::Cursor cursor;
  const InventoryChunk chunk = inventory.next_chunk(&cursor, kSecond);
  ASSERT_EQ(chunk.held.size(), 1u);
  EXPECT_EQ(chunk.held[0].remaining, 4 * kSecond);
  Inventory::Cursor later;
  EXPECT_TRUE(inventory.next_chunk(&later, 6 * kSecond).held.empty());
}

// The master's clock says when leases are over; by the owner's, a little slower, the range was still held, and a new master refused the object in it.
TEST(Inventory, ARangeThatIsRecordedAnewIsNotHeldAnyMore) {
  Inventory inventory;
  inventory.on_grant({1, kFirst, 0, kSecond}, 0);
  inventory.on_record({1, {entry("old", 7, 64, 128)}});
  inventory.on_drop({1, 0, {{"old", 7}}, {5 * kSecond}}, 0);
  inventory.on_record({1, {entry("new", 8, 128)}});
  Inventory::Cursor cursor;
  EXPECT_TRUE(inventory.next_chunk(&cursor, kSecond).held.empty());
}

TEST(Inventory, KeepsClearedRangesFromBeingGivenOutUnderReaders) {
  Inventory inventory;
  inventory.on_grant({1, kFirst, 0, kSecond}, 0);
  inventory.on_record({1, {entry("k", 7, 64)}});
  inventory.clear(10 * kSecond, 0);
  EXPECT_EQ(inventory.size(), 0u);
  Inventory::Cursor cursor;
  const InventoryChunk chunk = inventory.next_chunk(&cursor, 5 * kSecond);
  ASSERT_EQ(chunk.held.size(), 1u);
  // Leases that are given until the grant ends.
  EXPECT_GE(chunk.held[0].remaining, 6 * kSecond);
}

TEST(Inventory, RecordsNothingInASegmentThatWasTakenBack) {
  Inventory inventory;
  inventory.on_grant({1, kFirst, 0, kSecond}, 0);
  inventory.on_record({1, {entry("k", 7, 0), entry("l", 8, 0, 64, 1)}});
  inventory.unmount(0);
  EXPECT_EQ(inventory.size(), 1u);
  EXPECT_EQ(inventory.on_record({1, {entry("late", 9, 64)}}).codes[0], Code::kSegmentNotFound);
  EXPECT_FALSE(inventory.find("late"));
  EXPECT_TRUE(inventory.find("l"));
}

TEST(Inventory, GivesItselfInChunksInTheOrderOfPlaces) {
  Inventory inventory;
  inventory.on_grant({1, kFirst, 0, kSecond}, 0);
  for (uint64_t i = 0; i < kMaxBatch + 5; ++i) inventory.on_record({1, {entry("k" + std::to_string(i), i + 1, i * 64)}});
  Inventory::Cursor cursor;
  const InventoryChunk first = inventory.next_chunk(&cursor, 0);
  EXPECT_EQ(first.entries.size(), kMaxBatch);
  EXPECT_FALSE(first.last);
  const InventoryChunk second = inventory.next_chunk(&cursor, 0);
  EXPECT_EQ(second.entries.size(), 5u);
  EXPECT_TRUE(second.last);
}

}  // namespace
}  // namespace tidewire::store
