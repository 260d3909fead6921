// SPDX-License-Identifier: Apache-2.0
#include "base/settings_values.h"

#include <charconv>
#include <cmath>

#include "base/clock.h"

namespace tidewire::settings_values {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& letter : result) letter = static_cast<char>(letter >= 'A' && letter <= 'Z' ? letter + 32 : letter);
  return result;
}

Status bad(const char* why) {
  return Status(Code::kInvalidArgument, why);
}

// The number at the start of text; *rest gets what follows it.
template <typename T>
bool leading_number(std::string_view text, T* value, std::string_view* rest) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  if (error != std::errc()) return false;
  *rest = text.substr(static_cast<size_t>(end - text.data()));
  return true;
}

Result<int64_t> parse_seconds(std::string_view text) {
  double seconds = 0;
  std::string_view unit;
  if (!leading_number(text, &seconds, &unit) || !std::isfinite(seconds)) return bad("not a number of seconds");
  if (unit == "ms") {
    seconds /= 1e3;
  } else if (unit == "us") {
    seconds /= 1e6;
  } else if (!unit.empty() && unit != "s") {
    return bad("not a number of seconds");
  }
  if (std::abs(seconds) > 9e9) return bad("out of range");
  return static_cast<int64_t>(std::llround(seconds * 1e9));
}

Result<int64_t> parse_integer(std::string_view text, bool bytes) {
  int64_t value = 0;
  std::string_view unit;
  if (!leading_number(text, &value, &unit)) return bad("not a whole number");
  if (unit.empty()) return value;
  if (!bytes) return bad("not a whole number");
  const std::string name = lower(unit);
  int shift = 0;
  if (name == "k" || name == "kib") {
    shift = 10;
  } else if (name == "m" || name == "mib") {
    shift = 20;
  } else if (name == "g" || name == "gib") {
    shift = 30;
  } else {
    return bad("not a number of bytes (K, M and G are powers of 1024)");
  }
  int64_t result = 0;
  if (__builtin_mul_overflow(value, int64_t{1} << shift, &result)) return bad("out of range");
  return result;
}

}  // namespace

Result<int64_t> parse_number(Kind kind, std::string_view text) {
  return kind == Kind::kSeconds ? parse_seconds(text) : parse_integer(text, kind == Kind::kBytes);
}

Result<bool> parse_bool(std::string_view text) {
  const std::string word = lower(text);
  if (word == "1" || word == "true" || word == "yes" || word == "on") return true;
  if (word == "0" || word == "false" || word == "no" || word == "off") return false;
  return bad("not a truth value");
}

Result<std::string> parse_text(Kind kind, std::string_view text) {
  if (kind == Kind::kLogLevel) {
    const std::string word = lower(text);
    if (word == "warning") return std::string("warn");
    if (word == "trace") return std::string("debug");
    if (word == "debug" || word == "info" || word == "warn" || word == "error" || word == "off") return word;
    return bad("not a log level");
  }
  if (kind == Kind::kHostPort && !text.empty()) {
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos || colon == 0) return bad("not host:port");
    const std::string_view host = text.substr(0, colon);
    const bool bracketed = host.front() == '[' && host.back() == ']' && host.size() > 2;
    if (!bracketed && host.find_first_of(":[]") != std::string_view::npos) return bad("not host:port ([v6]:port)");
    uint16_t port = 0;
    std::string_view rest;
    if (!leading_number(text.substr(colon + 1), &port, &rest) || !rest.empty())
      return bad("the port is not 0 to 65535");
  }
  if (text.find('\0') != std::string_view::npos) return bad("it holds a NUL byte");
  return std::string(text);
}

std::string number_text(Kind kind, int64_t value) {
  return kind == Kind::kSeconds ? fmt::format("{}", static_cast<double>(value) / 1e9) : fmt::format("{}", value);
}

std::string range_text(Kind kind, int64_t min, int64_t max) {
  switch (kind) {
    case Kind::kSeconds:
    case Kind::kInteger:
    case Kind::kBytes:
      return fmt::format("{} to {}", number_text(kind, min), number_text(kind, max));
    case Kind::kBool:
      return "true or false";
    case Kind::kText:
      return "any text";
    case Kind::kHostPort:
      return "host:port or nothing";
    case Kind::kLogLevel:
      return "debug, info, warn, error or off";
  }
  return "";
}

std::string unit_text(Kind kind) {
  if (kind == Kind::kSeconds) return "s";
  return kind == Kind::kBytes ? "bytes" : "";
}

std::string printable(std::string_view text) {
  std::string result(text.substr(0, 200));
  for (char& letter : result) {
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) letter = '?';
  }
  if (text.size() > 200) result += "...";
  return result;
}

}  // namespace tidewire::settings_values
