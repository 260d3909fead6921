// SPDX-License-Identifier: Apache-2.0
#include "cli/master_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/master_flag_table.h"

namespace tidewire::cli {
namespace {

Status bad(const std::string& name, const std::string& value, const std::string& why) {
  return Status::error(Code::kInvalidArgument, "flag --{}={}: {}", name, value, why);
}

std::optional<bool> bool_of(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  for (const char* yes : {"true", "t", "1", "yes", "y"})
    if (text == yes) return true;
  for (const char* no : {"false", "f", "0", "no", "n"})
    if (text == no) return false;
  return std::nullopt;
}

std::optional<double> number_of(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || std::isspace(static_cast<unsigned char>(text[0])) || *end != '\0' || !std::isfinite(value))
    return std::nullopt;
  return value;
}

// "10000" in the unit, "10s", "5m", "1h", "250ms"; nothing beyond a year.
std::optional<Nanos> duration_of(const std::string& text, Nanos unit) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string suffix = text.substr(digits);
  if (suffix == "ms")
    unit = kMillisecond;
  else if (suffix == "s")
    unit = kSecond;
  else if (suffix == "m")
    unit = 60 * kSecond;
  else if (suffix == "h")
    unit = 3600 * kSecond;
  else if (!suffix.empty())
    return std::nullopt;
  const std::optional<double> value = number_of(text.substr(0, digits));
  if (!value || *value * static_cast<double>(unit) > 366.0 * 86'400 * kSecond) return std::nullopt;
  return static_cast<Nanos>(*value * static_cast<double>(unit));
}

// Empty, or what is wrong with it.
std::string problem_of(const FlagRow& row, const std::string& value) {
  switch (row.kind) {
    case FlagKind::kText:
      return "";
    case FlagKind::kBool:
      return bool_of(value) ? "" : "it is true or false";
    case FlagKind::kInteger: {
      const std::optional<double> number = number_of(value);
      return number && *number == std::floor(*number) ? "" : "it is a whole number";
    }
    case FlagKind::kNumber:
      return number_of(value) ? "" : "it is a number";
    case FlagKind::kPort: {
      const std::optional<double> number = number_of(value);
      return value == "auto" || (number && *number == std::floor(*number) && *number >= 0 && *number <= 65535)
                 ? ""
                 : "it is a port, 1 to 65535, or auto";
    }
    case FlagKind::kMilliseconds:
      return duration_of(value, kMillisecond) ? "" : "it is a duration: milliseconds, or a number with s, m or h";
    case FlagKind::kSeconds:
      return duration_of(value, kSecond) ? "" : "it is a duration: seconds, or a number with ms, m or h";
  }
  return "";
}

bool same_value(const FlagRow& row, const std::string& left, const std::string& right) {
  switch (row.kind) {
    case FlagKind::kBool:
      return bool_of(left) == bool_of(right);
    case FlagKind::kInteger:
    case FlagKind::kNumber:
      return number_of(left) == number_of(right);
    case FlagKind::kMilliseconds:
      return duration_of(left, kMillisecond) == duration_of(right, kMillisecond);
    case FlagKind::kSeconds:
      return duration_of(left, kSecond) == duration_of(right, kSecond);
    default:
      return left == right;
  }
}

std::string trimmed(std::string text) {
  const char* const blanks = " \t\r\n";
  text.erase(0, std::min(text.find_first_not_of(blanks), text.size()));
  text.erase(text.find_last_not_of(blanks) + 1);
  return text;
}

// Lines "name: value" with comments; nothing else of YAML.
Result<std::map<std::string, std::string>> flat_yaml(const std::string& text) {
  std::map<std::string, std::string> values;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string raw = text.substr(at, end - at);
    at = end + 1;
    ++number;
    std::string line = trimmed(raw);
    if (line.empty() || line[0] == '#' || line == "---") continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos || raw[0] == ' ' || raw[0] == '\t' || line[0] == '-')
      return Status::error(Code::kInvalidArgument, "line {}: only lines \"name: value\" are understood", number);
    std::string value = trimmed(line.substr(colon + 1));
    if (value.size() >= 2 && (value[0] == '"' || value[0] == '\'')) {
      const size_t close = value.find(value[0], 1);
      if (close == std::string::npos)
        return Status::error(Code::kInvalidArgument, "line {}: a quote is not closed", number);
      value = value.substr(1, close - 1);
    } else if (const size_t comment = value.find(" #"); comment != std::string::npos) {
      value = trimmed(value.substr(0, comment));
    }
    values[trimmed(line.substr(0, colon))] = value;
  }
  return values;
}

Result<std::map<std::string, std::string>> json_values(const std::string& text) {
  const nlohmann::json root = nlohmann::json::parse(text, nullptr, false);
  if (!root.is_object()) return Status(Code::kInvalidArgument, "it is no JSON object");
  std::map<std::string, std::string> values;
  for (const auto& [name, value] : root.items()) {
    if (value.is_string())
      values[name] = value.get<std::string>();
    else if (value.is_number() || value.is_boolean())
      values[name] = value.dump();
    else
      return Status::error(Code::kInvalidArgument, "the value of {} is neither text nor number nor true or false",
                           name);
  }
  return values;
}

}  // namespace

Result<MasterFlags> MasterFlags::parse(const std::vector<std::string>& arguments) {
  MasterFlags flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "-h") {
      flags.help_ = true;
      continue;
    }
    if (argument.size() < 2 || argument[0] != '-')
      return Status::error(Code::kInvalidArgument,
                           "unexpected argument '{}': flags are --name=value (true and false too)", argument);
    std::string name = argument.substr(argument.starts_with("--") ? 2 : 1);
    std::optional<std::string> value;
    if (const size_t equals = name.find('='); equals != std::string::npos) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    }
    std::replace(name.begin(), name.end(), '-', '_');
    if (name == "help" || name == "helpfull" || name == "helpshort") {
      flags.help_ = true;
      continue;
    }
    const FlagRow* row = find_master_flag(name);
    if (!row && !value && name.starts_with("no")) {
      row = find_master_flag(name.substr(2));
      if (row && row->kind == FlagKind::kBool) {
        name = row->name;
        value = "false";
      } else {
        row = nullptr;
      }
    }
    if (!row && name != "set")
      return Status::error(Code::kInvalidArgument, "unknown flag --{} (tidewire master --help lists them)", name);
    if (!value && row && row->kind == FlagKind::kBool) value = "true";
    if (!value) {
      if (i + 1 == arguments.size()) return Status::error(Code::kInvalidArgument, "flag --{} has no value", name);
      value = arguments[++i];
    }
    if (name == "set")
      flags.settings_.push_back(*value);
    else
      TW_RETURN_IF_ERROR(flags.take(name, *value, false));
  }
  if (flags.help_) return flags;
  if (const std::string path = flags.text("config_path"); !path.empty())
    TW_RETURN_IF_ERROR(flags.take_file(path).with_context("--config_path=" + path));
  std::erase_if(flags.file_values_, [&flags](const auto& entry) { return flags.values_.contains(entry.first); });
  flags.values_.insert(flags.file_values_.begin(), flags.file_values_.end());
  TW_RETURN_IF_ERROR(flags.check());
  return flags;
}

Status MasterFlags::take(const std::string& name, const std::string& value, bool from_file) {
  const FlagRow* const row = find_master_flag(name);
  if (!row) return Status::error(Code::kInvalidArgument, "unknown flag {} (tidewire master --help lists them)", name);
  if (const std::string problem = problem_of(*row, value); !problem.empty()) return bad(name, value, problem);
  (from_file ? file_values_ : values_)[name] = value;
  return {};
}

Status MasterFlags::take_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Status(Code::kInvalidArgument, "it can't be read");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const bool yaml = path.ends_with(".yaml") || path.ends_with(".yml");
  TW_ASSIGN_OR_RETURN(const auto values, yaml ? flat_yaml(text) : json_values(text));
  for (const auto& [name, value] : values)
    TW_RETURN_IF_ERROR(take(name == "client_live_ttl_sec" ? "client_ttl" : name, value, true));
  return {};
}

Status MasterFlags::check() const {
  const auto refused = [this](const std::string& name, const std::string& value, const std::string& why) {
    const Status status = bad(name, value, why);
    return file_values_.contains(name) ? status.with_context("--config_path=" + text("config_path")) : status;
  };
  for (const auto& [name, value] : values_) {
    const FlagRow& row = *find_master_flag(name);
    if (row.use != FlagUse::kMissing || same_value(row, value, row.value)) continue;
    if (*row.needs != '\0') {
      const FlagRow& needed = *find_master_flag(row.needs);
      if (same_value(needed, text(needed.name), needed.value)) continue;
    }
    return refused(name, value,
                   fmt::format("this master does not have what the flag is for; leave it out{}",
                               *row.value ? fmt::format(" (default {})", row.value) : ""));
  }
  for (const char* name : {"eviction_ratio", "eviction_high_watermark_ratio"})
    if (const double ratio = number(name); ratio <= 0 || ratio > 1)
      return refused(name, text(name), "above 0 and at most 1 is possible");
  for (const char* name : {"default_kv_lease_ttl", "default_kv_soft_pin_ttl", "max_kv_soft_pin_ttl", "client_ttl"})
    if (duration(name) < 10 * kMillisecond) return refused(name, text(name), "10 ms is the least");
  return {};
}

const std::string& MasterFlags::text(const std::string& name) const {
  static const std::map<std::string, std::string> defaults = [] {
    std::map<std::string, std::string> all;
    for (const FlagRow& row : master_flag_table()) all[row.name] = row.value;
    return all;
  }();
  const auto found = values_.find(name);
  return found == values_.end() ? defaults.at(name) : found->second;
}

bool MasterFlags::flag(const std::string& name) const {
  return bool_of(text(name)).value_or(false);
}
double MasterFlags::number(const std::string& name) const {
  return number_of(text(name)).value_or(0);
}

Nanos MasterFlags::duration(const std::string& name) const {
  return duration_of(text(name), find_master_flag(name)->kind == FlagKind::kSeconds ? kSecond : kMillisecond)
      .value_or(0);
}

uint16_t MasterFlags::port(const std::string& name) const {
  return text(name) == "auto" ? 0 : static_cast<uint16_t>(number(name));
}

std::string MasterFlags::help_text() {
  std::string text =
      "Usage: tidewire master [--flag=value | --flag value | --switch | --noswitch]...\n\nThe master of a store. Its "
      "flags are mooncake_master's:\n\n";
  std::string missing, ignored;
  for (const FlagRow& row : master_flag_table()) {
    if (row.use == FlagUse::kWorks)
      text += fmt::format("  --{:<32} {}{}\n", row.name, row.help, *row.value ? fmt::format(" [{}]", row.value) : "");
    else
      (row.use == FlagUse::kMissing ? missing : ignored) += fmt::format(" {}", row.name);
  }
  text += fmt::format("  --{:<32} {}\n", "set",
                      "Own flag: a setting name=value; repeatable (see tidewire doctor --settings)");
  return text + "\nAccepted with their defaults only, because what they are for is not there:\n " + missing +
         "\n\nAccepted without effect:\n " + ignored +
         "\n\nWhen ready it prints one line: tidewire master listens on HOST:PORT, admin on HOST:PORT. SIGINT and "
         "SIGTERM end it.\n";
}

}  // namespace tidewire::cli
