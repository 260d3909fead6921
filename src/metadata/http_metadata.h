// SPDX-License-Identifier: Apache-2.0
//
// HttpMetadata: names in an HTTP service that keeps values by key (GET, PUT, DELETE <url>?key=...), as mooncake's
// metadata server and the one of `mooncake_http_metadata_server` do. Our keys are "tidewire/<name>", the value is
// {"address": "host:port", "instance": "<hex>"}.
#pragma once

#include <string>

#include "metadata/http_client.h"
#include "metadata/metadata.h"

namespace tidewire::metadata {

class HttpMetadata final : public Metadata {
 public:
  // "http://host[:port][/path]"; the path is /metadata when there is none.
  static Result<std::unique_ptr<Metadata>> connect(const std::string& uri, Nanos timeout);

  std::string_view name() const override { return "http"; }
  Status publish(const std::string& name, const std::string& address, const InstanceId& instance) override;
  Status withdraw(const std::string& name, const InstanceId& instance) override;
  Result<std::string> resolve(const std::string& name) override;

 private:
  struct Entry {
    std::string address;
    std::string instance;
  };
  HttpMetadata(std::string url, HttpServer server, std::string path, Nanos timeout);

  Result<Entry> fetch(const std::string& name);
  Result<HttpReply> call(const char* method, const std::string& name, const std::string& body);
  Status unexpected(const char* what, const std::string& name, const HttpReply& reply) const;

  const std::string url_;  // for messages
  const HttpServer server_;
  const std::string path_;
  const Nanos timeout_;
};

}  // namespace tidewire::metadata
