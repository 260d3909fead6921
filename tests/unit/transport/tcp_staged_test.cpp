// SPDX-License-Identifier: Apache-2.0
//
// The receiver's path for memory that the processor can't touch: how it brackets its touches, whatever sizes a payload
// is left with.
#include <sys/socket.h>

#include <utility>
#include <vector>

#include "memory/test_device.h"
#include "tcp_raw_peer.h"
#include "transport/tcp/frame_receiver.h"

namespace tidewire::transport::tcp {
namespace {

// Takes one write into device memory and notes what it is told.
class Sink final : public FrameReceiver::Client {
 public:
  Sink(RegionTable& regions, uint64_t address, uint64_t length) : length_(length) {
    EXPECT_TRUE(regions.use(address, length, Access::kRemoteWrite, hold_).ok());
  }
  Status on_frame(const wire::Header& header, const uint8_t* body, MemoryCursor** sink) override {
    table_.assign(body, body + header.body_bytes());
    cursor_ = MemoryCursor(PieceView::of_table(table_.data(), header.count), hold_, length_);
    *sink = &cursor_;
    return {};
  }
  Status on_payload_end(const Status& status) override {
    EXPECT_FALSE(touching) << "the end is told outside of touches";
    placed = status;
    ended = true;
    return {};
  }
  bool begin_touch() override {
    EXPECT_FALSE(touching) << "a touch within a touch: a lock would be taken twice";
    touching = true;
    return true;
  }
  void end_touch() override { touching = false; }

  void release() { hold_.release(); }

  bool touching = false, ended = false;
  Status placed;

 private:
  const uint64_t length_;
  RangeHold hold_;
  std::vector<uint8_t> table_;
  MemoryCursor cursor_;
};

TEST(TcpStaged, TouchesNeverNestWhateverIsLeftAfterAFullChunk) {
  for (const uint64_t rest : {uint64_t{1}, uint64_t{1'000}, uint64_t{16'383}, uint64_t{16'384}, uint64_t{100'000}}) {
    const uint64_t length = kStagingBytes + rest;
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    const UniqueFd to(ends[0]), from(ends[1]);
    const int room = 8 << 20;  // all of the frame is there before anything is received
    if (setsockopt(to.get(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0) GTEST_SKIP() << "needs the right to enlarge socket buffers";

    RegionTable regions;
    const uint64_t address = test_device_allocate(length).value();
    ASSERT_TRUE(regions.add(address, length, "*", Permission::kReadWrite).ok());
    wire::Header header;
    header.type = wire::Type::kWrite;
    header.count = 1;
    header.payload_bytes = length;
    std::vector<uint8_t> payload(length);
    for (uint64_t i = 0; i < length; ++i) payload[i] = static_cast<uint8_t>(i * 31 + i / 251);
    const std::vector<uint8_t> head = frame_of(header, table_of({{address, length}}));
    Sink sink(regions, address, length);
    FrameReceiver receiver(sink);
    bool progress = false;
    Status why;
    // The head by itself, so that the payload begins at a receive call of its own.
    ASSERT_EQ(send(to.get(), head.data(), head.size(), 0), static_cast<ssize_t>(head.size()));
    EXPECT_EQ(receiver.run(from.get(), 1 << 24, progress, why), FrameReceiver::Outcome::kDrained) << why.to_string();
    ASSERT_EQ(send(to.get(), payload.data(), payload.size(), MSG_DONTWAIT), static_cast<ssize_t>(payload.size()));
    while (!sink.ended) {
      ASSERT_NE(receiver.run(from.get(), 1 << 24, progress, why), FrameReceiver::Outcome::kEnded) << why.to_string();
      ASSERT_TRUE(std::exchange(progress, false)) << "nothing came";
      EXPECT_FALSE(sink.touching) << "between calls nothing is touched";
    }
    EXPECT_TRUE(sink.placed.ok()) << sink.placed.to_string();
    std::vector<uint8_t> seen(length);
    ASSERT_TRUE(test_device().copy_to_host(seen.data(), address, length).ok());
    EXPECT_EQ(seen, payload) << "rest " << rest;
    sink.release();
    regions.clear();
    EXPECT_TRUE(test_device_free(address).ok());
  }
}

}  // namespace
}  // namespace tidewire::transport::tcp
