// SPDX-License-Identifier: Apache-2.0
//
// HttpExposition: answers GET of a few fixed paths, for scrapers of metrics. It reads nothing but the request line,
// changes nothing, and serves one connection at a time on one thread of its own: a slow or hostile client delays other
// scrapers by at most 2 s and transfers not at all. Requests beyond 8 KiB are refused. Not a general web server, and
// not meant to become one.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/service_thread.h"
#include "base/unique_fd.h"

namespace tidewire {

class HttpExposition {
 public:
  // Called on the server's thread; returns the body (text/plain).
  using Page = std::function<std::string()>;

  HttpExposition() = default;
  ~HttpExposition() { stop(); }

  // Listens on "host:port" or "[v6]:port" (port 0: the kernel chooses) and serves pages by path ("/metrics").
  // kAddressInUse when another process or engine has the port.
  Status start(const std::string& address, std::map<std::string, Page> pages);
  void stop() { thread_.stop(); }
  // "host:port" as bound; empty before start.
  const std::string& address() const { return address_; }

 private:
  void serve(int stop_fd);
  void answer(int connection, int stop_fd);

  UniqueFd listener_;
  std::map<std::string, Page> pages_;
  std::string address_;
  ServiceThread thread_;
};

class Metrics;

// Serves metrics.expose() at /metrics (and "ok" at /health) on `address`, as the setting `metrics` gives it; nothing
// when it is empty. Failure is logged once as a warning and otherwise ignored: no metrics is better than no engine. The
// chosen address is logged at INFO, at WARN when the port was 0, because nobody could find it otherwise.
void serve_metrics(const std::string& address, const Metrics& metrics, HttpExposition* server);

}  // namespace tidewire
