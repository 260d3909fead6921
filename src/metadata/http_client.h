// SPDX-License-Identifier: Apache-2.0
//
// One HTTP request over a connection of its own, blocking until the answer or the deadline.
// Not cpp-httplib: its timeouts start anew with each byte, its writes can raise SIGPIPE in the host program, and as the
// distributions package it, it brings libssl and brotli along.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace tidewire::metadata {

struct HttpReply {
  int code = 0;
  std::string body;
};

struct HttpServer {
  std::string host;  // name or literal, without brackets
  uint16_t port = 0;
};

// Tries each address of the server until one answers. kTimeout at the deadline, kUnreachable when none can be
// connected, kProtocol for what is no HTTP or larger than 64 KiB. `target` must be percent-encoded.
Result<HttpReply> http_call(const HttpServer& server, const std::string& method, const std::string& target,
                            const std::string& body, Nanos deadline);

}  // namespace tidewire::metadata
