// SPDX-License-Identifier: Apache-2.0
//
// Metadata: how a peer's name becomes the "host:port" of its control port. "P2PHANDSHAKE": the name is the address.
// "http://host:port[/path]": an HTTP service keeps name → {address, instance id} (never keys of regions).
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "transport/peer_record.h"

namespace tidewire::metadata {

class Metadata {
 public:
  // kInvalidArgument names an unknown scheme and those that exist.
  static Result<std::unique_ptr<Metadata>> connect(const std::string& uri, Nanos timeout);
  virtual ~Metadata() = default;
  virtual std::string_view name() const = 0;
  // Blocking (bounded by the timeout), any thread.
  virtual Status publish(const std::string& name, const std::string& address, const InstanceId& instance) = 0;
  virtual Status withdraw(const std::string& name, const InstanceId& instance) = 0;
  virtual Result<std::string> resolve(const std::string& name) = 0;
};

}  // namespace tidewire::metadata
