// SPDX-License-Identifier: Apache-2.0
//
// How the values of settings are read and written: one function for each kind, none of which knows the table.
// Errors carry only the reason ("not a number"); the table adds name, value, range and origin.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tidewire::settings_values {

enum class Kind {
  kSeconds,   // "30", "0.5", "500ms", "2s"; kept in nanoseconds
  kInteger,   // "4"
  kBytes,     // "65536", "64K", "64KiB", "1M", "1G"; powers of two
  kBool,      // 1/0, true/false, yes/no, on/off
  kText,      // any
  kHostPort,  // "127.0.0.1:9100", "[::1]:0"
  kLogLevel,  // debug, info, warn (warning), error, off
};

Result<int64_t> parse_number(Kind kind, std::string_view text);
Result<bool> parse_bool(std::string_view text);
Result<std::string> parse_text(Kind kind, std::string_view text);

// Numbers as the parser takes them: "30" seconds, "1048576" bytes.
std::string number_text(Kind kind, int64_t value);
std::string range_text(Kind kind, int64_t min, int64_t max);
std::string unit_text(Kind kind);
// At most 200 bytes, control characters replaced: safe in an error text.
std::string printable(std::string_view text);

}  // namespace tidewire::settings_values
