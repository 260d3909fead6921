// SPDX-License-Identifier: Apache-2.0
#include "store/admin/admin_http.h"

#include <utility>

#include "store/admin/pages.h"

namespace tidewire::store {
namespace {

using namespace admin;

constexpr const char* kJson = "application/json";
constexpr size_t kMaxKeys = 1'000'000;  // in one answer
constexpr size_t kMaxAskedKeys = 10'000;

bool is_open_page(const std::string& path) {
  return path == "/metrics" || path == "/metrics/summary" || path == "/health";
}

// What Mooncake's master has and this one does not (yet).
const char* missing_feature(const std::string& path) {
  for (const auto& [prefix, feature] :
       {std::pair{"/api/v1/drain_jobs", "drain jobs"},
        std::pair{"/api/v1/segments/status", "the status of drained segments"},
        std::pair{"/api/v1/tenant_quotas", "tenants and their quotas"},
        std::pair{"/api/v1/tasks", "copy and move tasks"}, std::pair{"/kv_events", "KV events"}})
    if (path.starts_with(prefix)) return feature;
  return nullptr;
}

HttpAnswer text(std::string body) {
  return {200, std::move(body)};
}
HttpAnswer json(std::string body, int code = 200) {
  return {code, std::move(body), kJson};
}
HttpAnswer failed(const Status& status) {
  return json(error_json(status.message()), 503);
}

std::string argument(const HttpRequest& request, const char* name) {
  const auto found = request.query.find(name);
  return found == request.query.end() ? std::string() : found->second;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    if (comma > at) parts.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

}  // namespace

bool AdminHttp::allowed(const HttpRequest& request) const {
  if (request.local || (open_ && request.method == "GET" && is_open_page(request.path))) return true;
  return !secret_.empty() && equal_in_constant_time(request.authorization, "Bearer " + secret_);
}

HttpAnswer AdminHttp::answer(const HttpRequest& request) {
  if (!allowed(request))
    return json(error_json("this page is for whoever asks on the master's own machine, or sends the cluster secret "
                           "(Authorization: Bearer …)"),
                403);
  if (const char* const feature = missing_feature(request.path))
    return json(error_json(std::string(feature) + " are not part of this master"), 501);
  if (request.path == "/api/v1/remove_all")
    return request.method == "POST" ? remove_all(request) : HttpAnswer{405, "only POST\n"};
  if (request.method != "GET") return {405, "only GET\n"};
  return get(request);
}

HttpAnswer AdminHttp::get(const HttpRequest& request) {
  const std::string& path = request.path;
  if (path == "/batch_query_keys") {
    const std::vector<std::string> keys = split(argument(request, "keys"));
    if (keys.empty() || keys.size() > kMaxAskedKeys)
      return json(error_json(fmt::format("keys=a,b: 1 to {} keys", kMaxAskedKeys)), 400);
    const Result<std::vector<GetPlace>> places = host_.look(keys);
    return places.ok() ? json(places_json(keys, *places)) : failed(places.status());
  }
  if (path == "/query_key") {
    const std::string key = argument(request, "key");
    if (key.empty()) return json(error_json("key=… is missing"), 400);
    // As a reader asks: with a lease.
    const Result<Body> answer = host_.ask(Get{{key}});
    if (!answer.ok()) return failed(answer.status());
    const auto* const found = std::get_if<GetAnswer>(&*answer);
    if (!found || found->gets.empty()) return json(error_json("the master gave no answer"), 503);
    return json(place_json(key, found->gets[0]), found->gets[0].code == Code::kOk ? 200 : 404);
  }
  if (path == "/get_all_keys") {
    const Result<std::vector<std::string>> keys = host_.keys(kMaxKeys);
    return keys.ok() ? text(lines(*keys)) : failed(keys.status());
  }

  const Result<MasterSnapshot> now = host_.snapshot();
  if (!now.ok()) return failed(now.status());
  if (path == "/metrics") {
    update_metrics(*now, &metrics_);
    return {200, metrics_.expose(), "text/plain; version=0.0.4; charset=utf-8"};
  }
  if (path == "/metrics/summary") return text(summary(*now));
  if (path == "/health") return json(health_json(host_.address(), *now));
  if (path == "/role") return text("leader\n");
  if (path == "/ha_status") return json(health_json(host_.address(), *now));
  if (path == "/leader") return text(host_.address() + "\n");
  if (path == "/status") return json(status_json(host_.address(), host_.id(), *now));
  if (path == "/get_all_segments") return text(lines(segment_names(*now)));
  if (path == "/get_segments_detail") return json(segments_json(*now));
  if (path == "/query_segment") {
    const std::string use = segment_use(*now, argument(request, "segment"));
    return use.empty() ? HttpAnswer{404, "no such segment\n"} : text(use);
  }
  return {404, "no such page\n"};
}

HttpAnswer AdminHttp::remove_all(const HttpRequest& request) {
  if (!argument(request, "tenant_id").empty() && argument(request, "tenant_id") != "default")
    return json(error_json("tenants are not part of this master"), 501);
  const std::string force = argument(request, "force");
  const Result<Body> answer = host_.ask(RemoveMatching{"", force == "true" || force == "1"});
  if (!answer.ok()) return failed(answer.status());
  const auto* const count = std::get_if<CountAnswer>(&*answer);
  if (!count || count->code != Code::kOk)
    return json(error_json(count ? code_name(count->code) : "the master gave no answer"), 503);
  return json(fmt::format("{{\"removed\": {}}}\n", count->count));
}

}  // namespace tidewire::store
