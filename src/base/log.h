// SPDX-License-Identifier: Apache-2.0
//
// Logging: one line an event on stderr, WARN by default (TIDEWIRE_LOG=debug|info|warn|error|off). A line is
//   2026-01-02T03:04:05.678Z W tidewire[pid] text key=value key=value
// Never blocks: a line that stderr can't take at once is dropped and counted. Rate-limited by key. Any thread; safe after fork.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace tidewire::log {

enum class Level { kDebug, kInfo, kWarn, kError, kOff };

// Whether a line of this level would be written now; cheap (one relaxed load).
bool enabled(Level level);
void set_level(Level level);
// Writes a line. `key` names the kind of event for rate limiting (at most 10 lines a second for each key; what was left out is said
// with the next one as suppressed=N). A key is a short constant such as "connect_failed".
void write(Level level, std::string_view key, std::string_view text);

template <typename... Args>
void debug(std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kDebug)) write(Level::kDebug, key, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info(std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kInfo)) write(Level::kInfo, key, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warn(std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kWarn)) write(Level::kWarn, key, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kError)) write(Level::kError, key, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tidewire::log
