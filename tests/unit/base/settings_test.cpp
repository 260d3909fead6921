// SPDX-License-Identifier: Apache-2.0
#include "base/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/settings_text.h"
#include "unit/base/environment.h"

namespace tidewire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ScopedEnvironment;

std::string load_error(const std::vector<std::string>& options) {
  const Result<Settings> settings = Settings::load(options);
  EXPECT_FALSE(settings.ok());
  EXPECT_EQ(settings.status().code(), Code::kInvalidArgument);
  return settings.status().message();
}

SettingRow row(const std::string& name, const std::vector<std::string>& options = {}) {
  for (const SettingRow& candidate : describe_settings(options)) {
    if (candidate.name == name) return candidate;
  }
  ADD_FAILURE() << "no setting " << name;
  return {};
}

TEST(Settings, DefaultsHoldWhenNothingIsGiven) {
  const Result<Settings> settings = Settings::load({});
  ASSERT_TRUE(settings.ok()) << settings.status().to_string();
  EXPECT_EQ(settings->transfer_timeout, 30 * kSecond);
  EXPECT_EQ(settings->connect_timeout, kSecond);
  EXPECT_TRUE(settings->same_host);
  EXPECT_EQ(row("transfer.timeout").origin, "default");
}

TEST(Settings, OptionWinsOverEnvironmentOverMooncakeNameOverDefault) {
  const ScopedEnvironment mooncake("MC_TRANSFER_TIMEOUT", "40");
  EXPECT_EQ(Settings::load({})->transfer_timeout, 40 * kSecond);
  EXPECT_EQ(row("transfer.timeout").origin, "environment MC_TRANSFER_TIMEOUT");
  const ScopedEnvironment own("TIDEWIRE_TRANSFER_TIMEOUT", "20");
  EXPECT_EQ(Settings::load({})->transfer_timeout, 20 * kSecond);
  EXPECT_EQ(row("transfer.timeout").origin, "environment TIDEWIRE_TRANSFER_TIMEOUT");
  EXPECT_EQ(Settings::load({"transfer.timeout=10"})->transfer_timeout, 10 * kSecond);
  EXPECT_EQ(row("transfer.timeout", {"transfer.timeout=10"}).origin, "option");
}

TEST(Settings, TheLastOfTwoOptionsWins) {
  EXPECT_EQ(Settings::load({"threads.io=2", "threads.io=3"})->io_threads, 3);
}

TEST(Settings, AnEmptyVariableCountsAsAbsent) {
  const ScopedEnvironment own("TIDEWIRE_TRANSFER_TIMEOUT", "");
  const ScopedEnvironment mooncake("MC_TRANSFER_TIMEOUT", "40");
  EXPECT_EQ(Settings::load({})->transfer_timeout, 40 * kSecond);
}

TEST(Settings, MooncakesTimeoutIsAtLeastFiveSeconds) {
  const ScopedEnvironment mooncake("MC_TRANSFER_TIMEOUT", "1");
  EXPECT_EQ(Settings::load({})->transfer_timeout, 5 * kSecond);
}

TEST(Settings, MooncakesLogLevelsAreUnderstood) {
  const ScopedEnvironment own("TIDEWIRE_LOG", nullptr);
  const ScopedEnvironment mooncake("MC_LOG_LEVEL", "WARNING");
  EXPECT_EQ(Settings::load({})->log_level, "warn");
}

TEST(Settings, SecondsTakeFractionsAndUnits) {
  EXPECT_EQ(Settings::load({"connect.timeout=0.25"})->connect_timeout, 250 * kMillisecond);
  EXPECT_EQ(Settings::load({"connect.timeout=250ms"})->connect_timeout, 250 * kMillisecond);
  EXPECT_EQ(Settings::load({"connect.timeout=2s"})->connect_timeout, 2 * kSecond);
}

TEST(Settings, BytesTakePowersOf1024) {
  EXPECT_EQ(Settings::load({"slice.bytes=64K"})->slice_bytes, 65536);
  EXPECT_EQ(Settings::load({"slice.bytes=2MiB"})->slice_bytes, 2 << 20);
  EXPECT_EQ(Settings::load({"slice.bytes=1g"})->slice_bytes, 1 << 30);
}

TEST(Settings, ABadValueNamesSettingValueRangeAndOrigin) {
  const ScopedEnvironment own("TIDEWIRE_CONNECT_TIMEOUT", "soon");
  EXPECT_THAT(load_error({}), AllOf(HasSubstr("connect.timeout"), HasSubstr("'soon'"), HasSubstr("0.01 to 60"),
                                    HasSubstr("environment TIDEWIRE_CONNECT_TIMEOUT")));
}

TEST(Settings, ValuesOutOfRangeAreRefusedAtBothEnds) {
  for (const char* option : {"connect.timeout=0.009", "connect.timeout=60.1", "connect.timeout=-1",
                             "connect.timeout=1e300", "connect.timeout=nan", "slice.pieces=0", "slice.pieces=65537",
                             "slice.bytes=63K", "slice.bytes=9999999999G", "port.max=65536"}) {
    EXPECT_THAT(load_error({option}), HasSubstr(std::string(option).substr(0, std::string(option).find('='))))
        << option;
  }
  EXPECT_TRUE(Settings::load({"connect.timeout=0.01", "slice.pieces=65536", "slice.bytes=64K"}).ok());
}

TEST(Settings, MalformedValuesAreRefused) {
  for (const char* option : {"threads.io=2x", "threads.io=", "threads.io=1.5", "slice.bytes=64T", "same_host=maybe",
                             "log.level=loud", "metrics=9100", "metrics=host:99999", "metrics=:80", "metrics=::1:80"}) {
    EXPECT_FALSE(Settings::load({option}).ok()) << option;
  }
}

TEST(Settings, HostAndPortOfMetricsTakeBracketedV6) {
  EXPECT_EQ(Settings::load({"metrics=[::1]:0"})->metrics, "[::1]:0");
  EXPECT_EQ(Settings::load({"metrics=127.0.0.1:9100"})->metrics, "127.0.0.1:9100");
}

TEST(Settings, UnknownNamesAndShapelessOptionsAreRefused) {
  EXPECT_THAT(load_error({"transfer.timout=3"}), HasSubstr("unknown setting 'transfer.timout'"));
  EXPECT_THAT(load_error({"transfer.timeout"}), HasSubstr("name=value"));
}

TEST(Settings, PortRangesComeInPairs) {
  EXPECT_THAT(load_error({"port.min=5000"}), HasSubstr("port.max=0"));
  EXPECT_THAT(load_error({"port.min=5001", "port.max=5000"}), HasSubstr("5001"));
  EXPECT_TRUE(Settings::load({"port.min=5000", "port.max=5000"}).ok());
}

TEST(Settings, ForeignBytesInAnErrorAreMadePrintable) {
  EXPECT_THAT(load_error({"threads.io=\x1b[2J\n"}), Not(HasSubstr("\x1b")));
  EXPECT_LT(load_error({"threads.io=" + std::string(100'000, 'x')}).size(), 1000u);
}

TEST(Settings, TheTableShowsABadValuesErrorInstead) {
  EXPECT_THAT(row("threads.io", {"threads.io=many"}).value, HasSubstr("bad value 'many'"));
}

TEST(Settings, EveryRowIsCompleteAndItsDefaultIsInItsRange) {
  std::set<std::string> names, variables;
  for (const SettingRow& each : describe_settings({})) {
    EXPECT_TRUE(names.insert(each.name).second) << each.name;
    EXPECT_TRUE(variables.insert(each.environment).second) << each.environment;
    EXPECT_TRUE(each.environment.starts_with("TIDEWIRE_")) << each.environment;
    EXPECT_FALSE(each.help.empty()) << each.name;
    EXPECT_FALSE(each.range.empty()) << each.name;
    EXPECT_TRUE(Settings::load({each.name + "=" + each.default_value}).ok()) << each.name << "=" << each.default_value;
  }
  EXPECT_GE(names.size(), 20u);
}

TEST(Settings, JsonHoldsEveryRowAndSurvivesForeignBytes) {
  const ScopedEnvironment own("TIDEWIRE_SECRET_FILE", "/tmp/\xff\xfe");
  const auto parsed = nlohmann::json::parse(settings_json(describe_settings({})));
  EXPECT_EQ(parsed.size(), describe_settings({}).size());
  EXPECT_EQ(parsed[0]["name"], "transfer.timeout");
  EXPECT_EQ(parsed[0]["unit"], "s");
}

TEST(Settings, MarkdownDoesNotDependOnTheEnvironment) {
  const std::string before = settings_markdown(describe_settings({}));
  const ScopedEnvironment own("TIDEWIRE_CONNECT_TIMEOUT", "7");
  EXPECT_EQ(settings_markdown(describe_settings({})), before);
  EXPECT_THAT(before, HasSubstr("| `transfer.timeout` | s | `30` |"));
}

}  // namespace
}  // namespace tidewire
