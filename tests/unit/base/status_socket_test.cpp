// SPDX-License-Identifier: Apache-2.0
#include "base/status_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "base/clock.h"

namespace tidewire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StatusSocket, AnswersWhoAsksAndAgain) {
  int asked = 0;
  StatusSocket socket([&asked] { return "{\"asked\":" + std::to_string(++asked) + "}"; });
  ASSERT_TRUE(socket.start().ok());
  EXPECT_THAT(*read_status(::getpid()), ElementsAre("{\"asked\":1}"));
  EXPECT_THAT(*read_status(::getpid()), ElementsAre("{\"asked\":2}"));
}

TEST(StatusSocket, EnginesOfOneProcessAreListedInOrderAndMayLeaveGaps) {
  StatusSocket first([] { return std::string("a"); }), third([] { return std::string("c"); });
  ASSERT_TRUE(first.start().ok());
  {
    StatusSocket second([] { return std::string("b"); });
    ASSERT_TRUE(second.start().ok());
    ASSERT_TRUE(third.start().ok());
    EXPECT_EQ(third.index(), 2);
    EXPECT_THAT(*read_status(::getpid()), ElementsAre("a", "b", "c"));
  }
  EXPECT_THAT(*read_status(::getpid()), ElementsAre("a", "c"));
}

TEST(StatusSocket, LongTextsArriveWhole) {
  StatusSocket socket([] { return std::string(5 << 20, 'x'); });
  ASSERT_TRUE(socket.start().ok());
  EXPECT_EQ(read_status(::getpid())->at(0).size(), size_t{5} << 20);
}

TEST(StatusSocket, ABloatedAnswerIsRefusedByTheReader) {
  StatusSocket socket([] { return std::string(StatusSocket::kMaxText + 1, 'x'); });
  ASSERT_TRUE(socket.start().ok());
  EXPECT_EQ(read_status(::getpid()).status().code(), Code::kProtocol);
}

TEST(StatusSocket, AProcessWithoutEngineIsNotFound) {
  const Result<std::vector<std::string>> texts = read_status(::getpid());
  EXPECT_EQ(texts.status().code(), Code::kNotFound);
  EXPECT_THAT(texts.status().message(), HasSubstr(std::to_string(::getpid())));
}

TEST(StatusSocket, ASilentReaderDoesNotStopTheNext) {
  StatusSocket socket([] { return std::string(5 << 20, 'x'); });
  ASSERT_TRUE(socket.start().ok());
  const UniqueFd silent(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "tidewire-status-" + std::to_string(::getpid()) + "-0";
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  ASSERT_EQ(::connect(silent.get(), reinterpret_cast<sockaddr*>(&address),
                      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
            0);
  // The first question waits behind the silent reader and may time out; it must not stay so.
  Result<std::vector<std::string>> texts = read_status(::getpid());
  for (int round = 0; round < 10 && !texts.ok(); ++round) texts = read_status(::getpid());
  ASSERT_TRUE(texts.ok()) << texts.status().to_string();
  EXPECT_EQ(texts->at(0).size(), size_t{5} << 20);
}

TEST(StatusSocket, AForkedChildLeavesTheParentsSocketAlone) {
  StatusSocket socket([] { return std::string("parent"); });
  ASSERT_TRUE(socket.start().ok());
  const pid_t child = ::fork();
  if (child == 0) {
    socket.stop();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_THAT(*read_status(::getpid()), ElementsAre("parent"));
}

TEST(StatusSocket, OtherUsersGetNoAnswer) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  StatusSocket socket([] { return std::string("private"); });
  ASSERT_TRUE(socket.start().ok());
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(2);
    ::_exit(read_status(parent).status().code() == Code::kPermissionDenied ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace tidewire
