// SPDX-License-Identifier: Apache-2.0
#include <random>

#include "tcp_raw_peer.h"

namespace tidewire::transport::tcp {
namespace {

wire::Header sample() {
  wire::Header header;
  header.type = wire::Type::kWrite;
  header.count = 2;
  header.id = 0x1122334455667788;
  header.payload_bytes = 300;
  return header;
}
const std::vector<uint8_t> kTable = table_of({{0x1000, 100}, {0x9000, 200}});

TEST(TcpWire, WhatIsEncodedDecodes) {
  const std::vector<uint8_t> bytes = frame_of(sample(), kTable);
  wire::Header header;
  ASSERT_TRUE(wire::decode(bytes.data(), header).ok());
  EXPECT_EQ(header.type, wire::Type::kWrite);
  EXPECT_EQ(header.count, 2u);
  EXPECT_EQ(header.id, 0x1122334455667788u);
  EXPECT_EQ(header.payload_bytes, 300u);
  EXPECT_EQ(header.stream_bytes(), 300u);
  EXPECT_TRUE(wire::verify_body(header, bytes.data() + wire::kHeaderBytes).ok());
}

TEST(TcpWire, EveryFlippedBitOfHeaderAndTableIsFound) {
  std::vector<uint8_t> bytes = frame_of(sample(), kTable);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    wire::Header header;
    const bool accepted =
        wire::decode(bytes.data(), header).ok() && wire::verify_body(header, bytes.data() + wire::kHeaderBytes).ok();
    EXPECT_FALSE(accepted) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
  }
}

// Correct checksums over impossible contents.
TEST(TcpWire, LiesAreRefused) {
  const auto refused = [](auto change) {
    wire::Header header = sample();
    change(header);
    uint8_t bytes[wire::kHeaderBytes];
    wire::encode(header, bytes);
    wire::Header decoded;
    return wire::decode(bytes, decoded).code() == Code::kProtocol;
  };
  EXPECT_FALSE(refused([](wire::Header&) {}));
  EXPECT_TRUE(refused([](wire::Header& header) { header.count = 0; }));
  EXPECT_TRUE(refused([](wire::Header& header) { header.count = wire::kMaxPieces + 1; }));
  EXPECT_TRUE(refused([](wire::Header& header) { header.count = UINT32_MAX; }));
  EXPECT_TRUE(refused([](wire::Header& header) { header.payload_bytes = 0; }));
  EXPECT_TRUE(refused([](wire::Header& header) { header.payload_bytes = wire::kMaxPayload + 1; }));
  EXPECT_TRUE(refused([](wire::Header& header) { header.payload_bytes = UINT64_MAX; }));
  EXPECT_TRUE(refused([](wire::Header& header) { header.code = 1; }));
  EXPECT_TRUE(refused([](wire::Header& header) { header.type = static_cast<wire::Type>(3); }));  // revoke with a body
  EXPECT_TRUE(refused([](wire::Header& header) { header.type = static_cast<wire::Type>(99); }));
  EXPECT_TRUE(refused([](wire::Header& header) {
    header.type = wire::Type::kAck;
    header.payload_bytes = 0;
    header.count = wire::kMaxText + 1;
  }));
}

TEST(TcpWire, TablesThatDontAddUpAreRefused) {
  const auto verdict = [](std::vector<std::pair<uint64_t, uint64_t>> pieces, uint64_t payload) {
    const std::vector<uint8_t> table = table_of(pieces);
    wire::Header header = sample();
    header.count = static_cast<uint32_t>(pieces.size());
    header.payload_bytes = payload;
    header.body_check = wire::body_checksum(table.data(), table.size());
    return wire::verify_body(header, table.data()).code();
  };
  EXPECT_EQ(verdict({{1, 100}, {2, 200}}, 300), Code::kOk);
  EXPECT_EQ(verdict({{1, 100}, {2, 200}}, 301), Code::kProtocol);
  EXPECT_EQ(verdict({{1, 0}, {2, 300}}, 300), Code::kProtocol);
  EXPECT_EQ(verdict({{1, UINT64_MAX}, {2, 301}}, 300), Code::kProtocol);  // the sum wraps around to 300
  EXPECT_EQ(verdict({{1, uint64_t{1} << 63}, {2, uint64_t{1} << 63}, {3, 300}}, 300), Code::kProtocol);
}

TEST(TcpWire, RandomBytesAreNoHeader) {
  std::mt19937_64 random(1);
  uint8_t bytes[wire::kHeaderBytes];
  for (int i = 0; i < 100'000; ++i) {
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    if (i % 2) wire::store(bytes, wire::kMagic);
    wire::Header header;
    ASSERT_FALSE(wire::decode(bytes, header).ok());
  }
}

}  // namespace
}  // namespace tidewire::transport::tcp
