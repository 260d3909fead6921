// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/log_detail.h"

namespace tidewire::log {
namespace {

// A pipe that polls as writable takes at least PIPE_BUF (4096) bytes at once, so that a line no longer than that never
// blocks.
constexpr size_t kMaxLine = 4096;

// Process facts, not an object with a life of its own: all are plain atomics, so that fork and exit need no care.
std::atomic<int> g_level{-1};
std::atomic<uint64_t> g_dropped{0};

int level_from_environment() {
  const char* text = std::getenv("TIDEWIRE_LOG");
  // A bad value is reported by Settings::load; here it means the default.
  const std::optional<Level> level = text ? parse_level(text) : std::nullopt;
  return static_cast<int>(level.value_or(Level::kWarn));
}

constinit RateLimiter g_limiter;

bool stderr_takes_a_line() {
  pollfd descriptor{STDERR_FILENO, POLLOUT, 0};
  return ::poll(&descriptor, 1, 0) == 1 && (descriptor.revents & POLLOUT) != 0 &&
         (descriptor.revents & (POLLERR | POLLHUP | POLLNVAL)) == 0;
}

// One write, so that lines of several threads and processes don't mix. Another writer may have filled the pipe or
// socket since the poll, so both are asked not to wait where the kernel can promise that (pipes: Linux 6.4).
bool write_line(const char* line, size_t length) {
  struct stat kind;
  if (::fstat(STDERR_FILENO, &kind) != 0) return false;
  if (S_ISSOCK(kind.st_mode)) {
    return ::send(STDERR_FILENO, line, length, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(length);
  }
  if (S_ISFIFO(kind.st_mode)) {
    const iovec vector{const_cast<char*>(line), length};
    const ssize_t written = ::pwritev2(STDERR_FILENO, &vector, 1, -1, RWF_NOWAIT);
    if (written >= 0) return true;
    if (errno == EAGAIN) return false;
  }
  return ::write(STDERR_FILENO, line, length) >= 0;
}

}  // namespace

bool RateLimiter::admit(std::string_view key, Nanos now, uint64_t* suppressed) {
  std::atomic<uint64_t>& slot = slots_[std::hash<std::string_view>{}(key) % kSlots];
  const uint64_t second = static_cast<uint32_t>(now / kSecond + 1);  // 0 is the untouched slot
  uint64_t seen = slot.load(std::memory_order_relaxed);
  for (;;) {
    const uint64_t asked = static_cast<uint32_t>(seen);
    const bool same_second = seen >> 32 == second;
    const uint64_t next = same_second ? second << 32 | std::min<uint64_t>(asked + 1, UINT32_MAX) : second << 32 | 1;
    if (!slot.compare_exchange_weak(seen, next, std::memory_order_relaxed)) continue;
    *suppressed = !same_second && asked > kLinesPerSecond ? asked - kLinesPerSecond : 0;
    return !same_second || asked < kLinesPerSecond;
  }
}

std::optional<Level> parse_level(std::string_view text) {
  constexpr std::array<std::string_view, 5> kNames = {"debug", "info", "warn", "error", "off"};
  for (size_t index = 0; index < kNames.size(); ++index) {
    if (text == kNames[index]) return static_cast<Level>(index);
  }
  return std::nullopt;
}

bool enabled(Level level) {
  int current = g_level.load(std::memory_order_relaxed);
  if (current < 0) {
    current = level_from_environment();
    int expected = -1;
    // set_level may have come in between: it wins.
    if (!g_level.compare_exchange_strong(expected, current, std::memory_order_relaxed)) current = expected;
  }
  return static_cast<int>(level) >= current && level != Level::kOff;
}

void set_level(Level level) {
  g_level.store(static_cast<int>(level), std::memory_order_relaxed);
}

uint64_t dropped_lines() {
  return g_dropped.load(std::memory_order_relaxed);
}

size_t format_line(char* out, size_t size, const LineTime& when, Level level, int pid, std::string_view text,
                   uint64_t suppressed, uint64_t dropped) {
  fmt::memory_buffer tail;
  if (suppressed) fmt::format_to(std::back_inserter(tail), " suppressed={}", suppressed);
  if (dropped) fmt::format_to(std::back_inserter(tail), " dropped={}", dropped);
  tail.push_back('\n');

  tm utc;
  gmtime_r(&when.seconds, &utc);
  constexpr char kLetters[] = "DIWE";
  const auto head = fmt::format_to_n(out, size, "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z {} tidewire[{}] ",
                                     utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min,
                                     utc.tm_sec, when.milliseconds, kLetters[static_cast<int>(level) & 3], pid);
  size_t used = std::min(static_cast<size_t>(head.size), size);
  const size_t room = size - std::min(size, used + tail.size());
  const bool cut = text.size() > room;
  for (size_t index = 0; index < std::min(text.size(), room); ++index) {
    const auto byte = static_cast<unsigned char>(text[index]);
    // One line an event, and no terminal control from foreign bytes.
    out[used++] = byte < 0x20 || byte == 0x7f ? ' ' : static_cast<char>(byte);
  }
  if (cut && room >= 3) std::fill_n(out + used - 3, 3, '.');
  std::copy_n(tail.data(), std::min(tail.size(), size - used), out + used);
  return used + std::min(tail.size(), size - used);
}

void write(Level level, std::string_view key, std::string_view text) {
  if (!enabled(level)) return;
  uint64_t suppressed = 0;
  if (!g_limiter.admit(key, monotonic_now(), &suppressed)) return;
  if (!stderr_takes_a_line()) {
    g_dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const uint64_t dropped = g_dropped.exchange(0, std::memory_order_relaxed);
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  char line[kMaxLine];
  const size_t length = format_line(line, sizeof line, {now.tv_sec, static_cast<int>(now.tv_nsec / kMillisecond)},
                                    level, getpid(), text, suppressed, dropped);
  if (!write_line(line, length)) g_dropped.fetch_add(dropped + 1, std::memory_order_relaxed);
}

}  // namespace tidewire::log
