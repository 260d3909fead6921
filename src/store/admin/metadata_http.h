// SPDX-License-Identifier: Apache-2.0
//
// MetadataHttp: a directory of engines over HTTP: GET, PUT and DELETE /metadata?key=…, and GET /health. Values are kept
// in memory, as they came, and whoever reaches the port may read and write them: the clients of this interface send no
// secret.
#pragma once

#include <map>
#include <string>

#include "base/http_exposition.h"

namespace tidewire::store {

class MetadataHttp {
 public:
  static constexpr size_t kMaxValue = 4u << 20;    // bytes
  static constexpr size_t kMaxTotal = 256u << 20;  // bytes, keys and values together

  Status start(const std::string& address) {
    return http_.start(
        address, kMaxValue, [this](const HttpRequest& request) { return answer(request); }, "tw-metadata");
  }
  void stop() { http_.stop(); }
  const std::string& address() const { return http_.address(); }

  // What start() serves; one call at a time.
  HttpAnswer answer(const HttpRequest& request);

 private:
  HttpAnswer put(const std::string& key, const std::string& value);

  std::map<std::string, std::string> values_;
  size_t total_ = 0;
  HttpExposition http_;
};

}  // namespace tidewire::store
