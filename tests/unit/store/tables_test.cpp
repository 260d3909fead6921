// SPDX-License-Identifier: Apache-2.0
//
// SegmentAllocator, ObjectTable and JournalState: what the master keeps its books with.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "store/master/journal.h"
#include "store/master/object_table.h"
#include "store/master/segment_allocator.h"

namespace tidewire::store {
namespace {

TEST(SegmentAllocator, IsOneRangeAgainAfterMixedSizes) {
  constexpr uint64_t kSize = 256 << 20;
  SegmentAllocator space(kSize);
  std::mt19937_64 random(1);
  for (const uint64_t size : {uint64_t{1} << 20, uint64_t{3} << 20, uint64_t{17} << 20, uint64_t{4096}}) {
    std::vector<uint64_t> offsets;
    while (const auto offset = space.allocate(size)) offsets.push_back(*offset);
    EXPECT_LT(space.free_bytes(), size);
    std::shuffle(offsets.begin(), offsets.end(), random);
    for (const uint64_t offset : offsets) space.free(offset, size);
    EXPECT_EQ(space.largest_free(), kSize);
  }
  std::map<uint64_t, uint64_t> used;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t size = 1 + random() % (random() % 4 == 0 ? 8 << 20 : 8 << 10);
    if (const auto offset = space.allocate(size)) {
      // No two ranges overlap.
      const auto after = used.lower_bound(*offset);
      ASSERT_TRUE(after == used.end() || *offset + size <= after->first);
      ASSERT_TRUE(after == used.begin() || std::prev(after)->first + std::prev(after)->second <= *offset);
      used[*offset] = size;
    }
    if (random() % 2 == 0 && !used.empty()) {
      auto victim = used.lower_bound(random() % kSize);
      if (victim == used.end()) victim = used.begin();
      space.free(victim->first, victim->second);
      used.erase(victim);
    }
  }
  for (const auto& [offset, size] : used) space.free(offset, size);
  EXPECT_EQ(space.largest_free(), kSize);
  EXPECT_EQ(space.used_bytes(), 0u);
}

TEST(SegmentAllocator, ReservesOnlyWhatIsFree) {
  SegmentAllocator space(4096);
  EXPECT_TRUE(space.reserve(1024, 100));
  EXPECT_FALSE(space.reserve(1024, 100));
  EXPECT_FALSE(space.reserve(960, 100));
  EXPECT_FALSE(space.reserve(4032, 100));
  EXPECT_FALSE(space.reserve(10, 10));
  EXPECT_EQ(space.used_bytes(), 128u);
  EXPECT_TRUE(space.reserve(1152, 64));
}

TEST(ObjectTable, FindsWhatWasInsertedAndNotErased) {
  ObjectTable table;
  std::map<std::string, ObjectTable::Id> model;
  std::mt19937_64 random(2);
  for (int i = 0; i < 50'000; ++i) {
    const std::string key = "key-" + std::to_string(random() % 8'000);
    const auto known = model.find(key);
    const ObjectTable::Id found = table.find(key);
    ASSERT_EQ(found, known == model.end() ? ObjectTable::kNone : known->second);
    if (known == model.end()) {
      model[key] = table.insert(key);
    } else if (random() % 2 == 0) {
      table.erase(found);
      model.erase(known);
    }
    ASSERT_EQ(table.size(), model.size());
  }
}

TEST(JournalState, IsTheSumOfItsRecords) {
  using Kind = JournalRecord::Kind;
  const ClientId a{1}, b{2}, c{3};
  JournalState state;
  EXPECT_TRUE(state.fresh);
  for (const JournalRecord& record : std::vector<JournalRecord>{{Kind::kTerm, 4, {}, {}},
                                                                {Kind::kMember, 0, a, "a"},
                                                                {Kind::kMember, 0, b, "b"},
                                                                {Kind::kMember, 0, c, "c"},
                                                                {Kind::kTombstone, 7, a, "key"},
                                                                {Kind::kTombstone, 9, a, "key"},
                                                                {Kind::kTombstone, 7, b, "key"},
                                                                {Kind::kForgot, 0, b, {}},
                                                                {Kind::kGone, 0, c, {}},
                                                                {Kind::kGeneration, 3, {}, {}}})
    state.apply(record);
  JournalState again;
  for (const JournalRecord& record : state.records()) again.apply(record);
  for (const JournalState* each : {&state, &again}) {
    EXPECT_EQ(each->term, 4u);
    EXPECT_EQ(each->generation, 3u);
    EXPECT_FALSE(each->fresh);
    EXPECT_EQ(each->members.at(a).tombstones.at("key"), (std::set<Version>{7, 9}));
    EXPECT_TRUE(each->members.at(b).tombstones.empty());
    EXPECT_TRUE(each->members.at(c).gone);
  }
}

// Fault: a second crash within the first second after the journal was lost cleared all owners.
TEST(JournalState, IsFreshUntilAMasterHasFoundOutWhoTheMembersAre) {
  JournalState state;
  state.apply({JournalRecord::Kind::kTerm, 1, {}, {}});
  state.apply({JournalRecord::Kind::kMember, 0, ClientId{1}, "a"});
  JournalState again;
  for (const JournalRecord& record : state.records()) again.apply(record);
  EXPECT_TRUE(again.fresh);
  again.apply({JournalRecord::Kind::kGeneration, 1, {}, {}});
  EXPECT_FALSE(again.fresh);
}

}  // namespace
}  // namespace tidewire::store
