// SPDX-License-Identifier: Apache-2.0
//
// HttpExposition: the one small HTTP server of the project, for scrapers of metrics and for administrators. One request
// a connection, all connections on one thread that never waits for a client: at most 64 at once, a request has to be
// there within 2 s and its answer taken within 5 s, headers beyond 8 KiB and bodies beyond the limit are refused. No
// TLS, no keep-alive, no chunked bodies. Not a general web server, and not meant to become one.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/service_thread.h"
#include "base/unique_fd.h"

namespace tidewire {

struct HttpRequest {
  std::string method;                        // "GET" also for HEAD, whose answer goes out without its body
  std::string path;                          // without the query, as it was sent
  std::map<std::string, std::string> query;  // percent-decoded; of equal names the first one
  std::string body;
  std::string authorization;  // the header's value; empty = none
  // The other end is on this machine and speaks for itself: a loopback address, and neither a browser's page (Origin)
  // nor a proxy (Forwarded…).
  bool local = false;
};

struct HttpAnswer {
  int code = 200;
  std::string body;
  std::string type = "text/plain; charset=utf-8";
};

class HttpExposition {
 public:
  // Called on the server's thread; returns the body (text/plain).
  using Page = std::function<std::string()>;
  // Called on the server's thread; while it runs, the other connections wait. What it throws is answered with 500.
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;

  HttpExposition() = default;
  ~HttpExposition() { stop(); }

  // Listens on "host:port" or "[v6]:port" (port 0: the kernel chooses) and serves pages by path ("/metrics"), GET
  // alone. kAddressInUse when another process or engine has the port.
  Status start(const std::string& address, std::map<std::string, Page> pages);
  // The same with a handler for all requests. `max_body`: bytes of a request's body.
  Status start(const std::string& address, size_t max_body, Handler handler, const char* thread_name = "tw-http");
  void stop() { thread_.stop(); }
  // "host:port" as bound; empty before start.
  const std::string& address() const { return address_; }

 private:
  class Connection;
  void serve(int stop_fd);

  UniqueFd listener_;
  Handler handler_;
  size_t max_body_ = 0;
  std::string address_;
  ServiceThread thread_;
};

// "a%20b+c" → "a b c"; a bad escape stays as it is.
std::string percent_decoded(std::string_view text);
// In a time that does not depend on where they differ.
bool equal_in_constant_time(std::string_view left, std::string_view right);

class Metrics;

// Serves metrics.expose() at /metrics (and "ok" at /health) on `address`, as the setting `metrics` gives it; nothing
// when it is empty. Failure is logged once as a warning and otherwise ignored: no metrics is better than no engine. The
// chosen address is logged at INFO, at WARN when the port was 0, because nobody could find it otherwise.
void serve_metrics(const std::string& address, const Metrics& metrics, HttpExposition* server);

}  // namespace tidewire
