// SPDX-License-Identifier: Apache-2.0
#include "store/admin/admin_http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "cli/http_get.h"
#include "cli/master_text.h"
#include "unit/store_master/owner.h"

namespace tidewire::store {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSecret = "a secret of more than 16 bytes";

HttpRequest request_of(const std::string& path, std::map<std::string, std::string> query = {}, bool local = true) {
  HttpRequest request;
  request.method = "GET";
  request.path = path;
  request.query = std::move(query);
  request.local = local;
  return request;
}

class AdminPages : public ::testing::Test {
 protected:
  HttpAnswer get(const std::string& path, std::map<std::string, std::string> query = {}) {
    return pages_.answer(request_of(path, std::move(query)));
  }
  nlohmann::json json(const std::string& path, std::map<std::string, std::string> query = {}) {
    const HttpAnswer answer = get(path, std::move(query));
    EXPECT_EQ(answer.type, "application/json");
    return nlohmann::json::parse(answer.body);
  }
  HttpAnswer remove_all(std::map<std::string, std::string> query = {}) {
    HttpRequest request = request_of("/api/v1/remove_all", std::move(query));
    request.method = "POST";
    return pages_.answer(request);
  }

  std::unique_ptr<MasterHost> host_ = start_host();
  AdminHttp pages_{*host_, "", true};
};

TEST_F(AdminPages, HealthSaysWhoServesAndSinceWhenItIsReady) {
  const Nanos until = in(kLong);
  while (json("/health")["service_ready"] != true && monotonic_now() < until) std::this_thread::yield();
  const auto health = json("/health");
  EXPECT_EQ(health["status"], "ok");
  EXPECT_EQ(health["role"], "leader");
  EXPECT_EQ(health["ha_state"], "serving");
  EXPECT_EQ(health["service_ready"], true);
  EXPECT_EQ(health["leader_address"], host_->address());
  EXPECT_EQ(get("/role").body, "leader\n");
  EXPECT_EQ(get("/leader").body, host_->address() + "\n");
  EXPECT_EQ(json("/ha_status")["ha_state"], "serving");
}

TEST_F(AdminPages, ObjectsAndSegmentsAreShown) {
  Owner owner(host_->address());
  ASSERT_TRUE(owner.join());
  ASSERT_EQ(owner.put("one", 1000), Code::kOk);
  ASSERT_EQ(owner.put("two", 3000), Code::kOk);

  EXPECT_EQ(json("/query_key", {{"key", "one"}})["size"], 1000);
  EXPECT_EQ(json("/query_key", {{"key", "one"}})["replicas"][0]["endpoint"], "10.0.0.1:5000");
  EXPECT_EQ(get("/query_key", {{"key", "none"}}).code, 404);
  EXPECT_EQ(json("/query_key", {{"key", "none"}})["error"], "OBJECT_NOT_FOUND");
  EXPECT_EQ(get("/query_key").code, 400);
  const auto both = json("/batch_query_keys", {{"keys", "two,none"}});
  EXPECT_EQ(both[0]["size"], 3000);
  EXPECT_EQ(both[1]["error"], "OBJECT_NOT_FOUND");
  EXPECT_EQ(get("/batch_query_keys").code, 400);

  EXPECT_THAT(get("/get_all_keys").body, HasSubstr("one\n"));
  EXPECT_THAT(get("/get_all_keys").body, HasSubstr("two\n"));
  EXPECT_EQ(get("/get_all_segments").body, "10.0.0.1:5000\n");
  EXPECT_EQ(json("/get_segments_detail")[0]["size"], Owner::kBytes);
  EXPECT_THAT(get("/query_segment", {{"segment", "10.0.0.1:5000"}}).body,
              ::testing::MatchesRegex("Used\\(bytes\\): [0-9]+\nCapacity\\(bytes\\) : 1048576\n"));
  EXPECT_EQ(get("/query_segment", {{"segment", "nobody"}}).code, 404);

  const std::string metrics = get("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("tidewire_store_objects 2\n"));
  EXPECT_THAT(metrics, HasSubstr("tidewire_store_capacity_bytes 1048576\n"));
  EXPECT_THAT(metrics, HasSubstr("tidewire_store_puts_committed_total 2\n"));
  EXPECT_THAT(metrics, HasSubstr("tidewire_store_clients{state=\"live\"} 1\n"));
  EXPECT_EQ(metrics, get("/metrics").body);
  EXPECT_THAT(get("/metrics/summary").body, HasSubstr("objects: 2\n"));
}

TEST_F(AdminPages, RemoveAllRemovesWhatNobodyReadsAndWithForceTheRest) {
  Owner owner(host_->address());
  ASSERT_TRUE(owner.join());
  ASSERT_EQ(owner.put("idle", 1000), Code::kOk);
  ASSERT_EQ(owner.put("read", 1000), Code::kOk);
  ASSERT_EQ(owner.ask<GetAnswer>(Get{{"read"}}).gets[0].code, Code::kOk);
  EXPECT_EQ(get("/api/v1/remove_all").code, 405);
  EXPECT_EQ(nlohmann::json::parse(remove_all().body)["removed"], 1);
  EXPECT_EQ(get("/get_all_keys").body, "read\n");
  EXPECT_EQ(nlohmann::json::parse(remove_all({{"force", "true"}}).body)["removed"], 1);
  EXPECT_EQ(get("/get_all_keys").body, "");
}

TEST_F(AdminPages, AQueriedKeyHasALease) {
  Owner owner(host_->address());
  ASSERT_TRUE(owner.join());
  ASSERT_EQ(owner.put("key", 1000), Code::kOk);
  ASSERT_EQ(get("/batch_query_keys", {{"keys", "key"}}).code, 200);
  ASSERT_EQ(get("/query_key", {{"key", "key"}}).code, 200);
  EXPECT_EQ(nlohmann::json::parse(remove_all().body)["removed"], 0);
}

TEST_F(AdminPages, WhatThisMasterDoesNotHaveIsAnsweredByName) {
  const std::pair<const char*, const char*> pages[] = {{"/api/v1/drain_jobs", "drain"},
                                                       {"/api/v1/drain_jobs/query", "drain"},
                                                       {"/api/v1/segments/status", "segments"},
                                                       {"/api/v1/tenant_quotas", "tenants"},
                                                       {"/api/v1/tasks", "tasks"},
                                                       {"/kv_events/status", "KV events"}};
  for (const auto& [path, name] : pages) {
    EXPECT_EQ(get(path).code, 501) << path;
    EXPECT_THAT(get(path).body, HasSubstr(name));
  }
  EXPECT_EQ(get("/nothing").code, 404);
  HttpRequest put = request_of("/metrics");
  put.method = "PUT";
  EXPECT_EQ(pages_.answer(put).code, 405);
}

TEST_F(AdminPages, StatusAsTablesNamesClientsAndSegments) {
  Owner owner(host_->address());
  ASSERT_TRUE(owner.join());
  ASSERT_EQ(owner.put("key", 1000), Code::kOk);
  const std::string before = get("/status").body;
  ASSERT_EQ(owner.ask<GetAnswer>(Get{{"key", "none"}}).gets.size(), 2u);
  const auto tables = cli::master_text(get("/status").body, before, 0.5);
  ASSERT_TRUE(tables.ok());
  EXPECT_THAT(*tables, HasSubstr("objects 1 "));
  EXPECT_THAT(*tables, HasSubstr("hit rate 50.0 %  per second: gets 4 "));
  EXPECT_THAT(*tables, HasSubstr("10.0.0.1:5000  live"));
  EXPECT_THAT(*tables, HasSubstr("1.0 MiB"));
  EXPECT_FALSE(cli::master_text("[1]", "", 0).ok());
  EXPECT_TRUE(cli::master_text("{\"clients\": 3, \"segments\": [4, {\"name\": []}], \"counters\": \"x\"}", "", 0).ok());
}

TEST(AdminAccess, FromElsewhereOnlyWhatIsOpenIsShown) {
  const auto host = start_host();
  AdminHttp open(*host, "", true), closed(*host, "", false);
  for (const char* path : {"/metrics", "/metrics/summary", "/health"}) {
    EXPECT_EQ(open.answer(request_of(path, {}, false)).code, 200) << path;
    EXPECT_EQ(closed.answer(request_of(path, {}, false)).code, 403) << path;
    EXPECT_EQ(closed.answer(request_of(path)).code, 200) << path;
  }
  for (const char* path :
       {"/status", "/get_all_keys", "/query_key", "/role", "/nothing", "/api/v1/drain_jobs", "/kv_events/status"})
    EXPECT_EQ(open.answer(request_of(path, {}, false)).code, 403) << path;
}

TEST(AdminAccess, TheSecretOpensEverythingAndNothingElseDoes) {
  auto options = quick_options();
  options.secret = kSecret;
  const auto host = start_host(options);
  Owner owner(host->address(), kSecret);
  ASSERT_TRUE(owner.join());
  ASSERT_EQ(owner.put("key", 1000), Code::kOk);
  AdminHttp pages(*host, kSecret, true);
  HttpRequest request = request_of("/api/v1/remove_all", {{"force", "true"}}, false);
  request.method = "POST";
  for (const std::string& wrong :
       {std::string(), std::string("Bearer "), "Bearer " + std::string(kSecret) + "x", std::string(kSecret),
        "Bearer " + std::string(kSecret).substr(1), "Basic " + std::string(kSecret)}) {
    request.authorization = wrong;
    const HttpAnswer answer = pages.answer(request);
    EXPECT_EQ(answer.code, 403) << wrong;
    EXPECT_THAT(answer.body, Not(HasSubstr(kSecret)));
  }
  EXPECT_EQ(host->snapshot()->objects, 1u);
  request.authorization = "Bearer " + std::string(kSecret);
  EXPECT_EQ(pages.answer(request).code, 200);
  EXPECT_EQ(host->snapshot()->objects, 0u);
}

TEST(AdminAccess, WithoutASecretAnEmptyOneOpensNothing) {
  const auto host = start_host();
  AdminHttp pages(*host, "", true);
  HttpRequest request = request_of("/status", {}, false);
  for (const char* value : {"Bearer ", "Bearer", ""}) {
    request.authorization = value;
    EXPECT_EQ(pages.answer(request).code, 403) << value;
  }
}

TEST(AdminServer, PagesAreServedOverTheNetworkUntilItStops) {
  const auto host = start_host();
  AdminHttp pages(*host, "", true);
  ASSERT_TRUE(pages.start("127.0.0.1:0").ok());
  const auto body = cli::http_get(pages.address(), "/query_key?key=a%20b", "", kLong);
  ASSERT_FALSE(body.ok());
  EXPECT_THAT(body.status().message(), HasSubstr("404"));
  EXPECT_THAT(body.status().message(), HasSubstr("\"a b\""));
  EXPECT_TRUE(cli::http_get(pages.address(), "/health", "", kLong).ok());
  host->stop();
  EXPECT_THAT(cli::http_get(pages.address(), "/health", "", kLong).status().message(), HasSubstr("503"));
  pages.stop();
  EXPECT_FALSE(cli::http_get("127.0.0.1:1", "/health", "", kLong).ok());
}

}  // namespace
}  // namespace tidewire::store
