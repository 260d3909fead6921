// SPDX-License-Identifier: Apache-2.0
#include "cli/size.h"

#include <charconv>
#include <cmath>

namespace tidewire::cli {

Result<uint64_t> parse_size(const std::string& text) {
  const auto bad = [&] {
    return Status::error(Code::kInvalidArgument, "bad size '{}': give a number of bytes, or one with K, M, G or T",
                         text);
  };
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return bad();
  std::string unit(rest, end);
  while (!unit.empty() && unit.front() == ' ') unit.erase(0, 1);
  int shift = 0;
  if (!unit.empty() && unit != "B") {
    const size_t power = std::string("KMGTkmgt").find(unit[0]);
    const std::string tail = unit.substr(1);
    if (power == std::string::npos || !(tail.empty() || tail == "B" || tail == "iB")) return bad();
    shift = 10 * static_cast<int>(power % 4 + 1);
  }
  const double bytes = std::ldexp(number, shift);
  if (bytes >= 0x1p63 || bytes != std::floor(bytes)) return bad();
  return static_cast<uint64_t>(bytes);
}

std::string size_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double number = static_cast<double>(bytes);
  size_t unit = 0;
  for (; number >= 1024 && unit + 1 < std::size(kUnits); ++unit) number /= 1024;
  std::string digits = fmt::format("{:.1f}", number);
  if (digits.ends_with(".0")) digits.resize(digits.size() - 2);
  return digits + " " + kUnits[unit];
}

}  // namespace tidewire::cli
