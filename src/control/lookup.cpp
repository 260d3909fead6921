// SPDX-License-Identifier: Apache-2.0
#include "control/lookup.h"

#include <netdb.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <system_error>
#include <thread>

#include "base/thread.h"
#include "control/address.h"

namespace tidewire::control {
namespace {

void add_new(std::vector<Endpoint>& endpoints, const Endpoint& endpoint) {
  if (std::find(endpoints.begin(), endpoints.end(), endpoint) == endpoints.end()) endpoints.push_back(endpoint);
}

}  // namespace

Result<std::vector<Endpoint>> look_up(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;  // one entry an address; no AI_ADDRCONFIG: it would hide ::1 where only lo has v6
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (error != 0)
    return Status::error(Code::kUnreachable, "the name '{}' does not resolve: {}", host,
                         error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error));
  std::vector<Endpoint> endpoints;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    Endpoint endpoint;
    std::memcpy(&endpoint.storage, entry->ai_addr, entry->ai_addrlen);
    endpoint.size = entry->ai_addrlen;
    add_new(endpoints, endpoint);
  }
  freeaddrinfo(list);
  // Many hosts files give the name one family only; it means both (RFC 6761), and only the other one may be up.
  if (host == "localhost")
    for (const char* literal : {"127.0.0.1", "::1"}) {
      const Result<Endpoint> loopback = literal_endpoint(literal, 0);
      if (loopback.ok()) add_new(endpoints, *loopback);
    }
  if (endpoints.empty()) return Status::error(Code::kUnreachable, "the name '{}' has no IPv4 or IPv6 address", host);
  return endpoints;
}

Result<std::vector<Endpoint>> look_up_within(const std::string& host, Nanos timeout) {
  if (is_literal(host)) {
    TW_ASSIGN_OR_RETURN(Endpoint endpoint, literal_endpoint(host, 0));
    return std::vector<Endpoint>{endpoint};
  }
  auto promise = std::make_shared<std::promise<Result<std::vector<Endpoint>>>>();
  auto future = promise->get_future();
  try {
    start_thread("tw-resolve", [promise, host] { promise->set_value(look_up(host)); }).detach();
  } catch (const std::system_error& error) {
    return Status::error(Code::kNoResources, "resolve '{}': can't start a thread: {}", host, error.what());
  }
  if (future.wait_for(std::chrono::nanoseconds(timeout)) != std::future_status::ready)
    return Status::error(Code::kTimeout, "the name '{}' was not resolved within {} ms: check the name servers", host,
                         timeout / kMillisecond);
  return future.get();
}

}  // namespace tidewire::control
