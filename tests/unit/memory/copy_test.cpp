// SPDX-License-Identifier: Apache-2.0
#include "memory/copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace tidewire {
namespace {

std::vector<unsigned char> pattern(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<unsigned char> bytes(n);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

// Copies into the middle of a canary-filled buffer and compares everything.
void check(size_t n, size_t source_shift, size_t destination_shift, uint64_t whole) {
  static const std::vector<unsigned char> source = pattern(size_t{3} << 20, 7);
  std::vector<unsigned char> destination(n + 256, 0xC5), expected(n + 256, 0xC5);
  std::memcpy(expected.data() + 64 + destination_shift, source.data() + source_shift, n);
  if (whole == 0) {
    copy_bytes(destination.data() + 64 + destination_shift, source.data() + source_shift, n);
  } else {
    copy_piece(destination.data() + 64 + destination_shift, source.data() + source_shift, n, whole);
    copy_fence();
  }
  ASSERT_EQ(destination, expected) << "n " << n << " source +" << source_shift << " destination +" << destination_shift;
}

TEST(Copy, EverySmallSizeIsExact) {
  for (size_t n = 0; n <= 600; ++n) check(n, n % 8, (n / 8) % 8, 0);
}

TEST(Copy, StreamingIsExactAtEveryAlignment) {
  for (size_t source = 0; source < 64; source += 7) {
    for (size_t destination = 0; destination < 64; destination += 5) {
      for (size_t n : {1024, 1025, 1087, 1279, 2047, 2303, 4096, 4097, 10'000})
        check(n, source, destination, uint64_t{1} << 30);
    }
  }
}

TEST(Copy, SizesAroundTheThresholdAreExact) {
  for (uint64_t n : {kStreamingBytes - 1, kStreamingBytes, kStreamingBytes + 1, kStreamingBytes + 63, uint64_t{1} << 20,
                     (uint64_t{1} << 20) + 1}) {
    for (size_t shift = 0; shift < 8; ++shift) check(n, shift, 7 - shift, 0);
  }
}

TEST(Copy, PiecesOfALargeWholeThatAreTooShortToStreamAreExact) {
  for (size_t n = 0; n < 1024; n += 13) check(n, n % 5, n % 3, uint64_t{1} << 30);
}

TEST(Copy, TheMethodHasAName) {
  EXPECT_NE(std::string(copy_method()), "");
}

}  // namespace
}  // namespace tidewire
