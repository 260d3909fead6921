// SPDX-License-Identifier: Apache-2.0
//
// The simulator's random numbers: xoshiro256** seeded by splitmix64. Own code, so that a seed means the same schedule on every machine
// (the distributions of the standard library differ between implementations).
#pragma once

#include <array>
#include <cstdint>

namespace tidewire::sim {

class Random {
 public:
  explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) {
      seed += 0x9e3779b97f4a7c15;
      uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
      z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
      word = z ^ (z >> 31);
    }
  }

  uint64_t next() {
    const uint64_t result = rotate(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotate(state_[3], 45);
    return result;
  }
  // In [low, high].
  int64_t between(int64_t low, int64_t high) { return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1)); }
  bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1p-53 < probability; }
  // Most values small, a few up to `high`.
  int64_t skewed(int64_t low, int64_t high) {
    const double u = static_cast<double>(next() >> 11) * 0x1p-53;
    return low + static_cast<int64_t>(u * u * u * static_cast<double>(high - low));
  }

 private:
  static uint64_t rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  std::array<uint64_t, 4> state_;
};

}  // namespace tidewire::sim
