// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <httplib.h>

#include <map>
#include <mutex>
#include <thread>

#include "control/endpoint.h"
#include "metadata/metadata.h"

namespace tidewire::metadata {
namespace {

constexpr Nanos kTimeout = 20 * kSecond;

InstanceId id(uint8_t value) {
  InstanceId out{};
  out.fill(value);
  return out;
}

// Keeps values by key, as the metadata servers in use do.
class Server {
 public:
  explicit Server(const std::string& host = "127.0.0.1") {
    server_.Get("/metadata", [this](const httplib::Request& request, httplib::Response& response) {
      std::lock_guard lock(mutex_);
      if (forced_status != 0) return fail(response);
      const auto found = values.find(request.get_param_value("key"));
      if (found == values.end()) {
        response.status = 404;
        response.set_content("metadata not found", "text/plain");
      } else {
        response.set_content(found->second, "application/json");
      }
    });
    server_.Put("/metadata", [this](const httplib::Request& request, httplib::Response& response) {
      std::lock_guard lock(mutex_);
      if (forced_status != 0) return fail(response);
      values[request.get_param_value("key")] = request.body;
      response.set_content("metadata updated", "text/plain");
    });
    server_.Delete("/metadata", [this](const httplib::Request& request, httplib::Response& response) {
      std::lock_guard lock(mutex_);
      if (forced_status != 0) return fail(response);
      response.status = values.erase(request.get_param_value("key")) > 0 ? 200 : 404;
    });
    port = server_.bind_to_any_port(host.c_str());
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  ~Server() { stop(); }
  void stop() {
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }
  std::string url(const std::string& host = "127.0.0.1") const {
    return "http://" + host + ":" + std::to_string(port) + "/metadata";
  }

  int port = 0;
  int forced_status = 0;
  std::map<std::string, std::string> values;

 private:
  void fail(httplib::Response& response) {
    response.status = forced_status;
    response.set_content("out of order", "text/plain");
  }
  std::mutex mutex_;
  httplib::Server server_;
  std::thread thread_;
};

std::unique_ptr<Metadata> connect(const std::string& uri, Nanos timeout = kTimeout) {
  auto metadata = Metadata::connect(uri, timeout);
  EXPECT_TRUE(metadata.ok()) << metadata.status().to_string();
  return metadata.ok() ? std::move(*metadata) : nullptr;
}

TEST(Metadata, UnknownSchemesAreRefusedWithThoseThatExist) {
  for (const char* uri : {"etcd://127.0.0.1:2379", "redis://x", "127.0.0.1:2379", "https://x", "p2phandshake"}) {
    const auto metadata = Metadata::connect(uri, kTimeout);
    ASSERT_FALSE(metadata.ok()) << uri;
    EXPECT_EQ(metadata.status().code(), Code::kInvalidArgument);
    for (const char* part : {uri, "P2PHANDSHAKE", "http://"})
      EXPECT_NE(metadata.status().message().find(part), std::string::npos) << metadata.status().message();
  }
}

TEST(Metadata, ServerAddressesFollowTheAddressSyntax) {
  for (const char* address : {"127.0.0.1", "127.0.0.1:8080", "localhost", "::1", "[::1]", "[::1]:8080", "fe80::1%lo",
                              "[fe80::1%lo]:8080", "some.name.example:8080"})
    EXPECT_TRUE(Metadata::connect(std::string("http://") + address + "/metadata", kTimeout).ok()) << address;
  for (const char* address : {"", "host:", ":8080", "host:99999", "1:2:3", "0.0.0.0", "::", "[::]:8080", "host:0"}) {
    const auto metadata = Metadata::connect(std::string("http://") + address + "/metadata", kTimeout);
    EXPECT_EQ(metadata.status().code(), Code::kInvalidArgument) << address;
    EXPECT_NE(metadata.status().message().find("bad address '"), std::string::npos) << metadata.status().message();
  }
  EXPECT_FALSE(Metadata::connect("http://host/path?x=y", kTimeout).ok());
  EXPECT_FALSE(Metadata::connect("http://host/a\r\nInjected: header", kTimeout).ok());
}

TEST(PeerToPeer, TheNameIsTheAddress) {
  for (const char* uri : {"", "P2PHANDSHAKE"}) {
    auto metadata = connect(uri);
    EXPECT_EQ(metadata->name(), "p2p");
    EXPECT_TRUE(metadata->publish("x", "127.0.0.1:1", id(1)).ok());
    EXPECT_EQ(*metadata->resolve("10.0.0.1:4000"), "10.0.0.1:4000");
    EXPECT_EQ(*metadata->resolve("[fe80::1%eth0]:4000"), "[fe80::1%eth0]:4000");
    EXPECT_TRUE(metadata->withdraw("x", id(1)).ok());
    for (const char* name : {"", "host", "host:", ":1", "1:2:3", "0.0.0.0:1", "host:0"})
      EXPECT_EQ(metadata->resolve(name).status().code(), Code::kInvalidArgument) << name;
  }
}

TEST(HttpMetadata, PublishedNamesResolveUntilWithdrawn) {
  Server server;
  auto a = connect(server.url()), b = connect(server.url());
  EXPECT_EQ(a->name(), "http");
  EXPECT_EQ(b->resolve("prefill/0 & co").status().code(), Code::kNotFound);
  ASSERT_TRUE(a->publish("prefill/0 & co", "10.0.0.1:4000", id(1)).ok());
  EXPECT_EQ(server.values.count("tidewire/prefill/0 & co"), 1u) << "key as it was meant";
  EXPECT_EQ(*b->resolve("prefill/0 & co"), "10.0.0.1:4000");
  ASSERT_TRUE(a->publish("prefill/0 & co", "[::1]:5000", id(2)).ok()) << "a restarted engine takes its name again";
  EXPECT_EQ(*b->resolve("prefill/0 & co"), "[::1]:5000");
  EXPECT_TRUE(a->withdraw("prefill/0 & co", id(1)).ok());
  EXPECT_EQ(*b->resolve("prefill/0 & co"), "[::1]:5000") << "the predecessor may not withdraw its successor";
  EXPECT_TRUE(a->withdraw("prefill/0 & co", id(2)).ok());
  EXPECT_EQ(b->resolve("prefill/0 & co").status().code(), Code::kNotFound);
  EXPECT_TRUE(a->withdraw("prefill/0 & co", id(2)).ok()) << "nothing to do";
}

TEST(HttpMetadata, ErrorsNameTheNameTheUrlAndTheRemedy) {
  Server server;
  auto metadata = connect(server.url());
  Status status = metadata->resolve("decode7").status();
  for (const std::string& part : {std::string("decode7"), server.url(), std::string("is it running")})
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();

  server.values["tidewire/odd"] = "no json";
  EXPECT_EQ(metadata->resolve("odd").status().code(), Code::kProtocol);
  server.values["tidewire/odd"] = R"({"address": 5})";
  EXPECT_EQ(metadata->resolve("odd").status().code(), Code::kProtocol);
  server.values["tidewire/odd"] = R"({"address": "1:2:3", "instance": "00"})";
  EXPECT_EQ(metadata->resolve("odd").status().code(), Code::kProtocol);
  server.values["tidewire/odd"] = R"({"address": "10.0.0.1:1", "instance": [])"
                                  "}";
  EXPECT_EQ(metadata->resolve("odd").status().code(), Code::kProtocol);

  EXPECT_EQ(metadata->resolve("").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(metadata->publish(std::string(1000, 'x'), "a:1", id(1)).code(), Code::kInvalidArgument);

  server.forced_status = 503;
  status = metadata->resolve("decode7").status();
  EXPECT_EQ(status.code(), Code::kUnreachable);
  EXPECT_NE(status.message().find("503 out of order"), std::string::npos) << status.message();
  server.forced_status = 409;
  status = metadata->publish("decode7", "10.0.0.1:1", id(1));
  EXPECT_EQ(status.code(), Code::kBusy);

  server.stop();
  status = metadata->resolve("decode7").status();
  EXPECT_EQ(status.code(), Code::kUnreachable);
  EXPECT_NE(status.message().find(server.url()), std::string::npos) << status.message();
}

TEST(HttpMetadata, ServersThatKeepSilentOrTrickleAreLeftAtTheDeadline) {
  control::Endpoint at = *control::literal_endpoint("127.0.0.1", 0);
  auto listener = control::open_listener(at, false);
  ASSERT_TRUE(listener.ok());
  const std::string url = "http://127.0.0.1:" + std::to_string(control::local_endpoint(listener->get()).port());
  EXPECT_EQ(connect(url, 100 * kMillisecond)->resolve("x").status().code(), Code::kTimeout);

  std::atomic<bool> stop{false};
  std::thread trickle([&] {
    std::vector<UniqueFd> taken;
    while (!stop) {
      UniqueFd fd(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (fd.valid()) taken.push_back(std::move(fd));
      for (const UniqueFd& one : taken) (void)send(one.get(), "H", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  // Bytes without end and without sense, or one at a time: neither keeps the caller.
  const Code code = connect(url, 300 * kMillisecond)->resolve("x").status().code();
  EXPECT_TRUE(code == Code::kTimeout || code == Code::kProtocol) << code_name(code);
  stop = true;
  trickle.join();
}

TEST(HttpMetadata, ReachesServersByEveryFormOfAddress) {
  Server server;
  ASSERT_TRUE(connect(server.url())->publish("x", "10.0.0.1:1", id(1)).ok());
  EXPECT_TRUE(connect(server.url("localhost"))->resolve("x").ok());
  UniqueFd probe(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const control::Endpoint v6 = *control::literal_endpoint("::1", 0);
  if (!probe.valid() || bind(probe.get(), v6.address(), v6.size) != 0) return;  // a machine without IPv6
  Server other("::1");
  auto metadata = connect(other.url("[::1]"));
  ASSERT_TRUE(metadata->publish("x", "10.0.0.1:1", id(1)).ok());
  EXPECT_EQ(*metadata->resolve("x"), "10.0.0.1:1");
}

}  // namespace
}  // namespace tidewire::metadata
