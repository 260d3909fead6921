// SPDX-License-Identifier: Apache-2.0
#include "control/resolver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>

namespace tidewire::control {
namespace {

std::vector<Endpoint> one(const std::string& literal) {
  return {*literal_endpoint(literal, 0)};
}

std::string first(const Resolver::Addresses& addresses) {
  if (!addresses.ok()) return addresses.status().to_string();
  return addresses->empty() ? "none" : addresses->front().to_string();
}

// A lookup that answers only when told to.
struct Gate {
  std::mutex mutex;
  std::condition_variable condition;
  bool open = false;
  int entered = 0;
  void pass() {
    std::unique_lock lock(mutex);
    ++entered;
    condition.notify_all();
    condition.wait(lock, [&] { return open; });
  }
  void await_entered(int count) {
    std::unique_lock lock(mutex);
    condition.wait(lock, [&] { return entered >= count; });
  }
  void release() {
    std::lock_guard lock(mutex);
    open = true;
    condition.notify_all();
  }
};

TEST(Resolver, AnswersLiteralsWithoutAThread) {
  asio::io_context io;
  Resolver resolver(io, [](const std::string& host) -> Resolver::Addresses {
    ADD_FAILURE() << "looked up " << host;
    return Status(Code::kInternal, "");
  });
  std::string found;
  resolver.resolve("127.0.0.1", 80, [&](Resolver::Addresses addresses) { found = first(addresses); });
  io.run();
  EXPECT_EQ(found, "127.0.0.1:80");
}

TEST(Resolver, SharesLookupsOfOneNameAndKeepsPortsApart) {
  asio::io_context io;
  auto guard = asio::make_work_guard(io);
  auto gate = std::make_shared<Gate>();
  std::atomic<int> lookups{0};
  Resolver resolver(io, [gate, &lookups](const std::string&) -> Resolver::Addresses {
    ++lookups;
    gate->pass();
    return one("10.0.0.1");
  });
  std::vector<std::string> found;
  for (uint16_t port : {1, 2, 3})
    resolver.resolve("name", port, [&](Resolver::Addresses addresses) {
      found.push_back(first(addresses));
      if (found.size() == 3) guard.reset();
    });
  gate->release();
  io.run();
  EXPECT_EQ(found, (std::vector<std::string>{"10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"}));
  EXPECT_EQ(lookups, 1);
}

TEST(Resolver, ANameThatHangsDoesNotHoldUpOthersNorTheEnd) {
  auto gate = std::make_shared<Gate>();
  {
    asio::io_context io;
    auto guard = asio::make_work_guard(io);
    Resolver resolver(io, [gate](const std::string& host) -> Resolver::Addresses {
      if (host == "hangs") gate->pass();
      return one("10.0.0.1");
    });
    bool answered = false;
    resolver.resolve("hangs", 1, [](Resolver::Addresses) { ADD_FAILURE() << "answered after close"; });
    gate->await_entered(1);
    resolver.resolve("answers", 1, [&](Resolver::Addresses addresses) {
      answered = addresses.ok();
      guard.reset();
    });
    io.run();
    EXPECT_TRUE(answered);
    resolver.close();
    resolver.resolve("late", 1, [](Resolver::Addresses) { ADD_FAILURE() << "answered after close"; });
  }
  gate->release();  // the thread left behind ends without touching what is gone
}

TEST(Lookup, IsBoundedAndKnowsLocalhost) {
  const auto found = look_up_within("localhost", 20 * kSecond);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  for (const Endpoint& endpoint : *found) EXPECT_TRUE(endpoint.loopback());
  EXPECT_EQ(found->size(), 2u) << "both families, whatever the hosts file says";
  EXPECT_EQ(look_up_within("no-such-name.invalid", 0).status().code(), Code::kTimeout);
}

}  // namespace
}  // namespace tidewire::control
