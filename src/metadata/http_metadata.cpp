// SPDX-License-Identifier: Apache-2.0
#include "metadata/http_metadata.h"

#include <cctype>
#include <nlohmann/json.hpp>

#include "control/address.h"

namespace tidewire::metadata {
namespace {

constexpr std::string_view kScheme = "http://";
constexpr uint16_t kDefaultPort = 80;
constexpr size_t kMaxName = 512;

// Everything but letters, digits and -_.~ as %XX.
std::string encode(const std::string& text) {
  std::string out;
  for (unsigned char c : text) {
    if (std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '~') {
      out += static_cast<char>(c);
    } else {
      out += fmt::format("%{:02X}", c);
    }
  }
  return out;
}

std::string shown(const std::string& body) {
  std::string text = body.substr(0, 200);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return text;
}

Status check_name(const std::string& name) {
  if (name.empty() || name.size() > kMaxName)
    return Status::error(Code::kInvalidArgument, "bad name '{}': 1 to {} characters", name.substr(0, kMaxName),
                         kMaxName);
  return Status();
}

}  // namespace

HttpMetadata::HttpMetadata(std::string url, HttpServer server, std::string path, Nanos timeout)
    : url_(std::move(url)), server_(std::move(server)), path_(std::move(path)), timeout_(timeout) {}

Result<std::unique_ptr<Metadata>> HttpMetadata::connect(const std::string& uri, Nanos timeout) {
  const std::string rest = uri.substr(kScheme.size());
  const size_t slash = rest.find('/');
  std::string path = slash == std::string::npos ? "/metadata" : rest.substr(slash);
  if (path == "/") path = "/metadata";
  if (path.find_first_of("?# \t\r\n") != std::string::npos)
    return Status::error(Code::kInvalidArgument, "metadata server '{}': no blank, '?' or '#' is allowed in its path",
                         uri);
  const Result<control::HostPort> target = control::parse_address(rest.substr(0, slash));
  if (!target.ok()) return target.status().with_context("metadata server '" + uri + "'");
  if (control::is_wildcard(target->host))
    return Status::error(Code::kInvalidArgument,
                         "metadata server '{}': bad address '{}': a wildcard is not a server's address", uri,
                         target->host);
  if (target->has_port && target->port == 0)
    return Status::error(Code::kInvalidArgument, "metadata server '{}': bad address '{}': port 0", uri,
                         rest.substr(0, slash));
  const uint16_t port = target->has_port ? target->port : kDefaultPort;
  return std::unique_ptr<Metadata>(new HttpMetadata(uri, {target->host, port}, std::move(path), timeout));
}

Result<HttpReply> HttpMetadata::call(const char* method, const std::string& name, const std::string& body) {
  Result<HttpReply> reply =
      http_call(server_, method, path_ + "?key=" + encode("tidewire/" + name), body, monotonic_now() + timeout_);
  if (reply.ok()) return reply;
  const Status& failed = reply.status();
  const char* remedy = failed.code() == Code::kUnreachable ? ": is it running, and the URL right?" : "";
  return Status::error(failed.code(), "metadata server {}: {}{}", url_, failed.message(), remedy);
}

Status HttpMetadata::unexpected(const char* what, const std::string& name, const HttpReply& reply) const {
  return Status::error(reply.code >= 500 ? Code::kUnreachable : Code::kProtocol,
                       "metadata server {} refused to {} '{}': {} {}", url_, what, name, reply.code, shown(reply.body));
}

Status HttpMetadata::publish(const std::string& name, const std::string& address, const InstanceId& instance) {
  TW_RETURN_IF_ERROR(check_name(name));
  const nlohmann::json value = {{"address", address}, {"instance", to_string(instance)}};
  // A name that isn't UTF-8 must not throw.
  TW_ASSIGN_OR_RETURN(const HttpReply reply,
                      call("PUT", name, value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  if (reply.code == 409)
    return Status::error(
        Code::kBusy,
        "the name '{}' belongs to another engine at metadata server {}: choose another name or stop that one", name,
        url_);
  if (reply.code < 200 || reply.code > 299) return unexpected("take", name, reply);
  return Status();
}

Result<HttpMetadata::Entry> HttpMetadata::fetch(const std::string& name) {
  TW_RETURN_IF_ERROR(check_name(name));
  TW_ASSIGN_OR_RETURN(const HttpReply reply, call("GET", name, ""));
  if (reply.code == 404)
    return Status::error(
        Code::kNotFound,
        "metadata server {} knows no engine named '{}': is it running, and with the same metadata server?", url_, name);
  if (reply.code < 200 || reply.code > 299) return unexpected("tell", name, reply);
  const auto value = nlohmann::json::parse(reply.body, nullptr, false);
  if (!value.is_object() || !value.contains("address") || !value["address"].is_string() ||
      (value.contains("instance") && !value["instance"].is_string()))
    return Status::error(Code::kProtocol,
                         "metadata server {} holds something else than an engine's address under '{}': {}", url_, name,
                         shown(reply.body));
  return Entry{value["address"].get<std::string>(), value.value("instance", "")};
}

Status HttpMetadata::withdraw(const std::string& name, const InstanceId& instance) {
  Result<Entry> entry = fetch(name);
  if (entry.status().code() == Code::kNotFound) return Status();
  if (!entry.ok()) return entry.status();
  // A successor under the same name keeps its entry.
  if (entry->instance != to_string(instance)) return Status();
  TW_ASSIGN_OR_RETURN(const HttpReply reply, call("DELETE", name, ""));
  if (reply.code != 404 && (reply.code < 200 || reply.code > 299)) return unexpected("remove", name, reply);
  return Status();
}

Result<std::string> HttpMetadata::resolve(const std::string& name) {
  TW_ASSIGN_OR_RETURN(const Entry entry, fetch(name));
  const Result<control::HostPort> address = control::parse_address(entry.address);
  if (!address.ok() || address->port == 0)
    return Status::error(Code::kProtocol, "metadata server {} holds the bad address '{}' under '{}'", url_,
                         entry.address.substr(0, 300), name);
  return entry.address;
}

}  // namespace tidewire::metadata
