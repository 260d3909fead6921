// SPDX-License-Identifier: Apache-2.0
//
// Resolver: names to addresses without blocking the caller. Lookups run on a few detached threads ("tw-resolve") that
// exist only while there is something to look up, because getaddrinfo() can't be interrupted: closing the resolver
// never waits for one, its late result is dropped. Lookups of one name are shared. Literals need no thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "control/asio.h"
#include "control/endpoint.h"
#include "control/lookup.h"

namespace tidewire::control {

class Resolver {
 public:
  using Addresses = Result<std::vector<Endpoint>>;
  using Lookup = std::function<Addresses(const std::string& host)>;

  // `lookup` is replaced in tests; it runs on the detached threads.
  explicit Resolver(asio::io_context& io, Lookup lookup = look_up);
  ~Resolver();
  Resolver(const Resolver&) = delete;

  // Calls done on the loop, unless close() came first; in the order that the system prefers (RFC 6724), each with
  // `port`.
  void resolve(const std::string& host, uint16_t port, std::function<void(Addresses)> done);
  // No callback runs after this.
  void close();

 private:
  struct Shared;
  static void work(std::shared_ptr<Shared> shared);

  std::shared_ptr<Shared> shared_;
};

}  // namespace tidewire::control
