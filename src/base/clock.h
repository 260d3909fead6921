// SPDX-License-Identifier: Apache-2.0
//
// Time in Tidewire is nanoseconds on the monotonic clock. State machines take the time as an argument and never read a clock, so
// that the simulator can drive them.
#pragma once

#include <time.h>

#include <cstdint>

namespace tidewire {

using Nanos = int64_t;
constexpr Nanos kMicrosecond = 1'000;
constexpr Nanos kMillisecond = 1'000'000;
constexpr Nanos kSecond = 1'000'000'000;
constexpr Nanos kNever = INT64_MAX;

inline Nanos monotonic_now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

}  // namespace tidewire
