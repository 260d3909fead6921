// SPDX-License-Identifier: Apache-2.0
//
// The fuzzer's target over every message of the store with random contents, and over shaken copies of it.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "unit/store/random_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tidewire::store {
namespace {

TEST(StoreCodecFuzz, SurvivesShakenMessages) {
  testing::Random random(5);
  testing::for_each_body([&](auto index) {
    for (int message = 0; message < 10; ++message) {
      const control::Frame frame = testing::frame_of(encode(random.message<index()>()));
      std::vector<uint8_t> seed{static_cast<uint8_t>(frame.type)};
      seed.insert(seed.end(), frame.payload.begin(), frame.payload.end());
      EXPECT_EQ(LLVMFuzzerTestOneInput(seed.data(), seed.size()), 0);
      for (int round = 0; round < 300; ++round) {
        std::vector<uint8_t> bytes = seed;
        for (uint64_t changes = 1 + random.below(6); changes > 0; --changes) {
          // Counts and offsets are the best targets: half of the changes go to the front, where the tables are.
          const size_t at =
              random.below(2) == 0 ? random.below(bytes.size()) : random.below(std::min<size_t>(bytes.size(), 160));
          if (random.below(3) == 0) {
            bytes[at] = static_cast<uint8_t>(random.number());
          } else {
            bytes[at] ^= static_cast<uint8_t>(1 << random.below(8));
          }
        }
        if (random.below(4) == 0) bytes.resize(random.below(bytes.size() + 1));
        EXPECT_EQ(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()), 0);
      }
    }
  });
}

TEST(StoreCodecFuzz, SurvivesNoise) {
  testing::Random random(6);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<uint8_t> bytes(1 + random.below(200));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.number());
    bytes[0] = static_cast<uint8_t>(kFirstStoreFrame + random.below(32));
    EXPECT_EQ(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()), 0);
  }
}

}  // namespace
}  // namespace tidewire::store
