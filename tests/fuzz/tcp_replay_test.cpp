// SPDX-License-Identifier: Apache-2.0
//
// Runs the TCP fuzzer over seeded random inputs with any compiler.
#include <gtest/gtest.h>

#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

TEST(TcpFuzz, RandomInputsWriteNothingOutside) {
  for (uint64_t seed = 0; seed < 20'000; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<uint8_t> input(2 + random() % 400);
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random());
    if (seed % 4 != 0) {
      // Frames that are mostly well-formed: writes and reads of a few pieces.
      input[0] |= 1;
      for (size_t at = 2; at + 3 < input.size(); at += 25) {
        input[at] &= random() % 8 == 0 ? 7 : 0;
        input[at + 1] = random() % 8 == 0 ? input[at + 1] : 1 + random() % 2;
        input[at + 2] = 1 + random() % 5;
      }
    }
    SCOPED_TRACE(seed);
    ASSERT_EQ(LLVMFuzzerTestOneInput(input.data(), input.size()), 0);
  }
}
