// SPDX-License-Identifier: Apache-2.0
#include "store/admin/metadata_http.h"

#include <gtest/gtest.h>

namespace tidewire::store {
namespace {

HttpAnswer ask(MetadataHttp& directory, const std::string& method, const std::string& key,
               const std::string& body = "") {
  HttpRequest request;
  request.method = method;
  request.path = "/metadata";
  if (!key.empty()) request.query["key"] = key;
  request.body = body;
  return directory.answer(request);
}

TEST(MetadataHttp, AValueIsKeptUntilItIsDeleted) {
  MetadataHttp directory;
  EXPECT_EQ(ask(directory, "GET", "a").code, 404);
  EXPECT_EQ(ask(directory, "GET", "a").body, "metadata not found");
  EXPECT_EQ(ask(directory, "PUT", "a", "1").code, 200);
  EXPECT_EQ(ask(directory, "PUT", "a", "2").code, 200);
  EXPECT_EQ(ask(directory, "GET", "a").body, "2");
  EXPECT_EQ(ask(directory, "DELETE", "a").code, 200);
  EXPECT_EQ(ask(directory, "DELETE", "a").code, 404);
}

TEST(MetadataHttp, ARequestWithoutAKeyIsRefused) {
  MetadataHttp directory;
  for (const char* method : {"GET", "PUT", "DELETE"}) EXPECT_EQ(ask(directory, method, "").code, 400) << method;
  EXPECT_EQ(ask(directory, "POST", "a").code, 405);
}

TEST(MetadataHttp, HowToReachAProcessIsNotOverwritten) {
  MetadataHttp directory;
  EXPECT_EQ(ask(directory, "PUT", "mooncake/rpc_meta/host", "1").code, 200);
  EXPECT_EQ(ask(directory, "PUT", "mooncake/rpc_meta/host", "1").body, "metadata unchanged");
  const HttpAnswer second = ask(directory, "PUT", "mooncake/rpc_meta/host", "2");
  EXPECT_EQ(second.code, 400);
  EXPECT_EQ(second.body, "Duplicate rpc_meta key not allowed");
  EXPECT_EQ(ask(directory, "GET", "mooncake/rpc_meta/host").body, "1");
}

TEST(MetadataHttp, ItFillsUpAndTakesMoreWhenSomethingWasDeleted) {
  MetadataHttp directory;
  const std::string large(MetadataHttp::kMaxValue, 'x');
  int taken = 0;
  while (ask(directory, "PUT", std::to_string(taken), large).code == 200) ++taken;
  EXPECT_EQ(taken, static_cast<int>(MetadataHttp::kMaxTotal / (MetadataHttp::kMaxValue + 2)));
  EXPECT_EQ(ask(directory, "PUT", "more", large).code, 507);
  EXPECT_EQ(ask(directory, "PUT", "0", large).code, 200);
  EXPECT_EQ(ask(directory, "DELETE", "0").code, 200);
  EXPECT_EQ(ask(directory, "PUT", "more", large).code, 200);
}

}  // namespace
}  // namespace tidewire::store
