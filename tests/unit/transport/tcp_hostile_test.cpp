// SPDX-License-Identifier: Apache-2.0
//
// Foreign bytes: whatever a peer sends, the process lives, nothing outside the permitted is touched, and other lanes go
// on.
#include <random>

#include "base/log.h"
#include "tcp_raw_peer.h"

namespace tidewire::transport::tcp {
namespace {

class TcpHostile : public testing::Test {
 protected:
  TcpHostile() : memory_(1 << 20, 0xEE), local_(pattern(1 << 20, 1)) {
    log::set_level(log::Level::kOff);  // thousands of cut lanes
    EXPECT_TRUE(
        pair_.target.regions.add(address_of(memory_.data()), memory_.size(), "cpu:0", Permission::kReadWrite).ok());
    EXPECT_TRUE(pair_.initiator.regions.add(address_of(local_.data()), local_.size(), "cpu:0", Permission::kNone).ok());
    pristine_ = memory_;
  }
  ~TcpHostile() override { log::set_level(log::Level::kWarn); }
  void expect_healthy() {
    const ChannelId good = pair_.open();
    EXPECT_TRUE(
        pair_.transfer(good, Opcode::kWrite, {{address_of(local_.data()), address_of(memory_.data()), local_.size()}})
            .ok());
    EXPECT_TRUE(memory_ == local_);
  }
  // A lane whose target is played by the test.
  RawPeer raw_target(ChannelId& channel) {
    UniqueFd server;
    pair_.intercept = [&](uint64_t, UniqueFd fd) { server = std::move(fd); };
    channel = pair_.open();
    pair_.intercept = nullptr;
    return RawPeer(std::move(server));
  }

  std::vector<uint8_t> memory_, local_, pristine_;  // outlive the transports
  TcpPair pair_;
  uint64_t next_ = 1'000;
};

TEST_F(TcpHostile, FlippedBitsOfHeadersAndTablesWriteNothing) {
  std::vector<uint8_t> frame = write_frame(1, address_of(memory_.data()), std::vector<uint8_t>(256, 0x11));
  for (size_t bit = 0; bit < (wire::kHeaderBytes + wire::kPieceBytes) * 8; ++bit) {
    RawPeer peer = raw_initiator(pair_, next_++);
    frame[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    peer.send(frame);
    frame[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    ASSERT_TRUE(peer.wait_closed()) << bit;
    ASSERT_TRUE(memory_ == pristine_) << bit;
  }
  expect_healthy();
}

TEST_F(TcpHostile, RandomBytesCostTheConnectionOnly) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 300; ++round) {
    RawPeer peer = raw_initiator(pair_, next_++);
    std::vector<uint8_t> bytes(40 + random() % 5'000);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    if (round % 2) wire::store(bytes.data(), wire::kMagic);
    peer.send(bytes);
    ASSERT_TRUE(peer.wait_closed());
  }
  EXPECT_TRUE(memory_ == pristine_);
  expect_healthy();
}

TEST_F(TcpHostile, FramesCutAnywhereLeaveNothingBehind) {
  const std::vector<uint8_t> frame = write_frame(1, address_of(memory_.data()), std::vector<uint8_t>(64, 0x11));
  for (size_t length = 0; length < frame.size(); ++length) {
    RawPeer peer = raw_initiator(pair_, next_++);
    peer.send({frame.begin(), frame.begin() + static_cast<ptrdiff_t>(length)});
    peer.close();
  }
  // No region may stay in use by a frame that never ended.
  EXPECT_TRUE(pair_.target.regions.remove(address_of(memory_.data()), 10 * kSecond).ok());
  EXPECT_TRUE(std::all_of(memory_.begin() + 64, memory_.end(), [](uint8_t byte) { return byte == 0xEE; }));
  EXPECT_TRUE(
      pair_.target.regions.add(address_of(memory_.data()), memory_.size(), "cpu:0", Permission::kReadWrite).ok());
  expect_healthy();
}

TEST_F(TcpHostile, FramesByteByByteAreUnderstood) {
  RawPeer peer = raw_initiator(pair_, next_++);
  const std::vector<uint8_t> frame = write_frame(77, address_of(memory_.data()) + 5, pattern(200, 9));
  for (const uint8_t byte : frame) ASSERT_TRUE(peer.send({byte}));
  wire::Header ack;
  ASSERT_TRUE(peer.receive_header(ack));
  EXPECT_EQ(ack.type, wire::Type::kAck);
  EXPECT_EQ(ack.id, 77u);
  EXPECT_EQ(ack.code, 0u);
  const std::vector<uint8_t> expected = pattern(200, 9);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), memory_.begin() + 5));
}

TEST_F(TcpHostile, TypesOfTheOtherDirectionCutTheLane) {
  for (const wire::Type type : {wire::Type::kAck, wire::Type::kRevoked}) {
    RawPeer peer = raw_initiator(pair_, next_++);
    peer.send(simple_frame(type, 1));
    EXPECT_TRUE(peer.wait_closed());
  }
  expect_healthy();
}

TEST_F(TcpHostile, ReadsWithoutReadingTheAnswersAreBounded) {
  // Half a million reads of a megabyte: the target must stop taking them, not queue them.
  RawPeer peer = raw_initiator(pair_, next_++);
  wire::Header header;
  header.type = wire::Type::kRead;
  header.count = 1;
  header.payload_bytes = memory_.size();
  const std::vector<uint8_t> frame = frame_of(header, table_of({{address_of(memory_.data()), memory_.size()}}));
  fcntl(peer.fd(), F_SETFL, O_NONBLOCK);
  size_t taken = 0;
  for (; taken < 500'000; ++taken) {
    if (::send(peer.fd(), frame.data(), frame.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(frame.size())) {
      pollfd ready{peer.fd(), POLLOUT, 0};
      if (poll(&ready, 1, 300) == 0) break;
      if (errno != EAGAIN) break;
      --taken;
    }
  }
  EXPECT_LT(taken, 300'000u);
  expect_healthy();
}

TEST_F(TcpHostile, ATargetThatAnswersNonsenseLosesTheLaneAndTouchesNothing) {
  const std::vector<uint8_t> before = local_;
  const auto ack = [](uint64_t id) { return simple_frame(wire::Type::kAck, id); };
  const auto data = [](uint64_t id, size_t size) {
    wire::Header header;
    header.type = wire::Type::kData;
    header.id = id;
    header.payload_bytes = size;
    return frame_of(header, {}, std::vector<uint8_t>(size, 0x33));
  };
  const std::vector<std::function<std::vector<uint8_t>(uint64_t)>> answers = {
      [&](uint64_t id) { return ack(id + 1); },          // of a slice that does not exist
      [&](uint64_t id) { return ack(id); },              // a read completed without its data
      [&](uint64_t id) { return data(id, 999); },        // fewer bytes
      [&](uint64_t id) { return data(id, 1'001); },      // more bytes
      [&](uint64_t id) { return data(id + 7, 1'000); },  // for another slice
      [&](uint64_t id) { return write_frame(id, address_of(local_.data()), std::vector<uint8_t>(100, 0x44)); },
      [&](uint64_t) { return simple_frame(wire::Type::kPing, 0); },
      [&](uint64_t) { return pattern(100, 3); },
  };
  for (size_t i = 0; i < answers.size(); ++i) {
    ChannelId channel;
    RawPeer target = raw_target(channel);
    SlicePtr slice = pair_.slice(Opcode::kRead, {{address_of(local_.data()), address_of(memory_.data()), 1'000}});
    const uint64_t id = slice->id;
    pair_.initiator.transport->post(channel, std::move(slice));
    target.send(answers[i](id));
    EXPECT_EQ(pair_.initiator.events.wait_down(channel).code(), Code::kProtocol) << i;
    EXPECT_TRUE(local_ == before) << i;
    std::lock_guard lock(pair_.initiator.events.mutex);
    EXPECT_EQ(pair_.initiator.events.done.count(id), 0u) << i;
  }
  expect_healthy();
}

TEST_F(TcpHostile, UnknownCodesAndTextsOfTheTargetArriveAsErrors) {
  ChannelId channel;
  RawPeer target = raw_target(channel);
  SlicePtr slice = pair_.slice(Opcode::kWrite, {{address_of(local_.data()), 1, 1'000}});
  const uint64_t id = slice->id;
  pair_.initiator.transport->post(channel, std::move(slice));
  wire::Header header;
  header.type = wire::Type::kAck;
  header.id = id;
  header.code = 4'000'000'000u;
  header.count = 5;
  target.send(frame_of(header, {'h', 'e', 0, 'l', 'o'}));
  const Status status = pair_.initiator.events.wait_done(id);
  EXPECT_EQ(status.code(), Code::kProtocol);
}

}  // namespace
}  // namespace tidewire::transport::tcp
