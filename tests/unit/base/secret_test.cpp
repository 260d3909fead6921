// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/settings.h"

namespace tidewire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Secret : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "tidewire-secret-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    file_ = folder_ + "/secret";
  }
  void TearDown() override {
    ::unlink(file_.c_str());
    ::rmdir(folder_.c_str());
  }
  void write(const std::string& content, mode_t mode = 0600) {
    std::ofstream(file_, std::ios::binary) << content;
    ASSERT_EQ(::chmod(file_.c_str(), mode), 0);
  }
  std::string error() {
    const Result<std::string> secret = load_secret(file_);
    EXPECT_FALSE(secret.ok());
    EXPECT_EQ(secret.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(secret.status().message(), HasSubstr(file_));
    return secret.status().message();
  }

  std::string folder_, file_;
};

TEST_F(Secret, NoFileMeansNoSecret) {
  EXPECT_EQ(*load_secret(""), "");
}

TEST_F(Secret, TrailingWhiteSpaceIsDropped) {
  write("0123456789abcdef \r\n\n");
  EXPECT_EQ(*load_secret(file_), "0123456789abcdef");
}

TEST_F(Secret, BinarySecretsAreTakenAsTheyAre) {
  const std::string bytes("\0\1\2\3\4\5\6\7\0\1\2\3\4\5\6\7", 16);
  write(bytes);
  EXPECT_EQ(*load_secret(file_), bytes);
}

TEST_F(Secret, FilesThatOthersMayReadAreRefused) {
  for (const mode_t mode : {0640, 0604, 0644, 0660, 0610}) {
    write("0123456789abcdef", mode);
    EXPECT_THAT(error(), HasSubstr("chmod 600"));
  }
}

TEST_F(Secret, ShortEmptyAndLongFilesAreRefusedWithoutTellingTheContent) {
  write("");
  EXPECT_THAT(error(), HasSubstr("0 bytes"));
  write("hunter2\n");
  EXPECT_THAT(error(), HasSubstr("7 bytes"));
  EXPECT_THAT(error(), Not(HasSubstr("hunter2")));
  write(std::string(4097, 'x'));
  EXPECT_THAT(error(), HasSubstr("4097 bytes"));
  write(std::string(100'000, 'x'));
  EXPECT_THAT(error(), HasSubstr("longer than 4096"));
  write(std::string(4096, 'x'));
  EXPECT_TRUE(load_secret(file_).ok());
}

TEST_F(Secret, WhatIsNoFileIsRefusedWithoutWaiting) {
  EXPECT_THAT(error(), HasSubstr("No such file"));
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  EXPECT_THAT(error(), HasSubstr("is not a file"));
}

}  // namespace
}  // namespace tidewire
