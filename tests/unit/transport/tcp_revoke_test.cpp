// SPDX-License-Identifier: Apache-2.0
//
// After the target confirmed a revocation, nothing of the victim is placed any more, whatever its connection still
// holds.
#include <random>

#include "tcp_raw_peer.h"

namespace tidewire::transport::tcp {
namespace {

// Looks at a byte that another thread may be placing.
__attribute__((no_sanitize("thread"))) uint8_t peek(const std::vector<uint8_t>& bytes) {
  return *static_cast<const volatile uint8_t*>(bytes.data());
}

class TcpRevoke : public testing::Test {
 protected:
  static Settings settings() {
    Settings settings;
    settings.io_threads = 2;  // victim and messenger live on different threads
    return settings;
  }
  TcpRevoke() : pair_(settings()), memory_(8 << 20, 0xEE) {
    EXPECT_TRUE(
        pair_.target.regions.add(address_of(memory_.data()), memory_.size(), "cpu:0", Permission::kReadWrite).ok());
  }
  // Over `via`; false when the target closed it instead.
  bool revoke(RawPeer& via, uint64_t victim) {
    wire::Header answer;
    return via.send(simple_frame(wire::Type::kRevoke, victim)) && via.receive_header(answer) &&
           answer.type == wire::Type::kRevoked && answer.id == victim;
  }
  std::vector<uint8_t> snapshot() { return memory_; }

  std::vector<uint8_t> memory_;  // outlives the transports
  TcpPair pair_;
};

TEST_F(TcpRevoke, TheRestOfAHalfReceivedWriteIsNotPlaced) {
  RawPeer via = raw_initiator(pair_, 1), victim = raw_initiator(pair_, 2);
  const std::vector<uint8_t> frame = write_frame(1, address_of(memory_.data()), std::vector<uint8_t>(1 << 20, 0x11));
  victim.send({frame.begin(), frame.begin() + (1 << 19)});
  // Its beginning is being placed.
  const auto stop = std::chrono::steady_clock::now() + kHardStop;
  while (peek(memory_) != 0x11 && std::chrono::steady_clock::now() < stop) std::this_thread::yield();
  ASSERT_EQ(peek(memory_), 0x11);
  ASSERT_TRUE(revoke(via, 2));
  const std::vector<uint8_t> before = snapshot();
  victim.send(frame, 1 << 19);
  EXPECT_TRUE(victim.wait_closed());
  EXPECT_TRUE(memory_ == before);
}

TEST_F(TcpRevoke, FramesUnreadInTheSocketAreNotPlaced) {
  std::mt19937_64 random(3);
  for (uint64_t round = 0; round < 100; ++round) {
    RawPeer via = raw_initiator(pair_, 10 + 2 * round), victim = raw_initiator(pair_, 11 + 2 * round);
    std::atomic<bool> done{false};
    std::thread writer([&] {
      for (uint64_t id = 1; !done; ++id) {
        const size_t length = id % 3 == 0 ? 500'000 : 1 + id % 5'000;
        if (!victim.send(
                write_frame(id, address_of(memory_.data()) + id % 1'000'000, std::vector<uint8_t>(length, id & 0xFF))))
          break;
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2'000));
    ASSERT_TRUE(revoke(via, 11 + 2 * round));
    const std::vector<uint8_t> before = snapshot();
    // The writer goes on until the target's end of its connection is gone; nothing of it may show.
    EXPECT_TRUE(victim.wait_closed());
    done = true;
    writer.join();
    ASSERT_TRUE(memory_ == before) << "round " << round;
  }
}

TEST_F(TcpRevoke, AConnectionThatArrivesLaterIsRefused) {
  RawPeer via = raw_initiator(pair_, 1);
  ASSERT_TRUE(revoke(via, 2));
  const std::vector<uint8_t> before = snapshot();
  auto [client, server] = connected_pair();
  RawPeer victim(std::move(client));
  victim.send(write_frame(1, address_of(memory_.data()), std::vector<uint8_t>(1'000, 0x11)));
  pair_.target.transport->accept(std::move(server), {}, "raw", 2, 0);
  EXPECT_TRUE(victim.wait_closed());
  EXPECT_TRUE(memory_ == before);
}

TEST_F(TcpRevoke, AnotherInitiatorsLaneIsNotTouched) {
  RawPeer via = raw_initiator(pair_, 1, InstanceId{1}), other = raw_initiator(pair_, 2, InstanceId{2});
  ASSERT_TRUE(revoke(via, 2)) << "nothing to cut: confirmed";
  ASSERT_TRUE(other.send(write_frame(9, address_of(memory_.data()), std::vector<uint8_t>(1'000, 0x11))));
  wire::Header ack;
  ASSERT_TRUE(other.receive_header(ack));
  EXPECT_EQ(ack.code, 0u);
  EXPECT_EQ(memory_[999], 0x11);
}

TEST_F(TcpRevoke, ALaneCantRevokeItself) {
  RawPeer via = raw_initiator(pair_, 1);
  EXPECT_FALSE(revoke(via, 1));
}

TEST_F(TcpRevoke, TheTransportReportsTheConfirmation) {
  const ChannelId via = pair_.open(), victim = pair_.open();
  pair_.initiator.transport->revoke(via, victim);
  EXPECT_TRUE(pair_.initiator.events.wait([&] { return pair_.initiator.events.revoked[victim] == 1; }));
  EXPECT_FALSE(pair_.initiator.events.wait_down(victim).ok());
}

}  // namespace
}  // namespace tidewire::transport::tcp
