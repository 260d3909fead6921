// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the link share: a master that records and answers as it is told, a client that records, answers
// that can be waited for.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "store/rpc/link.h"
#include "unit/control/support.h"

namespace tidewire::store::testing {

using control::testing::Awaited;
using control::testing::in;
using control::testing::kHardStop;
using control::testing::kLong;
using StatusCode = tidewire::Code;

// State that callbacks change and tests wait for.
class Watched {
 public:
  template <typename Predicate>
  bool wait(Predicate predicate) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kHardStop, predicate);
  }
  template <typename Read>
  auto locked(Read read) {
    std::lock_guard lock(mutex_);
    return read();
  }

 protected:
  template <typename Change>
  void change(Change change) {
    std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

struct TestMaster : MasterServer::Handler, Watched {
  struct Arrived {
    ConnectionId connection;
    Message message;
  };
  // What is done with a message besides recording it; on the loop thread.
  using OnMessage = std::function<void(TestMaster& master, ConnectionId connection, const Message& message)>;

  explicit TestMaster(OnMessage on_message = nullptr, std::string secret = "", uint16_t port = 0)
      : on_message_(std::move(on_message)) {
    MasterServer::Options options;
    options.host = "127.0.0.1";
    options.port = port;
    options.secret = std::move(secret);
    options.instance = make_instance_id();
    auto listening = MasterServer::listen(options, *this);
    if (!listening.ok()) {
      ADD_FAILURE() << listening.status().to_string();
      std::abort();
    }
    server = std::move(*listening);
    EXPECT_TRUE(server->start().ok());
  }
  ~TestMaster() override { server->stop(); }

  void on_message(ConnectionId connection, Message message) override {
    change([&] { arrived.push_back({connection, message}); });
    if (on_message_) on_message_(*this, connection, message);
  }
  void on_closed(ConnectionId connection, const Status& why) override {
    change([&] { closed.emplace(connection, why); });
  }
  std::string address() const { return server->advertised(); }

  std::unique_ptr<MasterServer> server;
  std::vector<Arrived> arrived;
  std::map<ConnectionId, Status> closed;

 private:
  OnMessage on_message_;
};

// Answers each Exists with one code for each key, everything else with CodeAnswer.
inline void answer_at_once(TestMaster& master, ConnectionId connection, const Message& message) {
  if (message.answer) return;
  Message answer{message.request, true, CodeAnswer{}};
  if (const auto* exists = std::get_if<Exists>(&message.body))
    answer.body = CodesAnswer{std::vector<Code>(exists->keys.size())};
  master.server->send(connection, answer);
}
inline void answer_never(TestMaster&, ConnectionId, const Message&) {}

struct TestClient : MasterLink::Events, Watched {
  explicit TestClient(const std::string& master, const std::string& secret = "", Nanos connect_timeout = 10 * kSecond) {
    options.master = master;
    options.secret = secret;
    options.name = "client:1";
    options.instance = make_instance_id();
    options.connect_timeout = connect_timeout;
  }
  ~TestClient() override {
    if (link) link->stop();
  }
  TestClient& start() {
    auto made = MasterLink::create(options, *this);
    if (!made.ok()) {
      ADD_FAILURE() << made.status().to_string();
      std::abort();
    }
    link = std::move(*made);
    EXPECT_TRUE(link->start().ok());
    return *this;
  }

  void on_up() override {
    if (at_up) at_up();
    change([&] { ++ups; });
  }
  void on_down(const Status& why) override {
    change([&] { downs.push_back(why); });
  }
  void on_request(uint64_t request, Body body) override {
    if (at_request) at_request(request, body);
    change([&] { requests.emplace_back(request, std::move(body)); });
  }

  bool wait_up(int times = 1) {
    return wait([&] { return ups >= times; });
  }
  Awaited<Result<Body>> call(Body request, Nanos timeout = kLong) {
    Awaited<Result<Body>> answer;
    link->call(std::move(request), timeout == kNever ? kNever : in(timeout), answer.callback());
    return answer;
  }

  MasterLink::Options options;
  std::unique_ptr<MasterLink> link;
  std::function<void()> at_up;
  std::function<void(uint64_t request, const Body& body)> at_request;
  int ups = 0;
  std::vector<Status> downs;
  std::vector<std::pair<uint64_t, Body>> requests;
};

}  // namespace tidewire::store::testing
