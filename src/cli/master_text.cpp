// SPDX-License-Identifier: Apache-2.0
#include "cli/master_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

namespace tidewire::cli {
namespace {

using nlohmann::json;

double number(const json& object, const char* name) {
  return object.is_object() && object.contains(name) && object[name].is_number() ? object[name].get<double>() : 0;
}

bool truth(const json& object, const char* name) {
  return object.is_object() && object.contains(name) && object[name] == true;
}

// One line of printable text, whatever the other process sent.
std::string text(const json& object, const char* name) {
  std::string value =
      object.is_object() && object.contains(name) && object[name].is_string() ? object[name].get<std::string>() : "-";
  for (char& letter : value)
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) letter = ' ';
  return value;
}

json list(const json& object, const char* name) {
  return object.contains(name) && object[name].is_array() ? object[name] : json::array();
}
json counters_of(const json& object) {
  return object.is_object() && object.contains("counters") ? object["counters"] : json::object();
}

std::string bytes(double value) {
  static const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  for (; value >= 1024 && unit < 5; ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::string percent(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-";
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      if (widths.size() <= i) widths.push_back(0);
      widths[i] = std::max(widths[i], row[i].size());
    }
  std::string all;
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format(" {:<{}} ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    all += line + "\n";
  }
  return all;
}

}  // namespace

Result<std::string> master_text(const std::string& now_text, const std::string& before_text, double seconds) {
  const json now = json::parse(now_text, nullptr, false);
  if (!now.is_object())
    return Status(Code::kProtocol, "the answer is no JSON object; is this the address of a master's pages?");
  const json before = json::parse(before_text, nullptr, false);
  const json counters = counters_of(now), earlier = counters_of(before);
  if (!before.is_object()) seconds = number(now, "up_seconds");
  const auto since = [&](const char* name) { return number(counters, name) - number(earlier, name); };
  const auto rate = [&](const char* name) {
    return seconds > 0 ? fmt::format("{:.0f}", since(name) / seconds) : std::string("-");
  };

  std::string all = fmt::format("master {}  term {}  {}  up {:.0f} s\n", text(now, "address"), number(now, "term"),
                                truth(now, "service_ready") ? "ready" : "taking over", number(now, "up_seconds"));
  all += fmt::format("objects {:.0f}  used {} of {} ({})\n", number(now, "objects"), bytes(number(now, "used_bytes")),
                     bytes(number(now, "capacity_bytes")),
                     percent(number(now, "used_bytes"), number(now, "capacity_bytes")));
  all += fmt::format("hit rate {}  per second: gets {}  puts {}  removed {}  evicted {} ({})\n",
                     percent(since("hits"), since("gets")), rate("gets"), rate("puts_committed"), rate("removed"),
                     rate("evicted"), seconds > 0 ? bytes(since("evicted_bytes") / seconds) : "-");
  if (number(counters, "puts_no_space") + number(counters, "puts_abandoned") + number(counters, "tombstones") > 0)
    all += fmt::format(
        "since the start: puts without space {:.0f}  given up {:.0f}  removals noted for unreachable owners {:.0f}\n",
        number(counters, "puts_no_space"), number(counters, "puts_abandoned"), number(counters, "tombstones"));

  std::vector<std::vector<std::string>> rows = {{"CLIENT", "STATE", "SILENT", "SEGMENTS"}};
  for (const json& client : list(now, "clients"))
    rows.push_back({text(client, "name"), text(client, "state"),
                    fmt::format("{:.1f} s", number(client, "silent_seconds")),
                    fmt::format("{:.0f}", number(client, "segments"))});
  all += rows.size() > 1 ? "\n" + table(rows) : "\n  no clients\n";
  rows = {{"SEGMENT", "SIZE", "USED", "", "OBJECTS", ""}};
  for (const json& segment : list(now, "segments"))
    rows.push_back({text(segment, "name"), bytes(number(segment, "size")), bytes(number(segment, "used")),
                    percent(number(segment, "used"), number(segment, "size")),
                    fmt::format("{:.0f}", number(segment, "objects")), truth(segment, "live") ? "" : "no contact"});
  return all + (rows.size() > 1 ? "\n" + table(rows) : "\n  no segments\n");
}

}  // namespace tidewire::cli
