// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "control/address.h"

namespace tidewire::control {
namespace {

struct Good {
  const char* text;
  const char* host;
  uint16_t port;
  bool has_port;
  const char* back;
};

TEST(Address, ReadsEveryFormOfTheSyntax) {
  const Good cases[] = {
      {"127.0.0.1", "127.0.0.1", 0, false, "127.0.0.1"},
      {"127.0.0.1:4000", "127.0.0.1", 4000, true, "127.0.0.1:4000"},
      {"localhost", "localhost", 0, false, "localhost"},
      {"localhost:1", "localhost", 1, true, "localhost:1"},
      {"::1", "::1", 0, false, "[::1]"},
      {"[::1]", "::1", 0, false, "[::1]"},
      {"[::1]:65535", "::1", 65535, true, "[::1]:65535"},
      {"fe80::1%veth0", "fe80::1%veth0", 0, false, "[fe80::1%veth0]"},
      {"[fe80::1%veth0]:80", "fe80::1%veth0", 80, true, "[fe80::1%veth0]:80"},
      // Two colons and no brackets: an address as a whole, although it looks like ::1 and a port.
      {"::1:5000", "::1:5000", 0, false, "[::1:5000]"},
      {"::ffff:10.0.0.1", "::ffff:10.0.0.1", 0, false, "[::ffff:10.0.0.1]"},
      {"0.0.0.0", "0.0.0.0", 0, false, "0.0.0.0"},
      {"::", "::", 0, false, "[::]"},
      {"node-1.rack_2.example:0", "node-1.rack_2.example", 0, true, "node-1.rack_2.example:0"},
      {"example.", "example.", 0, false, "example."},
  };
  for (const Good& good : cases) {
    const Result<HostPort> parsed = parse_address(good.text);
    ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
    EXPECT_EQ(parsed->host, good.host);
    EXPECT_EQ(parsed->port, good.port) << good.text;
    EXPECT_EQ(parsed->has_port, good.has_port) << good.text;
    EXPECT_EQ(parsed->to_string(), good.back);
  }
}

TEST(Address, RefusesWhatIsNoneAndRepeatsIt) {
  const std::string label(63, 'a');
  for (const std::string& text : std::initializer_list<std::string>{"",
                                                                    "host:",
                                                                    ":4000",
                                                                    "host:99999",
                                                                    "host:65536",
                                                                    "host:-1",
                                                                    "host:+1",
                                                                    "host:1x",
                                                                    "host: 1",
                                                                    "1:2:3",
                                                                    "[::1",
                                                                    "[::1]x",
                                                                    "[::1]:",
                                                                    "[::1]:99999",
                                                                    "[]:1",
                                                                    "[127.0.0.1]:1",
                                                                    "256.0.0.1",
                                                                    "1.2.3",
                                                                    "1.2.3.4.5",
                                                                    "a b",
                                                                    "a/b",
                                                                    "-a",
                                                                    "a-",
                                                                    "a..b",
                                                                    ".",
                                                                    ".a",
                                                                    "fe80::1%",
                                                                    "fe80::1%aaaaaaaaaaaaaaaa",
                                                                    "fe80::1%a/b",
                                                                    "::1%%",
                                                                    label + "a",
                                                                    "http://host:1",
                                                                    "::1::",
                                                                    "\x01"}) {
    const Result<HostPort> parsed = parse_address(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), Code::kInvalidArgument);
    if (text != "\x01") {
      EXPECT_EQ(parsed.status().message().find("bad address '" + text + "': "), 0u) << parsed.status().message();
    }
  }
}

TEST(Address, RefusesTextsThatEndEarlierForTheSystemThanForUs) {
  for (const char* head : {"127.0.0.1", "::1", "name", "[::1]"}) {
    const std::string text = std::string(head) + '\0' + "evil";
    EXPECT_EQ(parse_address(text).status().code(), Code::kInvalidArgument) << head;
    EXPECT_EQ(parse_address(head + std::string(1, '\0')).status().code(), Code::kInvalidArgument) << head;
  }
}

TEST(Address, TakesNamesUpTo253Characters) {
  const std::string label(63, 'a');
  const std::string name = label + "." + label + "." + label + "." + std::string(61, 'b');
  ASSERT_EQ(name.size(), 253u);
  EXPECT_TRUE(parse_address(name).ok());
  EXPECT_EQ(parse_address(name + ":4000")->port, 4000);
  EXPECT_FALSE(parse_address(name + "b").ok());
  EXPECT_FALSE(parse_address(name + "b:4000").ok());
  // An error stays readable, whatever comes in.
  EXPECT_LT(parse_address(std::string(1 << 20, 'x')).status().message().size(), 1000u);
}

TEST(Address, KnowsWildcardsInEverySpelling) {
  for (const char* text : {"0.0.0.0", "::", "0:0:0:0:0:0:0:0", "::0", "::ffff:0.0.0.0"})
    EXPECT_TRUE(is_wildcard(text)) << text;
  for (const char* text : {"127.0.0.1", "::1", "localhost", "", "0", "::ffff:1.0.0.0"})
    EXPECT_FALSE(is_wildcard(text)) << text;
}

TEST(Address, TellsLiteralsFromNames) {
  for (const char* text : {"127.0.0.1", "::1", "fe80::1%eth0"}) EXPECT_TRUE(is_literal(text)) << text;
  for (const char* text : {"localhost", "example", "1:2:3", ""}) EXPECT_FALSE(is_literal(text)) << text;
}

}  // namespace
}  // namespace tidewire::control
