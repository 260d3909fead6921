// SPDX-License-Identifier: Apache-2.0
#include "cli/master_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "cli/master_flag_table.h"

namespace tidewire::cli {
namespace {

using ::testing::HasSubstr;

MasterFlags parse(const std::vector<std::string>& arguments) {
  auto flags = MasterFlags::parse(arguments);
  EXPECT_TRUE(flags.ok()) << flags.status().to_string();
  return flags.ok() ? *flags : MasterFlags();
}
std::string refusal(const std::vector<std::string>& arguments) {
  const auto flags = MasterFlags::parse(arguments);
  EXPECT_FALSE(flags.ok());
  EXPECT_EQ(flags.status().code(), Code::kInvalidArgument);
  return flags.status().message();
}

// A file that is gone after the test.
struct File {
  File(const std::string& name, const std::string& text) : path(::testing::TempDir() + name) {
    std::ofstream(path) << text;
  }
  ~File() { std::remove(path.c_str()); }
  const std::string path;
};

TEST(MasterFlags, WithoutFlagsTheDefaultsHold) {
  const MasterFlags flags = parse({});
  EXPECT_EQ(flags.text("rpc_address"), "0.0.0.0");
  EXPECT_EQ(flags.port("metrics_port"), 9003);
  EXPECT_EQ(flags.duration("default_kv_lease_ttl"), 10 * kSecond);
  EXPECT_EQ(flags.duration("client_ttl"), 10 * kSecond);
  EXPECT_TRUE(flags.flag("allow_evict_soft_pinned_objects"));
}

TEST(MasterFlags, AllSpellingsOfAFlagAreUnderstood) {
  EXPECT_EQ(parse({"--rpc_port=1"}).port("rpc_port"), 1);
  EXPECT_EQ(parse({"--rpc_port", "2"}).port("rpc_port"), 2);
  EXPECT_EQ(parse({"-rpc_port=3"}).port("rpc_port"), 3);
  EXPECT_EQ(parse({"--rpc-port=4"}).port("rpc_port"), 4);
  EXPECT_EQ(parse({"--rpc_port=1", "--rpc_port=5"}).port("rpc_port"), 5);
  EXPECT_EQ(parse({"--metrics_port=auto"}).port("metrics_port"), 0);
  EXPECT_TRUE(parse({"--enable_http_metadata_server"}).flag("enable_http_metadata_server"));
  EXPECT_FALSE(parse({"--enable_http_metadata_server=no"}).flag("enable_http_metadata_server"));
  EXPECT_FALSE(parse({"--noallow_evict_soft_pinned_objects"}).flag("allow_evict_soft_pinned_objects"));
  EXPECT_TRUE(parse({"--help"}).help());
}

TEST(MasterFlags, DurationsHaveUnits) {
  const std::pair<const char*, Nanos> leases[] = {{"10000", 10 * kSecond},
                                                  {"250ms", 250 * kMillisecond},
                                                  {"10s", 10 * kSecond},
                                                  {"5m", 300 * kSecond},
                                                  {"1h", 3600 * kSecond}};
  for (const auto& [text, nanos] : leases)
    EXPECT_EQ(parse({"--default_kv_lease_ttl", text}).duration("default_kv_lease_ttl"), nanos) << text;
  EXPECT_EQ(parse({"--client_ttl=3"}).duration("client_ttl"), 3 * kSecond);
  for (const char* text : {"", "x", "-1", "10 s", "10d", "1e999", "0", "nan", "1h1m"})
    EXPECT_THAT(refusal({std::string("--default_kv_lease_ttl=") + text}), HasSubstr("default_kv_lease_ttl")) << text;
}

TEST(MasterFlags, EveryFlagIsAcceptedWithItsDefault) {
  std::vector<std::string> all;
  for (const FlagRow& row : master_flag_table())
    if (std::string(row.name) != "config_path") all.push_back(fmt::format("--{}={}", row.name, row.value));
  EXPECT_GT(all.size(), 104u);
  parse(all);
}

TEST(MasterFlags, WhatIsMissingIsRefusedByName) {
  EXPECT_THAT(refusal({"--enable_offload"}), HasSubstr("--enable_offload=true"));
  EXPECT_THAT(refusal({"--enable_ha=true"}), HasSubstr("enable_ha"));
  EXPECT_THAT(refusal({"--root_fs_dir=/data"}), HasSubstr("root_fs_dir"));
  EXPECT_THAT(refusal({"--norpc_enable_tcp_no_delay"}), HasSubstr("rpc_enable_tcp_no_delay"));
  EXPECT_THAT(refusal({"--memory_allocator=cachelib"}), HasSubstr("default offset"));
}

TEST(MasterFlags, WhatMeansNothingWhileItsSwitchIsOffIsAccepted) {
  parse({"--cluster_id=mine", "--etcd_endpoints=a:1", "--snapshot_interval_seconds=60", "--offload_cap_ratio=0.1",
         "--quota_bytes=5"});
  parse({"--max_threads=64", "--rpc_thread_num=4", "--enable_metric_reporting=false", "--logtostderr", "--log_dir=/tmp",
         "--v=1"});
}

TEST(MasterFlags, MistakesAreNamed) {
  EXPECT_THAT(refusal({"--no_such_flag=1"}), HasSubstr("no_such_flag"));
  EXPECT_THAT(refusal({"--rpc_port"}), HasSubstr("rpc_port"));
  EXPECT_THAT(refusal({"--rpc_port=70000"}), HasSubstr("rpc_port=70000"));
  EXPECT_THAT(refusal({"--rpc_port=-1"}), HasSubstr("rpc_port=-1"));
  EXPECT_THAT(refusal({"--enable_ha", "false"}), HasSubstr("'false'"));
  EXPECT_THAT(refusal({"--enable_ha=maybe"}), HasSubstr("enable_ha=maybe"));
  EXPECT_THAT(refusal({"--eviction_ratio=2"}), HasSubstr("eviction_ratio=2"));
  EXPECT_THAT(refusal({"--norpc_port"}), HasSubstr("norpc_port"));
}

TEST(MasterFlags, AFileGivesFlagsAndTheCommandLineGoesFirst) {
  const File json(
      "master.json",
      R"({"rpc_port": 7, "client_live_ttl_sec": 4, "default_kv_lease_ttl": "20s", "enable_http_metadata_server": true})");
  const MasterFlags flags = parse({"--config_path=" + json.path, "--rpc_port=8"});
  EXPECT_EQ(flags.port("rpc_port"), 8);
  EXPECT_EQ(flags.duration("client_ttl"), 4 * kSecond);
  EXPECT_EQ(flags.duration("default_kv_lease_ttl"), 20 * kSecond);
  EXPECT_TRUE(flags.flag("enable_http_metadata_server"));
  const File yaml("master.yaml",
                  "---\n# comment\nrpc_port: 9  # here too\n\nrpc_address: \"127.0.0.1\"\neviction_ratio: 0.1\n");
  const MasterFlags other = parse({"--config_path", yaml.path});
  EXPECT_EQ(other.port("rpc_port"), 9);
  EXPECT_EQ(other.text("rpc_address"), "127.0.0.1");
  EXPECT_EQ(other.number("eviction_ratio"), 0.1);
}

TEST(MasterFlags, ABadFileIsNamedWithWhatIsWrong) {
  EXPECT_THAT(refusal({"--config_path=/no/such/file"}), HasSubstr("/no/such/file"));
  const std::pair<const char*, const char*> files[] = {{"{", "JSON"},
                                                       {"[1]", "JSON"},
                                                       {R"({"rpc_port": [1]})", "rpc_port"},
                                                       {R"({"no_such_flag": 1})", "no_such_flag"},
                                                       {R"({"enable_ha": true})", "enable_ha"}};
  for (const auto& [text, named] : files) {
    const File file("bad.json", text);
    EXPECT_THAT(refusal({"--config_path=" + file.path}), HasSubstr(named)) << text;
  }
  const File nested("bad.yaml", "rpc_port: 1\nother:\n  inner: 2\n");
  EXPECT_THAT(refusal({"--config_path=" + nested.path}), HasSubstr("line 3"));
}

}  // namespace
}  // namespace tidewire::cli
