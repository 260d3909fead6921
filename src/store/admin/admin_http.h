// SPDX-License-Identifier: Apache-2.0
//
// AdminHttp: the master's pages over HTTP.
//
// Who may see them: /metrics, /metrics/summary and /health everybody when `open`; everything else, and everything when
// not, whoever asks from this machine itself (HttpRequest::local) or has the cluster secret ("Authorization: Bearer
// <secret>"). Without a secret nobody has it.
#pragma once

#include <string>

#include "base/http_exposition.h"
#include "base/metrics.h"
#include "store/master/master_host.h"

namespace tidewire::store {

class AdminHttp {
 public:
  // `host` outlives it.
  AdminHttp(MasterHost& host, std::string secret, bool open) : host_(host), secret_(std::move(secret)), open_(open) {}

  // Serves on "host:port" (port 0: the kernel chooses) on a thread of its own, until stop().
  Status start(const std::string& address) {
    return http_.start(
        address, kMaxBody, [this](const HttpRequest& request) { return answer(request); }, "tw-admin");
  }
  void stop() { http_.stop(); }
  const std::string& address() const { return http_.address(); }

  // What start() serves; one call at a time.
  HttpAnswer answer(const HttpRequest& request);

 private:
  static constexpr size_t kMaxBody = 64 << 10;

  bool allowed(const HttpRequest& request) const;
  HttpAnswer get(const HttpRequest& request);
  HttpAnswer remove_all(const HttpRequest& request);

  MasterHost& host_;
  const std::string secret_;
  const bool open_;
  Metrics metrics_;
  HttpExposition http_;
};

}  // namespace tidewire::store
