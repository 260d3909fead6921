// SPDX-License-Identifier: Apache-2.0
#include "cli/size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidewire::cli {
namespace {

using ::testing::HasSubstr;

TEST(Size, NumbersAndUnitsAreRead) {
  EXPECT_EQ(*parse_size("0"), 0u);
  EXPECT_EQ(*parse_size("4096"), 4096u);
  EXPECT_EQ(*parse_size("64K"), 65536u);
  EXPECT_EQ(*parse_size("1.5G"), 3u << 29);
  EXPECT_EQ(*parse_size("2 MiB"), 2u << 20);
  EXPECT_EQ(*parse_size("1t"), uint64_t{1} << 40);
  EXPECT_EQ(*parse_size("7B"), 7u);
}

TEST(Size, OtherTextsAreRefusedByName) {
  for (const char* text : {"", "K", "-1", "1Q", "1KiBx", "nan", "inf", "1e3", "0.3", "99999999T", "0x10"}) {
    const Result<uint64_t> size = parse_size(text);
    EXPECT_FALSE(size.ok()) << text;
    EXPECT_THAT(size.status().message(), HasSubstr(std::string("'") + text + "'"));
  }
}

TEST(Size, SizesAreWrittenShort) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(65536), "64 KiB");
  EXPECT_EQ(size_text(3u << 29), "1.5 GiB");
}

}  // namespace
}  // namespace tidewire::cli
