// SPDX-License-Identifier: Apache-2.0
#include "store/master/master_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "unit/store_master/owner.h"

namespace tidewire::store {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MasterHost, AnObjectThatWasPutIsFound) {
  const auto host = start_host();
  Owner owner(host->address());
  ASSERT_TRUE(owner.join());
  ASSERT_EQ(owner.put("key", 1000), Code::kOk);
  const auto found = owner.ask<GetAnswer>(Get{{"key", "other"}});
  ASSERT_EQ(found.gets.size(), 2u);
  EXPECT_EQ(found.gets[0].code, Code::kOk);
  EXPECT_EQ(found.gets[0].size, 1000u);
  EXPECT_EQ(found.gets[1].code, Code::kNotFound);
  EXPECT_THAT(*host->keys(10), ElementsAre("key"));
  const auto status = nlohmann::json::parse(*host->status_json());
  EXPECT_EQ(status["objects"], 1);
  EXPECT_EQ(status["clients"].size(), 1u);
  EXPECT_EQ(status["clients"][0]["name"], "10.0.0.1:5000");
  EXPECT_EQ(status["segments"][0]["size"], Owner::kBytes);
  EXPECT_EQ(status["counters"]["gets"], 2);
}

TEST(MasterHost, AnOwnRequestIsServedAndItsClientIsShownToNobody) {
  const auto host = start_host();
  Owner owner(host->address());
  ASSERT_TRUE(owner.join());
  ASSERT_EQ(owner.put("key", 1000), Code::kOk);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&host] {
      for (int turn = 0; turn < 50; ++turn) {
        const auto answer = host->ask(Get{{"key"}});
        ASSERT_TRUE(answer.ok()) << answer.status().to_string();
        EXPECT_EQ(std::get<GetAnswer>(*answer).gets[0].code, Code::kOk);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(host->snapshot()->clients.size(), 1u);
  const auto removed = host->ask(RemoveMatching{"", true});
  ASSERT_TRUE(removed.ok());
  EXPECT_EQ(std::get<CountAnswer>(*removed).count, 1u);
  EXPECT_EQ(host->snapshot()->objects, 0u);
}

TEST(MasterHost, TimePassesForTheMasterWithoutMessages) {
  auto options = quick_options();
  options.master.client_ttl = 100 * kMillisecond;
  const auto host = start_host(options);
  Owner owner(host->address());
  ASSERT_TRUE(owner.join());
  owner.client.link->stop();
  const Nanos until = in(kLong);
  while (!host->snapshot()->clients.empty() && monotonic_now() < until) std::this_thread::yield();
  EXPECT_TRUE(host->snapshot()->clients.empty());
}

TEST(MasterHost, ATakenPortIsNamed) {
  const auto host = start_host();
  auto options = quick_options();
  options.port = static_cast<uint16_t>(std::stoi(host->address().substr(host->address().rfind(':') + 1)));
  const auto second = MasterHost::start(options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kAddressInUse);
  EXPECT_THAT(second.status().message(), HasSubstr(std::to_string(options.port)));
}

TEST(MasterHost, TheTermGrowsFromOneMasterOfAJournalToTheNext) {
  char folder[] = "/tmp/tidewire-master-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  auto options = quick_options();
  options.journal = folder;
  for (uint64_t term = 1; term <= 3; ++term) {
    const auto host = start_host(options);
    EXPECT_EQ(host->snapshot()->term, term);
    EXPECT_EQ(MasterHost::start(options).status().code(), StatusCode::kAddressInUse);
  }
  std::filesystem::remove_all(folder);
}

TEST(MasterHost, AfterStopQuestionsAreRefusedAtOnce) {
  const auto host = start_host();
  host->stop();
  EXPECT_EQ(host->snapshot().status().code(), StatusCode::kClosed);
  EXPECT_EQ(host->ask(Get{{"key"}}).status().code(), StatusCode::kClosed);
  host->stop();
}

}  // namespace
}  // namespace tidewire::store
