// SPDX-License-Identifier: Apache-2.0
#include "control/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <string_view>

namespace tidewire::control {
namespace {

constexpr size_t kMaxHost = 253;  // characters of a DNS name
constexpr size_t kMaxLabel = 63;
constexpr size_t kMaxShown = 300;  // of a bad text in an error

Status bad(const std::string& text, std::string_view why) {
  std::string shown;
  for (char c : text.substr(0, kMaxShown)) shown += (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) ? '?' : c;
  if (text.size() > kMaxShown) shown += "...";
  return Status::error(Code::kInvalidArgument, "bad address '{}': {}", shown, why);
}

bool alnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_v4(const std::string& host) {
  in_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1;
}

bool is_scope(std::string_view scope) {
  return !scope.empty() && scope.size() < IF_NAMESIZE &&
         std::all_of(scope.begin(), scope.end(), [](char c) { return alnum(c) || c == '_' || c == '.' || c == '-'; });
}

bool is_v6(const std::string& host) {
  const size_t percent = host.find('%');
  if (percent != std::string::npos && !is_scope(std::string_view(host).substr(percent + 1))) return false;
  in6_addr address;
  return inet_pton(AF_INET6, host.substr(0, percent).c_str(), &address) == 1;
}

// nullptr, or what is wrong with a host that holds no colon.
const char* name_fault(const std::string& host) {
  if (host.size() > kMaxHost) return "a host name has at most 253 characters";
  if (is_v4(host)) return nullptr;
  if (std::all_of(host.begin(), host.end(), [](char c) { return (c >= '0' && c <= '9') || c == '.'; }))
    return "neither an IPv4 address (four numbers up to 255) nor a name";
  size_t start = 0;
  while (start <= host.size()) {
    size_t end = host.find('.', start);
    if (end == std::string::npos) end = host.size();
    if (start == host.size() && start > 0) break;  // one dot at the end is allowed
    if (end == start) return "empty part in the host name";
    if (end - start > kMaxLabel) return "a part of a host name has at most 63 characters";
    for (size_t i = start; i < end; ++i)
      if (!alnum(host[i]) && host[i] != '-' && host[i] != '_')
        return "a host name holds letters, digits, '-', '_' and '.'";
    if (host[start] == '-' || host[end - 1] == '-') return "a part of a host name can't start or end with '-'";
    start = end + 1;
  }
  return nullptr;
}

bool parse_port(std::string_view digits, uint16_t* port) {
  if (digits.empty() || digits.size() > 5) return false;
  uint32_t value = 0;
  for (char c : digits) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + static_cast<uint32_t>(c - '0');
  }
  if (value > 65'535) return false;
  *port = static_cast<uint16_t>(value);
  return true;
}

constexpr std::string_view kBadPort = "a port is a number from 0 to 65535";

}  // namespace

std::string HostPort::to_string() const {
  std::string text = host.find(':') == std::string::npos ? host : "[" + host + "]";
  if (has_port) text += fmt::format(":{}", port);
  return text;
}

Result<HostPort> parse_address(const std::string& text) {
  HostPort result;
  if (text.empty()) return bad(text, "empty");
  // The system's functions read up to the first NUL and would take the rest for nothing.
  if (text.find('\0') != std::string::npos) return bad(text, "it holds a NUL byte");
  if (text.front() == '[') {
    const size_t close = text.find(']');
    if (close == std::string::npos) return bad(text, "']' is missing");
    result.host = text.substr(1, close - 1);
    if (!is_v6(result.host)) return bad(text, "no IPv6 address between the brackets");
    if (close + 1 == text.size()) return result;
    if (text[close + 1] != ':') return bad(text, "only ':port' may follow ']'");
    if (!parse_port(std::string_view(text).substr(close + 2), &result.port)) return bad(text, kBadPort);
    result.has_port = true;
    return result;
  }
  const auto colons = std::count(text.begin(), text.end(), ':');
  if (colons >= 2) {
    if (!is_v6(text)) return bad(text, "not an IPv6 address; with a port it is written [address]:port");
    result.host = text;
    return result;
  }
  const size_t colon = text.find(':');
  result.host = text.substr(0, colon);
  if (result.host.empty()) return bad(text, "no host before the port");
  if (const char* fault = name_fault(result.host)) return bad(text, fault);
  if (colon == std::string::npos) return result;
  if (!parse_port(std::string_view(text).substr(colon + 1), &result.port)) return bad(text, kBadPort);
  result.has_port = true;
  return result;
}

bool is_wildcard(const std::string& host) {
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return v4.s_addr == INADDR_ANY;
  in6_addr v6;
  if (inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &v6) != 1) return false;
  if (IN6_IS_ADDR_UNSPECIFIED(&v6)) return true;
  return IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 0 && v6.s6_addr[13] == 0 && v6.s6_addr[14] == 0 &&
         v6.s6_addr[15] == 0;
}

bool is_literal(const std::string& host) {
  return is_v4(host) || is_v6(host);
}

}  // namespace tidewire::control
