// SPDX-License-Identifier: Apache-2.0
#include "cli/status_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/size.h"

namespace tidewire::cli {
namespace {

using nlohmann::json;
using Rows = std::vector<std::vector<std::string>>;

// One line of printable text, whatever the other process sent.
std::string clean(std::string text) {
  for (char& letter : text) {
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) letter = ' ';
  }
  return text.empty() ? "-" : text;
}

std::string field(const json& object, const char* name) {
  if (!object.is_object() || !object.contains(name)) return "-";
  const json& value = object[name];
  if (value.is_string()) return clean(value.get<std::string>());
  if (value.is_number() || value.is_boolean()) return value.dump();
  return "-";
}

uint64_t number(const json& object, const char* name) {
  if (!object.is_object() || !object.contains(name) || !object[name].is_number()) return 0;
  const double value = object[name].get<double>();
  return value > 0 && value < 1e18 ? static_cast<uint64_t>(value) : 0;
}

std::string bytes(const json& object, const char* name) {
  return field(object, name) == "-" ? "-" : size_text(number(object, name));
}

const json& list(const json& object, const char* name) {
  static const json* const kEmpty = new json(json::array());
  return object.is_object() && object.contains(name) && object[name].is_array() ? object[name] : *kEmpty;
}

std::string table(const std::string& title, const Rows& rows) {
  if (rows.size() < 2) return fmt::format("\n{}: none\n", title);
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (size_t index = 0; index < row.size(); ++index) widths[index] = std::max(widths[index], row[index].size());
  }
  std::string out = fmt::format("\n{}\n", title);
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t index = 0; index < row.size(); ++index) line += fmt::format(" {:<{}} ", row[index], widths[index]);
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string rate(const json& object, const char* name) {
  const uint64_t bits = number(object, name);
  return bits ? fmt::format("{:g} Gbit/s", static_cast<double>(bits) / 1e9) : "-";
}

std::string error_line(const json& error) {
  if (error.is_string()) return clean(error.get<std::string>());
  std::string line;
  if (error.is_object()) {
    for (const auto& [name, value] : error.items()) {
      line += fmt::format("{}{}={}", line.empty() ? "" : " ", name,
                          value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  return clean(line);
}

}  // namespace

Result<std::string> status_text(const std::string& text) {
  const json status = json::parse(text, nullptr, false);
  if (!status.is_object())
    return Status(Code::kProtocol, "the engine's answer is no JSON object; it may be another version");

  std::string out = fmt::format("engine {}  process {}  version {}\n", field(status, "address"),
                                field(status, "process_id"), field(status, "version"));
  out += fmt::format("regions {} ({})  peers {}  notifications waiting {}\n", field(status, "regions"),
                     bytes(status, "registered_bytes"), field(status, "peers_known"),
                     field(status, "notifications_waiting"));
  if (field(status, "metrics_address") != "-")
    out += fmt::format("metrics http://{}/metrics\n", field(status, "metrics_address"));

  Rows rows = {{"TRANSPORT", "NAME", "ADDRESS", "RATE"}};
  for (const json& rail : list(status, "rails")) {
    rows.push_back(
        {field(rail, "transport"), field(rail, "name"), field(rail, "address"), rate(rail, "bits_per_second")});
  }
  out += table("Rails", rows);

  rows = {{"PEER", "STATE", "WORK", "RETRIES", "FALL-BACKS", "BACK-OFFS", "LAST ERROR"}};
  Rows channels = {{"PEER", "TRANSPORT", "RAILS", "STATE", "IN FLIGHT", "RATE"}};
  for (const json& peer : list(status, "peers")) {
    rows.push_back({field(peer, "name"), field(peer, "state"), field(peer, "jobs"), field(peer, "retries"),
                    field(peer, "fallbacks"), field(peer, "backoffs"), field(peer, "last_error")});
    for (const json& channel : list(peer, "channels")) {
      channels.push_back({field(peer, "name"), field(channel, "transport"),
                          field(channel, "local_rail") + ":" + field(channel, "remote_rail"), field(channel, "state"),
                          bytes(channel, "in_flight_bytes"), bytes(channel, "bytes_per_second") + "/s"});
    }
  }
  out += table("Peers", rows);
  const size_t shown = list(status, "peers").size();
  if (number(status, "peers_known") > shown)
    out += fmt::format("  … and {} more\n", number(status, "peers_known") - shown);
  out += table("Work in flight", channels);

  out += "\nLast errors";
  const json& errors = list(status, "last_errors");
  out += errors.empty() ? ": none\n" : "\n";
  for (const json& error : errors) out += "  " + error_line(error) + "\n";
  return out;
}

std::vector<pid_t> engine_processes(const std::string& proc_net_unix) {
  constexpr std::string_view kPrefix = "@tidewire-status-";
  std::set<pid_t> found;
  for (size_t at = 0; (at = proc_net_unix.find(kPrefix, at)) != std::string::npos;) {
    at += kPrefix.size();
    const int pid = std::atoi(proc_net_unix.c_str() + at);
    if (pid > 0) found.insert(pid);
  }
  return {found.begin(), found.end()};
}

}  // namespace tidewire::cli
