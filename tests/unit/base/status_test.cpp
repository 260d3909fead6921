// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace tidewire {
namespace {

Status fails_at(int step, int* reached) {
  *reached = 0;
  TW_RETURN_IF_ERROR(step == 1 ? Status(Code::kBusy, "first") : Status());
  *reached = 1;
  TW_ASSIGN_OR_RETURN(const int value, step == 2 ? Result<int>(Status(Code::kTimeout, "second")) : Result<int>(7));
  *reached = value;
  return {};
}

TEST(Status, OkIsTheDefaultAndHasNoText) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), Code::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.to_string(), "OK");
  EXPECT_TRUE(status.with_context("anything").ok());
}

TEST(Status, ErrorCarriesCodeAndText) {
  const Status status = Status::error(Code::kTimeout, "peer {} did not answer in {} ms", "b", 5);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.to_string(), "TIMEOUT: peer b did not answer in 5 ms");
  EXPECT_EQ(status.with_context("open").message(), "open: peer b did not answer in 5 ms");
  EXPECT_EQ(status.with_context("open").code(), Code::kTimeout);
}

TEST(Status, MacrosLeaveAtTheFirstError) {
  int reached = 0;
  EXPECT_EQ(fails_at(1, &reached).message(), "first");
  EXPECT_EQ(reached, 0);
  EXPECT_EQ(fails_at(2, &reached).message(), "second");
  EXPECT_EQ(reached, 1);
  EXPECT_TRUE(fails_at(0, &reached).ok());
  EXPECT_EQ(reached, 7);
}

TEST(Status, EveryCodeHasANameAndOthersAreUnknown) {
  for (int code = 0; code <= TW_INTERNAL; ++code) EXPECT_STRNE(code_name(static_cast<Code>(code)), "UNKNOWN") << code;
  EXPECT_STREQ(code_name(static_cast<Code>(TW_INTERNAL + 1)), "UNKNOWN");
  EXPECT_STREQ(code_name(static_cast<Code>(-1)), "UNKNOWN");
}

TEST(Status, ErrnoGetsTheCodeThatFits) {
  EXPECT_EQ(errno_status(ECONNREFUSED, "x").code(), Code::kUnreachable);
  EXPECT_EQ(errno_status(ECONNRESET, "x").code(), Code::kPeerGone);
  EXPECT_EQ(errno_status(EMFILE, "x").code(), Code::kNoResources);
  EXPECT_EQ(errno_status(EADDRINUSE, "x").code(), Code::kAddressInUse);
  EXPECT_EQ(errno_status(EBADF, "x").code(), Code::kInternal);
  EXPECT_EQ(errno_status(ECONNREFUSED, "connect to 10.0.0.1:80").message(),
            "connect to 10.0.0.1:80: Connection refused");
}

TEST(Status, TheSystemsErrorNumberStaysWithTheContext) {
  EXPECT_EQ(Status(Code::kTimeout, "x").system_error(), 0);
  EXPECT_EQ(Status().system_error(), 0);
  EXPECT_EQ(errno_status(ECONNREFUSED, "connect").with_context("peer").system_error(), ECONNREFUSED);
}

}  // namespace
}  // namespace tidewire
