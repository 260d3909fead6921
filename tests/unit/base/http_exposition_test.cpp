// SPDX-License-Identifier: Apache-2.0
#include "base/http_exposition.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <map>
#include <stdexcept>
#include <vector>

#include "base/metrics.h"

namespace tidewire {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

UniqueFd connect_to(const HttpExposition& server) {
  const uint16_t port = static_cast<uint16_t>(std::stoi(server.address().substr(server.address().rfind(':') + 1)));
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

std::string ask(const HttpExposition& server, const std::string& request) {
  const UniqueFd fd = connect_to(server);
  EXPECT_GE(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL), 0);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  return text;
}

class Exposition : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(server_.start("127.0.0.1:0", {{"/metrics", [this] { return body_; }}}).ok());
  }
  std::string body_ = "a 1\n";
  HttpExposition server_;
};

TEST_F(Exposition, PortZeroIsReplacedByTheChosenOne) {
  EXPECT_THAT(server_.address(), StartsWith("127.0.0.1:"));
  EXPECT_NE(server_.address(), "127.0.0.1:0");
}

TEST_F(Exposition, APageIsAnsweredWithItsLength) {
  const std::string answer = ask(server_, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 4\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\na 1\n"));
}

TEST_F(Exposition, QueriesAreIgnoredAndHeadHasNoBody) {
  EXPECT_THAT(ask(server_, "GET /metrics?x=1 HTTP/1.0\r\n\r\n"), EndsWith("a 1\n"));
  EXPECT_THAT(ask(server_, "HEAD /metrics HTTP/1.1\r\n\r\n"), EndsWith("Connection: close\r\n\r\n"));
}

TEST_F(Exposition, LargePagesArriveWhole) {
  body_ = std::string(8 << 20, 'x');
  const std::string answer = ask(server_, "GET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, body_.size());
}

TEST_F(Exposition, OtherPathsAndMethodsAreRefused) {
  EXPECT_THAT(ask(server_, "GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(ask(server_, "GET /metricsx HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(ask(server_, "POST /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
}

TEST_F(Exposition, HostileRequestsAreDroppedAndTheNextIsServed) {
  EXPECT_EQ(ask(server_, std::string(100'000, 'x')), "");
  EXPECT_THAT(ask(server_, std::string("\0\xff\r\n\r\n", 6)), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(ask(server_, "GET \r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  connect_to(server_).reset();  // goes away without a word
  EXPECT_THAT(ask(server_, "GET /metrics HTTP/1.1\r\n\r\n"), EndsWith("a 1\n"));
}

TEST_F(Exposition, ASilentClientDelaysTheNextOnlyForAWhile) {
  const UniqueFd silent = connect_to(server_);
  EXPECT_THAT(ask(server_, "GET /metrics HTTP/1.1\r\n\r\n"), EndsWith("a 1\n"));
}

TEST_F(Exposition, StoppingDoesNotWaitForASilentClient) {
  const UniqueFd silent = connect_to(server_);
  const Nanos start = monotonic_now();
  server_.stop();
  EXPECT_LT(monotonic_now() - start, kSecond);
  server_.stop();
}

TEST_F(Exposition, ATakenPortIsToldAndNotShared) {
  HttpExposition second;
  const Status status = second.start(server_.address(), {});
  EXPECT_EQ(status.code(), Code::kAddressInUse);
  EXPECT_THAT(status.message(), HasSubstr(server_.address()));
}

TEST_F(Exposition, SignalHandlersOfTheProgramStay) {
  struct sigaction action;
  ASSERT_EQ(::sigaction(SIGPIPE, nullptr, &action), 0);
  EXPECT_EQ(action.sa_handler, SIG_DFL);
}

TEST_F(Exposition, AForkedChildLeavesTheParentsServerAlone) {
  const pid_t child = ::fork();
  if (child == 0) {
    server_.stop();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_THAT(ask(server_, "GET /metrics HTTP/1.1\r\n\r\n"), EndsWith("a 1\n"));
}

class Handled : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto answer = [this](const HttpRequest& request) -> HttpAnswer {
      if (request.path == "/throw") throw std::runtime_error("no luck");
      last_ = request;
      return {request.path == "/missing" ? 404 : 200, "seen\n"};
    };
    ASSERT_TRUE(server_.start("127.0.0.1:0", 1000, answer).ok());
  }
  HttpRequest last_;
  HttpExposition server_;
};

TEST_F(Handled, MethodPathQueryAndBodyReachTheHandler) {
  EXPECT_THAT(ask(server_,
                  "PUT /a%20path?key=x%2Fy+z&flag&key=second&=&bad=%zz%4 HTTP/1.1\r\nauthorization:  Bearer abc "
                  "\r\nContent-Length: 5\r\n\r\nhello"),
              StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(last_.method, "PUT");
  EXPECT_EQ(last_.path, "/a%20path");
  EXPECT_EQ(last_.query,
            (std::map<std::string, std::string>{{"key", "x/y z"}, {"flag", ""}, {"", ""}, {"bad", "%zz%4"}}));
  EXPECT_EQ(last_.body, "hello");
  EXPECT_EQ(last_.authorization, "Bearer abc");
  EXPECT_TRUE(last_.local);
}

TEST_F(Handled, ABodyMayComeInPieces) {
  const UniqueFd fd = connect_to(server_);
  for (const std::string& piece : {"POST /x HTTP/1.1\r\nCont", "ent-Length: 6\r\n\r", "\nab", "cd", "ef"}) {
    ASSERT_EQ(::send(fd.get(), piece.data(), piece.size(), MSG_NOSIGNAL), static_cast<ssize_t>(piece.size()));
    EXPECT_THAT(ask(server_, "GET /between HTTP/1.1\r\n\r\n"), EndsWith("seen\n"));
  }
  char buffer[4096];
  EXPECT_GT(::recv(fd.get(), buffer, sizeof buffer, 0), 0);
}

TEST_F(Handled, CodesAndFailuresOfTheHandlerAreAnswered) {
  EXPECT_THAT(ask(server_, "GET /missing HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 Not Found\r\n"));
  EXPECT_THAT(ask(server_, "GET /throw HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(ask(server_, "GET /throw HTTP/1.1\r\n\r\n"), EndsWith("no luck\n"));
}

TEST_F(Handled, BodiesBeyondTheLimitAreRefusedAndTheRefusalArrives) {
  const std::string body(1 << 20, 'x');
  EXPECT_THAT(ask(server_, "PUT /x HTTP/1.1\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body),
              StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(ask(server_, "PUT /x HTTP/1.1\r\nContent-Length: 1001\r\n\r\n"), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(ask(server_, "PUT /x HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" + std::string(1000, 'x')),
              StartsWith("HTTP/1.1 200 "));
}

TEST_F(Handled, LengthsThatAreNoneAreRefused) {
  for (const char* header : {"Content-Length: x", "Content-Length: -1", "Content-Length: ",
                             "Content-Length: 1\r\nContent-Length: 2", "Content-Length: 99999999999999999999"})
    EXPECT_THAT(ask(server_, std::string("PUT /x HTTP/1.1\r\n") + header + "\r\n\r\n"), StartsWith("HTTP/1.1 400 "))
        << header;
  EXPECT_THAT(ask(server_, "PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
              StartsWith("HTTP/1.1 501 "));
}

TEST_F(Handled, WhoSpeaksForOthersIsNotLocal) {
  for (const char* header :
       {"Origin: http://evil", "X-Forwarded-For: 10.0.0.1", "forwarded: for=10.0.0.1", "Via: 1.1 proxy"}) {
    EXPECT_THAT(ask(server_, std::string("GET / HTTP/1.1\r\n") + header + "\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
    EXPECT_FALSE(last_.local) << header;
  }
  EXPECT_THAT(ask(server_, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  EXPECT_TRUE(last_.local);
}

TEST_F(Handled, SilentClientsDoNotHoldUpOthers) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(connect_to(server_));
  EXPECT_THAT(ask(server_, "GET / HTTP/1.1\r\n\r\n"), EndsWith("seen\n"));
  // None of the silent ones was given up for it.
  for (const UniqueFd& fd : silent) {
    char byte;
    EXPECT_EQ(::recv(fd.get(), &byte, 1, MSG_DONTWAIT), -1);
    EXPECT_EQ(errno, EAGAIN);
  }
}

TEST_F(Handled, MoreConnectionsThanThereAreSlotsAreServedInTurn) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 70; ++i) silent.push_back(connect_to(server_));
  EXPECT_THAT(ask(server_, "GET / HTTP/1.1\r\n\r\n"), EndsWith("seen\n"));
}

TEST(ConstantTime, EqualIsEqualAndNothingElse) {
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  for (const char* other : {"", "ab", "abd", "abcabc", "xbc"}) {
    EXPECT_FALSE(equal_in_constant_time("abc", other)) << other;
    EXPECT_FALSE(equal_in_constant_time(other, "abc")) << other;
  }
}

TEST(ExpositionAddress, BadAddressesAreNamed) {
  for (const char* address : {"", "x", ":80", "host:", "127.0.0.1:http x", "256.1.1.1.1:80"}) {
    HttpExposition server;
    const Status status = server.start(address, {});
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << address << " " << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr(std::string("'") + address + "'"));
  }
}

TEST(ServeMetrics, GoesOnWithoutMetricsWhenThePortIsTaken) {
  const Metrics metrics;
  HttpExposition first, second;
  serve_metrics("127.0.0.1:0", metrics, &first);
  ASSERT_NE(first.address(), "");
  EXPECT_THAT(ask(first, "GET /health HTTP/1.1\r\n\r\n"), EndsWith("ok\n"));
  serve_metrics(first.address(), metrics, &second);
  EXPECT_THAT(ask(first, "GET /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  HttpExposition off;
  serve_metrics("", metrics, &off);
  EXPECT_EQ(off.address(), "");
}

}  // namespace
}  // namespace tidewire
