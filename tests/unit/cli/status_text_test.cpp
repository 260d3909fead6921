// SPDX-License-Identifier: Apache-2.0
#include "cli/status_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidewire::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kStatus[] = R"({
  "version": "0.1.0", "address": "10.0.0.1:4000", "process_id": 77, "regions": 3, "registered_bytes": 1073741824, "peers_known": 3,
  "notifications_waiting": 1, "metrics_address": "127.0.0.1:9100",
  "rails": [{"transport": "tcp", "name": "eth0", "address": "10.0.0.1:4000", "bits_per_second": 25000000000}],
  "peers": [{"name": "10.0.0.2:4000", "state": "ready", "jobs": 2, "retries": 1, "fallbacks": 0, "backoffs": 0, "last_error": "",
             "channels": [{"transport": "tcp", "local_rail": 0, "remote_rail": 1, "state": "up", "in_flight_bytes": 65536,
                           "bytes_per_second": 1048576}]},
            {"name": "10.0.0.3:4000", "state": "back-off", "jobs": 0, "retries": 9, "fallbacks": 0, "backoffs": 3,
             "last_error": "UNREACHABLE: connect to 10.0.0.3:4000: Connection refused", "channels": []}],
  "last_errors": ["UNREACHABLE: connect to 10.0.0.3:4000: Connection refused"]})";

TEST(StatusText, ShowsEngineRailsPeersWorkAndErrors) {
  const std::string text = *status_text(kStatus);
  EXPECT_THAT(
      text, AllOf(HasSubstr("engine 10.0.0.1:4000  process 77"), HasSubstr("regions 3 (1 GiB)"), HasSubstr("25 Gbit/s"),
                  HasSubstr("metrics http://127.0.0.1:9100/metrics"), HasSubstr("back-off"), HasSubstr("64 KiB"),
                  HasSubstr("1 MiB/s"), HasSubstr("\nLast errors\n  UNREACHABLE"), HasSubstr("and 1 more")));
}

TEST(StatusText, AnIdleEngineSaysNone) {
  const std::string text = *status_text("{}");
  EXPECT_THAT(text, AllOf(HasSubstr("Peers: none"), HasSubstr("Work in flight: none"), HasSubstr("Last errors: none")));
  EXPECT_THAT(text, Not(HasSubstr("metrics http")));
}

TEST(StatusText, OtherTypesAndForeignBytesAreNoHarm) {
  for (const char* text :
       {R"({"peers": 5, "rails": {}, "last_errors": "x", "regions": [], "peers_known": -1})",
        R"({"peers": [1, null, "x", {"channels": 7}], "rails": [[]], "last_errors": [null, 3, {"code": "TIMEOUT"}]})",
        R"({"regions": 1e308, "registered_bytes": 1e308, "process_id": {"a": 1}})"}) {
    EXPECT_TRUE(status_text(text).ok()) << text;
  }
  EXPECT_THAT(*status_text("{\"address\": \"a\\u001b[2Jb\\nc\"}"),
              AllOf(Not(HasSubstr("\x1b")), HasSubstr("a [2Jb c")));
}

TEST(StatusText, WhatIsNoObjectIsRefused) {
  for (const char* text : {"", "[]", "{", "null", "hello"})
    EXPECT_EQ(status_text(text).status().code(), Code::kProtocol) << text;
}

TEST(StatusText, ProcessesAreFoundByTheNamesOfTheirSockets) {
  EXPECT_THAT(engine_processes("Num RefCount Path\n"
                               "0: 00000002 00000000 00010000 0001 01 5 @tidewire-status-300-0\n"
                               "0: 00000002 00000000 00010000 0001 01 6 @tidewire-status-20-0\n"
                               "0: 00000002 00000000 00010000 0001 01 7 @tidewire-status-300-1\n"
                               "0: 00000002 00000000 00010000 0001 01 8 @tidewire-status-x\n"
                               "0: 00000002 00000000 00010000 0001 01 9 /run/dbus\n"),
              ElementsAre(20, 300));
  EXPECT_THAT(engine_processes(""), IsEmpty());
}

}  // namespace
}  // namespace tidewire::cli
