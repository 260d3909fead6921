// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "metadata/http_response.h"

namespace tidewire::metadata {
namespace {

constexpr size_t kMaxBody = 1000;

// Fed in pieces of `step`, then the connection ends.
struct Parsed {
  Status status;
  int code = 0;
  std::string body;
};
Parsed parse(const std::string& text, size_t step, bool end = true) {
  HttpResponse response(kMaxBody);
  Parsed out;
  for (size_t at = 0; at < text.size() && out.status.ok(); at += step)
    out.status = response.feed(text.substr(at, step));
  if (out.status.ok() && !response.complete() && end) out.status = response.end();
  out.code = response.code();
  out.body = response.body();
  if (out.status.ok()) {
    EXPECT_EQ(response.complete(), true) << text;
  }
  return out;
}

TEST(HttpResponse, ReadsBodiesOfEveryKindInPiecesOfEverySize) {
  const std::string length = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloIGNORED";
  const std::string chunks =
      "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nTrailer: x\r\n\r\n";
  const std::string until_end = "HTTP/1.0 200 OK\n\nhello";
  const std::string interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
  for (const std::string& text : {length, chunks, until_end, interim}) {
    for (size_t step = 1; step <= text.size(); ++step) {
      const Parsed parsed = parse(text, step);
      ASSERT_TRUE(parsed.status.ok()) << parsed.status.to_string() << "\n" << text;
      EXPECT_EQ(parsed.code, 200);
      EXPECT_EQ(parsed.body, "hello");
    }
  }
  EXPECT_EQ(parse("HTTP/1.1 204 No Content\r\n\r\n", 100, false).code, 204);
  EXPECT_EQ(parse("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 100, false).code, 404);
}

TEST(HttpResponse, RefusesWhatIsNoneOrTooLarge) {
  const std::string large(kMaxBody + 1, 'x');
  for (const std::string& text : std::vector<std::string>{
           "", "SSH-2.0-x\r\n", "HTTP/2 200\r\n", "HTTP/1.1 abc OK\r\n\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
           "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
           "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
           "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
           "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n",
           "HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n",
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
           "HTTP/1.1 200 OK\r\n\r\n" + large,
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n" + large.substr(1) + "\r\n1\r\nx\r\n0\r\n\r\n",
           "HTTP/1.1 200 OK\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n"}) {
    for (const size_t step : {size_t{1}, size_t{13}, size_t{100'000}})
      EXPECT_EQ(parse(text, step).status.code(), Code::kProtocol) << text.substr(0, 100);
  }
}

TEST(HttpResponse, SurvivesBrokenOnes) {
  std::mt19937 random(5);
  const std::string good =
      "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nTrailer: x\r\n\r\n";
  for (int round = 0; round < 50'000; ++round) {
    std::string text = good;
    for (int flips = static_cast<int>(random() % 4); flips >= 0; --flips)
      text[random() % text.size()] ^= static_cast<char>(1 << (random() % 8));
    HttpResponse response(kMaxBody);
    if (response.feed(text).ok()) (void)response.end();
    EXPECT_LE(response.body().size(), kMaxBody);
  }
}

}  // namespace
}  // namespace tidewire::metadata
