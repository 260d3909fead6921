// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_geometry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace tidewire::cli::bench {
namespace {

constexpr uint64_t kPages = 40;
constexpr uint64_t kPageTokens = 16;

class PiecesTest : public testing::Test {
 protected:
  Pieces make(double fragmented, uint64_t first = 8) {
    return pieces_of(geometry_, {0x1000'0000, 1024}, {0x9000'0000, 2048}, kPageTokens, first, kPages, fragmented, random_);
  }
  // How often each page-sized unit of a side is moved.
  static std::map<uint64_t, int> units(const std::vector<uint64_t>& addresses, const std::vector<uint64_t>& lengths, uint64_t unit) {
    std::map<uint64_t, int> seen;
    for (size_t i = 0; i < addresses.size(); ++i)
      for (uint64_t at = 0; at < lengths[i]; at += unit) ++seen[addresses[i] + at];
    return seen;
  }
  Geometry geometry_;
  std::mt19937_64 random_{7};
};

TEST_F(PiecesTest, TheDefaultGeometryIsOneRankOfEightOfQwen3) {
  EXPECT_EQ(geometry_.bytes_per_token(), 48'128u);
  EXPECT_EQ(geometry_.planes(), 188u);
}

TEST_F(PiecesTest, NeighbouringPagesAreOnePieceInEachPlane) {
  const Pieces pieces = make(0);
  EXPECT_EQ(pieces.lengths.size(), 188u);
  EXPECT_EQ(pieces.bytes, kPages * kPageTokens * geometry_.bytes_per_token());
  // The second plane begins where the first one's cache ends.
  EXPECT_EQ(pieces.local[1] - pieces.local[0], 1024 * geometry_.token_bytes_in_layer());
  EXPECT_EQ(pieces.remote[1] - pieces.remote[0], 2048 * geometry_.token_bytes_in_layer());
}

TEST_F(PiecesTest, FullyFragmentedPagesAreAPieceEach) {
  EXPECT_EQ(make(1).lengths.size(), 188u * kPages);
}

TEST_F(PiecesTest, EveryPageIsMovedOnceWhateverTheFragmentation) {
  const uint64_t page_bytes = kPageTokens * geometry_.token_bytes_in_layer();
  for (const double fragmented : {0.0, 0.3, 1.0}) {
    const Pieces pieces = make(fragmented);
    for (const auto* side : {&pieces.local, &pieces.remote}) {
      const auto seen = units(*side, pieces.lengths, page_bytes);
      EXPECT_EQ(seen.size(), 188u * kPages) << fragmented;
      EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](const auto& entry) { return entry.second == 1; })) << fragmented;
    }
  }
}

TEST_F(PiecesTest, BothSidesStayInsideTheRequestedPages) {
  const uint64_t page_bytes = kPageTokens * geometry_.token_bytes_in_layer();
  const Pieces pieces = make(0.5, /*first=*/24);
  for (size_t i = 0; i < pieces.lengths.size() / 188; ++i) {  // the first plane
    EXPECT_GE(pieces.local[i], 0x1000'0000 + 24 * page_bytes);
    EXPECT_LE(pieces.local[i] + pieces.lengths[i], 0x1000'0000 + (24 + kPages) * page_bytes);
  }
}

TEST(LeastSquares, FindsTheLineThroughExactPoints) {
  const Line line = least_squares({1, 2, 4, 8}, {5, 7, 11, 19});
  EXPECT_NEAR(line.intercept, 3, 1e-9);
  EXPECT_NEAR(line.slope, 2, 1e-9);
}

TEST(LeastSquares, OnePointHasNoLine) {
  EXPECT_EQ(least_squares({1}, {5}).intercept, 0);
}

}  // namespace
}  // namespace tidewire::cli::bench
