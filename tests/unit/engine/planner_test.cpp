// SPDX-License-Identifier: Apache-2.0
#include "engine/planner.h"

#include <gtest/gtest.h>

#include "session_harness.h"

namespace tidewire::engine {
namespace {

constexpr uint64_t kLocal = 1 << 20, kRemote = 64 << 20;

// What a slice is, without the hold on regions that can't be copied.
struct Cut {
  uint64_t bytes;
  std::vector<transport::Piece> pieces;
  Range range;
};

Cut cut(const Job& job, Range& range, uint64_t bytes, uint64_t pieces = 1000) {
  JobSlice slice;
  cut_slice(job, range, {bytes, pieces}, slice);
  return {slice.bytes, slice.pieces, slice.range};
}

TEST(SliceBytes, AreAllThatIsAllowedWhenOneChannelIsThere) {
  EXPECT_EQ(slice_bytes(100, 1, 4096, 1 << 20), 1u << 20);
  EXPECT_EQ(slice_bytes(1 << 30, 0, 4096, 1 << 20), 1u << 20);
}

TEST(SliceBytes, ShrinkTowardsTheEndSoThatChannelsFinishTogether) {
  EXPECT_EQ(slice_bytes(64 << 20, 4, 64 << 10, 1 << 20), 1u << 20);
  EXPECT_EQ(slice_bytes(4 << 20, 4, 64 << 10, 1 << 20), 512u << 10);
  EXPECT_EQ(slice_bytes(1000, 4, 64 << 10, 1 << 20), 64u << 10);
}

TEST(SliceBytes, AreMultiplesOfAPage) { EXPECT_EQ(slice_bytes(10'000'001, 4, 4096, 8 << 20) % 4096, 0u); }

TEST(SliceBytes, StayWithinTheTransportsLimitWhenThatIsBelowTheLeast) {
  EXPECT_EQ(slice_bytes(1 << 20, 4, 64 << 10, 16 << 10), 16u << 10);
}

TEST(CutSlice, MergesNeighboursIntoOnePiece) {
  const JobPtr job = make_job(10, 100, 0, kSecond);
  const Cut slice = cut(*job, job->rest, 1 << 20);
  ASSERT_EQ(slice.pieces.size(), 1u);
  EXPECT_EQ(slice.pieces[0].local, kLocal);
  EXPECT_EQ(slice.pieces[0].remote, kRemote);
  EXPECT_EQ(slice.pieces[0].length, 1000u);
  EXPECT_EQ(slice.bytes, 1000u);
  EXPECT_TRUE(job->rest.empty());
}

TEST(CutSlice, DoesNotMergeWhereOnlyOneSideIsAdjacent) {
  const JobPtr job = make_job(2, 100, 0, kSecond);
  job->transfers[1].remote += 1;
  EXPECT_EQ(cut(*job, job->rest, 1 << 20).pieces.size(), 2u);
  const JobPtr other = make_job(2, 100, 0, kSecond);
  other->transfers[1].local += 1;
  EXPECT_EQ(cut(*other, other->rest, 1 << 20).pieces.size(), 2u);
}

TEST(CutSlice, CutsALargeTransferWithoutGapOrOverlap) {
  const JobPtr job = make_job(1, 10'000, 0, kSecond);
  uint64_t at = 0;
  while (!job->rest.empty()) {
    const Cut slice = cut(*job, job->rest, 4096);
    ASSERT_EQ(slice.pieces.size(), 1u);
    EXPECT_EQ(slice.pieces[0].local, kLocal + at);
    EXPECT_EQ(slice.pieces[0].remote, kRemote + at);
    at += slice.bytes;
  }
  EXPECT_EQ(at, 10'000u);
}

TEST(CutSlice, StopsAtTheLimitOfPieces) {
  const JobPtr job = make_job(10, 100, 0, kSecond, /*gap=*/8);
  const Cut slice = cut(*job, job->rest, 1 << 20, 3);
  EXPECT_EQ(slice.pieces.size(), 3u);
  EXPECT_EQ(slice.bytes, 300u);
  EXPECT_EQ(job->rest.begin, (Position{3, 0}));
  EXPECT_EQ(slice.range.end, (Position{3, 0}));
}

TEST(CutSlice, LeavesOutEmptyAndFailedTransfers) {
  const JobPtr job = make_job(5, 100, 0, kSecond);
  job->transfers[1].length = 0;
  job->transfers[3].code = TW_NOT_REGISTERED;
  const Cut slice = cut(*job, job->rest, 1 << 20);
  EXPECT_EQ(slice.bytes, 300u);
  EXPECT_TRUE(job->rest.empty());
}

TEST(CutSlice, HasNoBytesWhenNothingIsLeftToSend) {
  const JobPtr job = make_job(3, 0, 0, kSecond);
  EXPECT_EQ(cut(*job, job->rest, 1 << 20).bytes, 0u);
  EXPECT_TRUE(job->rest.empty());
}

TEST(CutSlice, TakesNoMoreThanItsRangeFromTheMiddleOfATransfer) {
  const JobPtr job = make_job(3, 100, 0, kSecond);
  Range range{{0, 50}, {2, 30}, 2};
  const Cut slice = cut(*job, range, 1 << 20);
  EXPECT_EQ(slice.bytes, 50u + 100 + 30);
  EXPECT_EQ(slice.pieces[0].local, kLocal + 50);
  EXPECT_EQ(slice.range.attempts, 2u);
  EXPECT_TRUE(range.empty());
}

TEST(CutSlice, SumsExactlyOverManyOddSizesAndLimits) {
  for (uint64_t limit : {1u, 7u, 64u, 4096u}) {
    const JobPtr job = std::make_shared<Job>(transport::Opcode::kWrite, 40, 0, kSecond);
    uint64_t total = 0;
    for (uint64_t i = 0; i < 40; ++i) {
      job->transfers[i].local = kLocal + total;
      job->transfers[i].remote = kRemote + total + (i % 3 ? 0 : i);
      total += job->transfers[i].length = (i * i * 31) % 97;
    }
    uint64_t sum = 0, pieces = 0;
    while (!job->rest.empty()) {
      const Cut slice = cut(*job, job->rest, limit, 5);
      for (const transport::Piece& piece : slice.pieces) pieces += piece.length;
      EXPECT_LE(slice.pieces.size(), 5u);
      EXPECT_LE(slice.bytes, limit);
      sum += slice.bytes;
    }
    EXPECT_EQ(sum, total);
    EXPECT_EQ(pieces, total);
  }
}

TEST(Split, MakesHalvesThatCoverTheRange) {
  const Range range{{10, 5}, {20, 0}, 3};
  const auto [first, second] = split(range);
  EXPECT_EQ(first.begin, range.begin);
  EXPECT_EQ(first.end, second.begin);
  EXPECT_EQ(second.end, range.end);
  EXPECT_EQ(first.end, (Position{15, 0}));
  EXPECT_EQ(first.attempts, 3u);
}

TEST(Split, EndsAtSingleTransfers) {
  std::vector<Range> ranges{{{0, 10}, {7, 3}}};
  int singles = 0;
  while (!ranges.empty()) {
    const Range range = ranges.back();
    ranges.pop_back();
    ASSERT_FALSE(range.empty());
    if (range.single()) {
      ++singles;
      continue;
    }
    const auto [first, second] = split(range);
    ranges.push_back(first);
    ranges.push_back(second);
  }
  EXPECT_EQ(singles, 8);
}

}  // namespace
}  // namespace tidewire::engine
