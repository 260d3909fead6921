// SPDX-License-Identifier: Apache-2.0
//
// Address syntax of the project: "host", "host:port", "[v6]:port", bare "v6", scope ids ("fe80::1%eth0"). Pure text, no
// lookup.
//
// A text with two colons or more and no brackets is an IPv6 literal as a whole, without a port: "::1:5000" is the
// address ::1:5000. Whoever means a port writes "[::1]:5000".
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace tidewire::control {

struct HostPort {
  std::string host;   // without brackets
  uint16_t port = 0;  // 0 = none given, or 0 given
  bool has_port = false;
  std::string to_string() const;  // brackets v6 literals; the port only when has_port
};

// kInvalidArgument reads "bad address '<text>': why".
Result<HostPort> parse_address(const std::string& text);
// 0.0.0.0, :: and their other spellings.
bool is_wildcard(const std::string& host);
// An IPv4 or IPv6 literal (scope id allowed), as opposed to a name.
bool is_literal(const std::string& host);

}  // namespace tidewire::control
