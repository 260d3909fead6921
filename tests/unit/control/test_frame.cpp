// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
#include <string_view>

#include "control/frame.h"

namespace tidewire::control {
namespace {

std::vector<uint8_t> bytes_of(std::string_view text) {
  return {text.begin(), text.end()};
}

TEST(Frame, SurvivesEveryCutIntoPieces) {
  const std::vector<uint8_t> payload = bytes_of("some payload");
  const std::vector<uint8_t> frame = encode_frame(FrameType::kProbe, 0x1122334455667788, payload);
  for (size_t step = 1; step <= frame.size(); ++step) {
    FrameDecoder decoder(1024);
    for (size_t at = 0; at < frame.size();) {
      const size_t size = std::min({step, frame.size() - at, decoder.wanted()});
      ASSERT_GT(size, 0u);
      ASSERT_EQ(decoder.feed({frame.data() + at, size}), size);
      at += size;
    }
    ASSERT_TRUE(decoder.ready());
    const Frame out = decoder.take();
    EXPECT_EQ(out.type, FrameType::kProbe);
    EXPECT_EQ(out.request, 0x1122334455667788u);
    EXPECT_EQ(out.payload, payload);
  }
}

TEST(Frame, TakesNothingOfTheNextFrame) {
  std::vector<uint8_t> two = encode_frame(FrameType::kProbe, 1, bytes_of("abc"));
  const size_t first = two.size();
  const auto second = encode_frame(FrameType::kGoodbye, 2, {});
  two.insert(two.end(), second.begin(), second.end());
  FrameDecoder decoder(1024);
  EXPECT_EQ(decoder.feed(two), first);
  EXPECT_TRUE(decoder.ready());
  EXPECT_EQ(decoder.wanted(), 0u);
  EXPECT_EQ(decoder.feed({two.data() + first, two.size() - first}), 0u);
  decoder.take();
  EXPECT_EQ(decoder.wanted(), kFrameHeaderBytes);
  EXPECT_EQ(decoder.feed({two.data() + first, two.size() - first}), second.size());
  EXPECT_EQ(decoder.take().request, 2u);
}

TEST(Frame, RefusesLengthsAboveTheLimitBeforeAnyByteOfThem) {
  for (const uint32_t limit : {0u, 10u, kMaxHelloBytes}) {
    const std::vector<uint8_t> fits = encode_frame(FrameType::kProbe, 1, std::vector<uint8_t>(limit));
    FrameDecoder good(limit);
    good.feed(fits);
    EXPECT_TRUE(good.ready());
    const std::vector<uint8_t> large = encode_frame(FrameType::kProbe, 1, std::vector<uint8_t>(limit + 1));
    FrameDecoder decoder(limit);
    decoder.feed({large.data(), kFrameHeaderBytes});
    EXPECT_EQ(decoder.status().code(), Code::kProtocol);
    EXPECT_EQ(decoder.wanted(), 0u);
  }
}

TEST(Frame, RefusesOtherVersionsAndFlags) {
  for (const size_t at : {size_t{4}, size_t{6}, size_t{7}}) {
    std::vector<uint8_t> frame = encode_frame(FrameType::kProbe, 1, {});
    frame[at] = 9;
    FrameDecoder decoder(1024);
    decoder.feed(frame);
    EXPECT_EQ(decoder.status().code(), Code::kProtocol);
  }
}

Status greeted_by(std::vector<uint8_t> bytes, size_t step) {
  FrameDecoder decoder(1024);
  for (size_t at = 0; at < bytes.size() && decoder.status().ok(); at += step)
    decoder.feed({bytes.data() + at, std::min(step, bytes.size() - at)});
  return decoder.status();
}

TEST(Frame, TellsWellKnownStrangersApart) {
  // As seen on the wire: length, a byte for the kind, JSON. And the same without that byte.
  const std::vector<uint8_t> mooncake = {0xff, 0,   0,   0,   0,   0,   0,   0,   1,   '{',
                                         '"',  'b', 'u', 'f', 'f', 'e', 'r', 's', '"', ':'};
  const std::vector<uint8_t> mooncake_probe = {4, 0, 0, 0, 0, 0, 0, 0, 3, '{', '}', '\n'};
  const std::vector<uint8_t> mooncake_bare = {2, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
  const std::vector<uint8_t> tls = {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03, 0x00};
  for (const size_t step : {size_t{1}, size_t{7}, size_t{100}}) {
    EXPECT_NE(greeted_by(bytes_of("GET / HTTP/1.1\r\n"), step).message().find("HTTP"), std::string::npos);
    for (const auto& bytes : {mooncake, mooncake_probe, mooncake_bare})
      EXPECT_NE(greeted_by(bytes, step).message().find("Mooncake"), std::string::npos);
    EXPECT_NE(greeted_by(tls, step).message().find("TLS"), std::string::npos);
    EXPECT_NE(greeted_by(bytes_of("SSH-2.0-OpenSSH"), step).message().find("does not speak Tidewire"),
              std::string::npos);
  }
}

TEST(Frame, HoldsNoMoreThanArrived) {
  // A header may promise 16 MiB; the decoder's memory follows the bytes.
  std::vector<uint8_t> frame = encode_frame(FrameType::kRecord, 1, std::vector<uint8_t>(kMaxFrameBytes));
  FrameDecoder decoder(kMaxFrameBytes);
  decoder.feed({frame.data(), kFrameHeaderBytes + 1});
  EXPECT_EQ(decoder.wanted(), kMaxFrameBytes - 1);
  EXPECT_LT(decoder.buffered_capacity(), 4096u);
}

TEST(Frame, RandomBytesNeverMakeAFrameOfThem) {
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<uint8_t> bytes(random() % 64 + kFrameHeaderBytes);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    FrameDecoder decoder(1024);
    const size_t used = decoder.feed(bytes);
    EXPECT_LE(used, bytes.size());
    EXPECT_FALSE(decoder.ready());
    EXPECT_FALSE(decoder.status().ok());
  }
}

}  // namespace
}  // namespace tidewire::control
