// SPDX-License-Identifier: Apache-2.0
#include "base/settings.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <variant>

#include "base/settings_values.h"

namespace tidewire {
namespace {

using settings_values::Kind;

struct Entry {
  const char* name;
  Kind kind;
  std::variant<Nanos Settings::*, bool Settings::*, std::string Settings::*> member;
  int64_t min, max;  // in nanoseconds for Kind::kSeconds; unused for words
  const char* mooncake;
  const char* help;
};

constexpr int64_t kKiB = 1 << 10;
constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kGiB = 1 << 30;

const Entry kTable[] = {
    {"transfer.timeout", Kind::kSeconds, &Settings::transfer_timeout, kMillisecond, 86400 * kSecond,
     "MC_TRANSFER_TIMEOUT",
     "Deadline of a batch that was submitted without one, plus 1 ns for each byte. MC_TRANSFER_TIMEOUT below 5 counts "
     "as 5."},
    {"connect.timeout", Kind::kSeconds, &Settings::connect_timeout, 10 * kMillisecond, 60 * kSecond, "",
     "One attempt to reach a peer: connection and handshake."},
    {"lane.stall_timeout", Kind::kSeconds, &Settings::stall_timeout, 50 * kMillisecond, 60 * kSecond, "",
     "A connection with work in flight that makes no progress for so long is given up and its work sent another way."},
    {"peer.probe_interval", Kind::kSeconds, &Settings::probe_interval, 50 * kMillisecond, 60 * kSecond, "",
     "How often a peer in back-off is tried again."},
    {"connection.idle_close", Kind::kSeconds, &Settings::idle_close, kSecond, 86400 * kSecond, "",
     "Connections without work for so long are closed; the next transfer opens them again."},
    {"store.timeout", Kind::kSeconds, &Settings::store_timeout, 100 * kMillisecond, 3600 * kSecond, "",
     "One call of a store's client, from the question to the master to the last byte."},
    {"log.slow_transfer", Kind::kSeconds, &Settings::slow_transfer, 0, 3600 * kSecond, "",
     "Batches slower than this are logged with their phases; 0 logs none."},
    {"threads.io", Kind::kInteger, &Settings::io_threads, 0, 64, "",
     "Threads that drive sockets; 0 chooses half the processors, between 2 and 4."},
    {"threads.copy", Kind::kInteger, &Settings::copy_threads, 0, 64, "",
     "Threads that copy between processes of one host; 0 chooses one less than the processors, between 1 and 4."},
    {"tcp.lanes_per_rail", Kind::kInteger, &Settings::lanes_per_rail, 0, 16, "",
     "Connections to one peer over one rail; 0 chooses."},
    {"slice.bytes", Kind::kBytes, &Settings::slice_bytes, 64 * kKiB, kGiB, "",
     "Largest piece of a transfer that one rail carries in one operation."},
    {"slice.pieces", Kind::kInteger, &Settings::slice_pieces, 1, 65536, "",
     "Most pieces that one scatter frame carries."},
    {"lane.window", Kind::kBytes, &Settings::lane_window_bytes, 64 * kKiB, kGiB, "",
     "Bytes in flight on one connection."},
    {"tcp.socket_buffer", Kind::kBytes, &Settings::socket_buffer, 0, 256 * kMiB, "",
     "Send and receive buffer of data connections; 0 leaves it to the kernel."},
    {"port.min", Kind::kInteger, &Settings::port_min, 0, 65535, "MC_MIN_PRC_PORT",
     "Lowest port that an engine listens on when none is named; 0 takes any free port."},
    {"port.max", Kind::kInteger, &Settings::port_max, 0, 65535, "MC_MAX_PRC_PORT",
     "Highest port that an engine listens on when none is named; set it together with port.min."},
    {"same_host", Kind::kBool, &Settings::same_host, 0, 1, "", "Use shared memory between processes of one host."},
    {"busy_poll", Kind::kBool, &Settings::busy_poll, 0, 1, "",
     "Waiters spin instead of sleeping: lowest latency, one processor for each waiter."},
    {"same_host.allow_ptrace", Kind::kBool, &Settings::ptracer, 0, 1, "",
     "Lets processes of the same user copy this one's memory although Yama's ptrace_scope is 1 (PR_SET_PTRACER_ANY)."},
    {"force_tcp", Kind::kBool, &Settings::force_tcp, 0, 1, "MC_FORCE_TCP",
     "Protocol \"rdma\" uses TCP, also where InfiniBand-class devices exist."},
    {"secret.file", Kind::kText, &Settings::secret_file, 0, 0, "",
     "File with the cluster secret, 16 to 4096 bytes, readable by its owner alone. Empty: peers are not "
     "authenticated."},
    {"metrics", Kind::kHostPort, &Settings::metrics, 0, 0, "",
     "Where metrics are served in Prometheus' text format (path /metrics); port 0 chooses one and logs it. Empty: "
     "off."},
    {"log.level", Kind::kLogLevel, &Settings::log_level, 0, 0, "MC_LOG_LEVEL",
     "Lines below this level are not written."},
};

std::string environment_name(const Entry& entry) {
  if (std::string_view(entry.name) == "log.level") return "TIDEWIRE_LOG";
  std::string name = std::string("TIDEWIRE_") + entry.name;
  for (char& letter : name)
    letter = letter == '.' ? '_' : static_cast<char>(letter >= 'a' && letter <= 'z' ? letter - 32 : letter);
  return name;
}

// What was given for an entry, and by whom.
struct Given {
  std::string value;
  std::string origin = "default";  // "option", "environment NAME" or "default"
  bool mooncake = false;
};

Given given_value(const Entry& entry, const std::vector<std::string>& options) {
  const std::string prefix = std::string(entry.name) + "=";
  // The last option wins, as on a command line.
  for (auto option = options.rbegin(); option != options.rend(); ++option) {
    if (option->starts_with(prefix)) return {option->substr(prefix.size()), "option", false};
  }
  const std::string own = environment_name(entry);
  // An empty variable counts as absent, so that a deployment template can leave it blank.
  if (const char* value = std::getenv(own.c_str()); value && *value) return {value, "environment " + own, false};
  if (*entry.mooncake) {
    if (const char* value = std::getenv(entry.mooncake); value && *value) {
      return {value, std::string("environment ") + entry.mooncake, true};
    }
  }
  return {};
}

std::string range_of(const Entry& entry) {
  return settings_values::range_text(entry.kind, entry.min, entry.max);
}

Status apply(const Entry& entry, const Given& given, Settings* settings) {
  if (given.origin == "default") return {};
  const auto bad = [&](std::string_view why) {
    return Status::error(Code::kInvalidArgument, "setting {}: bad value '{}' from {}: {}; it takes {}", entry.name,
                         settings_values::printable(given.value), given.origin, why, range_of(entry));
  };
  if (const auto* number = std::get_if<Nanos Settings::*>(&entry.member)) {
    Result<int64_t> parsed = settings_values::parse_number(entry.kind, given.value);
    if (!parsed.ok()) return bad(parsed.status().message());
    if (given.mooncake && entry.kind == Kind::kSeconds) *parsed = std::max<int64_t>(*parsed, 5 * kSecond);
    if (*parsed < entry.min || *parsed > entry.max) return bad("out of range");
    settings->*(*number) = *parsed;
  } else if (const auto* flag = std::get_if<bool Settings::*>(&entry.member)) {
    Result<bool> parsed = settings_values::parse_bool(given.value);
    if (!parsed.ok()) return bad(parsed.status().message());
    settings->*(*flag) = *parsed;
  } else {
    Result<std::string> parsed = settings_values::parse_text(entry.kind, given.value);
    if (!parsed.ok()) return bad(parsed.status().message());
    settings->*std::get<std::string Settings::*>(entry.member) = *parsed;
  }
  return {};
}

std::string value_text(const Entry& entry, const Settings& settings) {
  if (const auto* number = std::get_if<Nanos Settings::*>(&entry.member)) {
    return settings_values::number_text(entry.kind, settings.*(*number));
  }
  if (const auto* flag = std::get_if<bool Settings::*>(&entry.member)) return settings.*(*flag) ? "true" : "false";
  return settings.*std::get<std::string Settings::*>(entry.member);
}

Status check_option_names(const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    const size_t equals = option.find('=');
    if (equals == std::string::npos) {
      return Status::error(Code::kInvalidArgument, "bad option '{}': options are name=value",
                           settings_values::printable(option));
    }
    const std::string_view name = std::string_view(option).substr(0, equals);
    if (std::none_of(std::begin(kTable), std::end(kTable), [&](const Entry& entry) { return name == entry.name; })) {
      return Status::error(Code::kInvalidArgument, "unknown setting '{}': `tidewire doctor --settings` lists the names",
                           settings_values::printable(name));
    }
  }
  return {};
}

}  // namespace

Result<Settings> Settings::load(const std::vector<std::string>& options) {
  TW_RETURN_IF_ERROR(check_option_names(options));
  Settings settings;
  for (const Entry& entry : kTable) TW_RETURN_IF_ERROR(apply(entry, given_value(entry, options), &settings));
  if ((settings.port_min == 0) != (settings.port_max == 0) || settings.port_min > settings.port_max) {
    return Status::error(
        Code::kInvalidArgument,
        "settings port.min={} and port.max={}: give both, with port.min no higher than port.max, or neither",
        settings.port_min, settings.port_max);
  }
  return settings;
}

std::vector<SettingRow> describe_settings(const std::vector<std::string>& options) {
  std::vector<SettingRow> rows;
  const Settings defaults;
  for (const Entry& entry : kTable) {
    const Given given = given_value(entry, options);
    Settings settings;
    const Status status = apply(entry, given, &settings);
    rows.push_back({entry.name, settings_values::unit_text(entry.kind), value_text(entry, defaults), range_of(entry),
                    environment_name(entry), entry.mooncake,
                    status.ok() ? value_text(entry, settings) : status.message(), given.origin, entry.help});
  }
  return rows;
}

}  // namespace tidewire
