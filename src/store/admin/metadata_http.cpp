// SPDX-License-Identifier: Apache-2.0
#include "store/admin/metadata_http.h"

namespace tidewire::store {

HttpAnswer MetadataHttp::answer(const HttpRequest& request) {
  if (request.path == "/health" && request.method == "GET") return {200, "OK"};
  if (request.path != "/metadata") return {404, "no such page"};
  const auto named = request.query.find("key");
  if (named == request.query.end() || named->second.empty()) return {400, "key is missing"};
  const auto found = values_.find(named->second);
  if (request.method == "PUT") return put(named->second, request.body);
  if (request.method != "GET" && request.method != "DELETE") return {405, "only GET, PUT and DELETE"};
  if (found == values_.end()) return {404, "metadata not found"};
  if (request.method == "GET") return {200, found->second, "application/json"};
  total_ -= found->first.size() + found->second.size();
  values_.erase(found);
  return {200, "metadata deleted"};
}

HttpAnswer MetadataHttp::put(const std::string& key, const std::string& value) {
  const auto found = values_.find(key);
  const size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
  // How to reach a process: a second one of the same name must not take it over.
  if (found != values_.end() && key.find("rpc_meta") != std::string::npos)
    return found->second == value ? HttpAnswer{200, "metadata unchanged"}
                                  : HttpAnswer{400, "Duplicate rpc_meta key not allowed"};
  if (total_ - before + key.size() + value.size() > kMaxTotal) return {507, "the directory is full"};
  total_ += key.size() + value.size() - before;
  values_[key] = value;
  return {200, "metadata updated"};
}

}  // namespace tidewire::store
