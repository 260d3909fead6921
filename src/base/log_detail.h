// SPDX-License-Identifier: Apache-2.0
//
// The parts that log.cpp is made of, apart so that tests reach them. No other file needs this header.
#pragma once

#include <time.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "base/log.h"

namespace tidewire::log {

// Admits at most kLinesPerSecond lines of a key in each second of the monotonic clock. Keys share kSlots slots by hash:
// two keys that meet in one share its allowance, which costs a line now and then and keeps the memory fixed. Lock-free:
// any thread, safe over fork.
class RateLimiter {
 public:
  static constexpr uint32_t kLinesPerSecond = 10;
  static constexpr size_t kSlots = 1024;

  // True when a line may be written; *suppressed then holds the number of lines refused since the last admitted second.
  bool admit(std::string_view key, Nanos now, uint64_t* suppressed);

 private:
  // High half: the second; low half: the lines that asked in it.
  std::array<std::atomic<uint64_t>, kSlots> slots_{};
};

struct LineTime {
  time_t seconds;  // since 1970, UTC
  int milliseconds;
};

// Writes the whole line with its end into out and returns its length, at most `size`. A long text is cut and ends in
// "..."; control characters become blanks.
size_t format_line(char* out, size_t size, const LineTime& when, Level level, int pid, std::string_view text,
                   uint64_t suppressed, uint64_t dropped);

// "debug", "info", "warn", "error" or "off".
std::optional<Level> parse_level(std::string_view text);

// Lines that stderr could not take and that no later line has reported yet.
uint64_t dropped_lines();

}  // namespace tidewire::log
