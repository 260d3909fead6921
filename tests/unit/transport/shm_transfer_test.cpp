// SPDX-License-Identifier: Apache-2.0
//
// Bytes moved between two transports of one process: sizes, borders, kinds of memory, permissions, the life of a
// channel.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "memory/test_device.h"
#include "shm_support.h"

namespace tidewire::transport::shm {
namespace {

using ::testing::HasSubstr;

enum class Kind { kPool, kOwn };

class ShmTransfer : public ::testing::TestWithParam<Kind> {
 protected:
  uint64_t memory(Host& host, uint64_t length, Permission permission = Permission::kReadWrite) {
    return GetParam() == Kind::kPool ? host.pool_memory(length, permission) : host.own_memory(length, permission);
  }
  Host a_, b_;
};

INSTANTIATE_TEST_SUITE_P(Memory, ShmTransfer, ::testing::Values(Kind::kPool, Kind::kOwn),
                         [](const auto& info) { return info.param == Kind::kPool ? "Pool" : "Own"; });

TEST_P(ShmTransfer, EverySizeIsExactAndNothingBesideIsTouched) {
  constexpr uint64_t kSpace = 4 << 20, kCanary = 64;
  const uint64_t local = memory(a_, kSpace), remote = memory(b_, kSpace);
  fill_pattern(local, kSpace, 1);
  const ChannelId channel = a_.connect(b_);
  std::vector<uint64_t> sizes{1,       2,      3,      7,      63,      64,      65,
                              511,     512,    513,    4095,   4096,    4097,    65535,
                              65536,   65537,  262143, 262144, 262145,  1048575, 1048576,
                              1048577, 524288, 786431, 786433, 2097153, 3000000, kSpace - 2 * kCanary - 16};
  for (uint64_t size : sizes) {
    for (uint64_t shift : {0, 1, 7}) {
      std::memset(bytes_at(remote), 0xEE, kSpace);
      const uint64_t from = local + 8 - shift, to = remote + kCanary + shift;
      ASSERT_TRUE(a_.write(channel, from, to, size).ok());
      ASSERT_EQ(std::memcmp(bytes_at(from), bytes_at(to), size), 0) << "write of " << size << " shifted by " << shift;
      for (uint64_t i = 1; i <= kCanary; ++i) {
        ASSERT_EQ(bytes_at(to)[-static_cast<int64_t>(i)], '\xEE');
        ASSERT_EQ(bytes_at(to + size)[i - 1], '\xEE');
      }
    }
  }
  for (uint64_t size : sizes) {
    const uint64_t back = local + kCanary + 1;
    fill_pattern(remote, size + 3, static_cast<unsigned>(size));
    std::memset(bytes_at(local), 0xEE, kSpace);
    ASSERT_TRUE(a_.read(channel, back, remote + 3, size).ok());
    ASSERT_EQ(std::memcmp(bytes_at(back), bytes_at(remote + 3), size), 0) << "read of " << size;
    ASSERT_EQ(bytes_at(back)[-1], '\xEE');
    ASSERT_EQ(bytes_at(back + size)[0], '\xEE');
  }
}

TEST_P(ShmTransfer, ManyPiecesInAnyOrderLand) {
  constexpr uint64_t kPieces = 5000, kSize = 256;
  const uint64_t local = memory(a_, kPieces * kSize), remote = memory(b_, kPieces * kSize);
  fill_pattern(local, kPieces * kSize, 3);
  std::vector<uint64_t> order(kPieces);
  for (uint64_t i = 0; i < kPieces; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(5));
  std::vector<Piece> pieces;
  for (uint64_t i = 0; i < kPieces; ++i) pieces.push_back({local + i * kSize, remote + order[i] * kSize, kSize});
  const ChannelId channel = a_.connect(b_);
  ASSERT_TRUE(a_.transfer(channel, Opcode::kWrite, pieces).ok());
  for (uint64_t i = 0; i < kPieces; ++i) {
    ASSERT_EQ(std::memcmp(bytes_at(local + i * kSize), bytes_at(remote + order[i] * kSize), kSize), 0) << i;
  }
}

TEST_P(ShmTransfer, PiecesOverManyRegionsLand) {
  constexpr uint64_t kRegions = 300, kSize = 5000;
  std::vector<Piece> pieces;
  for (uint64_t i = 0; i < kRegions; ++i) {
    pieces.push_back({memory(a_, kSize), memory(b_, kSize), kSize});
    fill_pattern(pieces.back().local, kSize, static_cast<unsigned>(i));
  }
  const ChannelId channel = a_.connect(b_);
  ASSERT_TRUE(a_.transfer(channel, Opcode::kWrite, pieces).ok());
  for (const Piece& piece : pieces) ASSERT_EQ(std::memcmp(bytes_at(piece.local), bytes_at(piece.remote), kSize), 0);
}

TEST_P(ShmTransfer, PermissionsAreTheTargets) {
  const uint64_t local = memory(a_, 4096);
  const uint64_t readable = memory(b_, 4096, Permission::kRead), closed = memory(b_, 4096, Permission::kNone);
  fill_pattern(readable, 4096, 1);
  const ChannelId channel = a_.connect(b_);
  EXPECT_TRUE(a_.read(channel, local, readable, 4096).ok());
  EXPECT_EQ(std::memcmp(bytes_at(local), bytes_at(readable), 4096), 0);
  std::memset(bytes_at(local), 0, 4096);
  const Status denied = a_.write(channel, local, readable, 100);
  EXPECT_EQ(denied.code(), Code::kPermissionDenied) << denied.to_string();
  EXPECT_THAT(denied.message(), HasSubstr(fmt::format("{:#x}", readable)));
  EXPECT_NE(bytes_at(readable)[0], 0);
  EXPECT_EQ(a_.read(channel, local, closed, 100).code(), Code::kPermissionDenied);
  EXPECT_EQ(a_.write(channel, local, closed, 100).code(), Code::kPermissionDenied);
  EXPECT_TRUE(a_.read(channel, local, readable, 4096).ok()) << "the channel stays usable";
}

TEST_P(ShmTransfer, UnregisteredRangesAreRefusedAndTheRestGoesOn) {
  const uint64_t local = memory(a_, 8192), remote = memory(b_, 4096);
  const ChannelId channel = a_.connect(b_);
  const Status status = a_.write(channel, local, 0x10000, 100);
  EXPECT_EQ(status.code(), Code::kNotRegistered) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("0x10000"));
  EXPECT_EQ(a_.write(channel, local, remote + 4000, 200).code(), Code::kNotRegistered) << "past the end of the region";
  EXPECT_EQ(a_.write(channel, local, UINT64_MAX - 10, 8).code(), Code::kNotRegistered);
  EXPECT_TRUE(a_.write(channel, local, remote, 4096).ok());
}

TEST_P(ShmTransfer, RegionsThatComeLaterAreFound) {
  const uint64_t local = memory(a_, 4096), first = memory(b_, 4096);
  const ChannelId channel = a_.connect(b_);
  ASSERT_TRUE(a_.write(channel, local, first, 100).ok());
  const uint64_t second = memory(b_, 4096);
  EXPECT_TRUE(a_.write(channel, local, second, 100).ok());
  ASSERT_TRUE(b_.regions.remove(first).ok());
  std::memset(bytes_at(first), 0x55, 100);
  std::memset(bytes_at(local), 0x66, 100);
  EXPECT_EQ(a_.write(channel, local, first, 100).code(), Code::kNotRegistered);
  EXPECT_EQ(bytes_at(first)[0], 0x55);
}

TEST_P(ShmTransfer, AnEngineReachesItself) {
  const uint64_t from = memory(a_, 1 << 20), to = memory(a_, 1 << 20);
  fill_pattern(from, 1 << 20, 9);
  ASSERT_TRUE(a_.transport.reaches(a_.record()));
  const ChannelId channel = a_.connect(a_);
  ASSERT_TRUE(a_.write(channel, from, to, 1 << 20).ok());
  EXPECT_EQ(std::memcmp(bytes_at(from), bytes_at(to), 1 << 20), 0);
}

TEST_P(ShmTransfer, LocalDeviceMemoryIsCopiedThroughItsOwnFunctions) {
  constexpr uint64_t kSize = 300'000;
  const uint64_t device = test_device_allocate(kSize).value();
  ASSERT_TRUE(a_.regions.add(device, kSize, "*", Permission::kReadWrite).ok());
  const uint64_t remote = memory(b_, kSize);
  std::vector<char> in(kSize), out(kSize);
  fill_pattern(reinterpret_cast<uint64_t>(in.data()), kSize, 4);
  ASSERT_TRUE(test_device().copy_from_host(device, in.data(), kSize).ok());
  const ChannelId channel = a_.connect(b_);
  ASSERT_TRUE(a_.write(channel, device, remote, kSize).ok());
  EXPECT_EQ(std::memcmp(in.data(), bytes_at(remote), kSize), 0);
  fill_pattern(remote, kSize, 5);
  ASSERT_TRUE(a_.read(channel, device + 1, remote + 1, kSize - 1).ok());
  ASSERT_TRUE(test_device().copy_to_host(out.data(), device, kSize).ok());
  EXPECT_EQ(out[0], in[0]);
  EXPECT_EQ(std::memcmp(out.data() + 1, bytes_at(remote + 1), kSize - 1), 0);
  ASSERT_TRUE(a_.regions.remove(device).ok());
  EXPECT_TRUE(test_device_free(device).ok());
}

TEST_P(ShmTransfer, ManyThreadsPostAndDrive) {
  constexpr uint64_t kThreads = 4, kRounds = 40, kSize = 400'000;
  const uint64_t local = memory(a_, kThreads * kSize), remote = memory(b_, kThreads * kSize);
  const ChannelId channel = a_.connect(b_);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const uint64_t from = local + t * kSize, to = remote + t * kSize;
      for (uint64_t round = 0; round < kRounds; ++round) {
        fill_pattern(from, kSize, static_cast<unsigned>(t * 1000 + round));
        const uint64_t size = round % 2 == 0 ? kSize : 1000;
        ASSERT_TRUE(a_.write(channel, from, to, size).ok());
        ASSERT_EQ(std::memcmp(bytes_at(from), bytes_at(to), size), 0);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

class ShmChannel : public ::testing::Test {
 protected:
  Host a_, b_;
};

TEST_F(ShmChannel, DeviceMemoryAtTheTargetIsLeftToOtherTransports) {
  const uint64_t local = a_.pool_memory(4096);
  const uint64_t device = test_device_allocate(4096).value();
  ASSERT_TRUE(b_.regions.add(device, 4096, "*", Permission::kReadWrite).ok());
  const ChannelId channel = a_.connect(b_);
  EXPECT_EQ(a_.write(channel, local, device, 4096).code(), Code::kUnsupported);
  ASSERT_TRUE(b_.regions.remove(device).ok());
  EXPECT_TRUE(test_device_free(device).ok());
}

TEST_F(ShmChannel, AdjacentRegionsAreCrossed) {
  const uint64_t local = a_.pool_memory(1 << 20);
  auto allocation = b_.pool.allocate(1 << 20, "*").value();
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(b_.regions
                    .add(allocation.address + i * 262144, 262144, "*", Permission::kReadWrite,
                         {allocation.backing.memfd, i * 262144})
                    .ok());
  }
  fill_pattern(local, 1 << 20, 8);
  const ChannelId channel = a_.connect(b_);
  ASSERT_TRUE(a_.write(channel, local + 5, allocation.address + 5, (1 << 20) - 10).ok());
  EXPECT_EQ(std::memcmp(bytes_at(local + 5), bytes_at(allocation.address + 5), (1 << 20) - 10), 0);
  ASSERT_TRUE(a_.write(channel, local + 7, allocation.address + 262144 - 100, 200).ok());
  EXPECT_EQ(std::memcmp(bytes_at(local + 7), bytes_at(allocation.address + 262144 - 100), 200), 0);
  ASSERT_TRUE(b_.regions.remove(allocation.address + 262144).ok());
  EXPECT_EQ(a_.write(channel, local, allocation.address, 1 << 20).code(), Code::kNotRegistered) << "a hole";
  b_.regions.clear();
}

TEST_F(ShmChannel, MemoryOfBothKindsMixesInOneSlice) {
  const uint64_t local_pool = a_.pool_memory(100'000), local_own = a_.own_memory(100'000);
  const uint64_t remote_pool = b_.pool_memory(100'000), remote_own = b_.own_memory(100'000);
  fill_pattern(local_pool, 100'000, 1);
  fill_pattern(local_own, 100'000, 2);
  std::vector<Piece> pieces;
  for (uint64_t i = 0; i < 100; ++i) {
    pieces.push_back(
        {(i % 3 ? local_pool : local_own) + i * 1000, (i % 2 ? remote_pool : remote_own) + i * 1000, 1000});
  }
  const ChannelId channel = a_.connect(b_);
  ASSERT_TRUE(a_.transfer(channel, Opcode::kWrite, pieces).ok());
  for (const Piece& piece : pieces) ASSERT_EQ(std::memcmp(bytes_at(piece.local), bytes_at(piece.remote), 1000), 0);
}

TEST_F(ShmChannel, RegisteredMemoryThatIsUnmappedIsAnError) {
  const uint64_t local = a_.pool_memory(4096);
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto remote = reinterpret_cast<uint64_t>(page);
  ASSERT_TRUE(b_.regions.add(remote, 4096, "*", Permission::kReadWrite).ok());
  const ChannelId channel = a_.connect(b_);
  ASSERT_TRUE(a_.write(channel, local, remote, 4096).ok());
  munmap(page, 4096);
  const Status status = a_.write(channel, local, remote, 4096);
  EXPECT_EQ(status.code(), Code::kNotRegistered) << status.to_string();
}

TEST_F(ShmChannel, AnEmptySliceIsDone) {
  const ChannelId channel = a_.connect(b_);
  EXPECT_TRUE(a_.transfer(channel, Opcode::kWrite, {}).ok());
}

TEST_F(ShmChannel, PostingOnAChannelThatIsNotUpHandsTheSliceBack) {
  const uint64_t local = a_.pool_memory(4096);
  EXPECT_EQ(a_.write(77, local, local, 10).code(), Code::kUnreachable);
  const ChannelId channel = a_.connect(b_);
  a_.transport.close(channel, Status(Code::kCanceled, "test"));
  EXPECT_EQ(a_.events.wait_down(channel).code(), Code::kCanceled);
  EXPECT_EQ(a_.write(channel, local, local, 10).code(), Code::kUnreachable);
}

TEST_F(ShmChannel, NobodyListeningIsKnownAtOnce) {
  PeerRecord record = b_.record();
  record.same_host_socket = "tidewire-shm-nobody";
  a_.transport.open(5, record, 0, 0, monotonic_now() + 30 * kSecond);
  const Status status = a_.events.wait_down(5);
  EXPECT_EQ(status.code(), Code::kUnreachable) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("tidewire-shm-nobody"));
}

TEST_F(ShmChannel, AnotherInstanceIsToldApart) {
  PeerRecord record = b_.record();
  record.instance[3] ^= 1;
  a_.transport.open(5, record, 0, 0, monotonic_now() + 30 * kSecond);
  EXPECT_EQ(a_.events.wait_down(5).code(), Code::kPeerGone);
  EXPECT_EQ(a_.events.seen(5), b_.instance);
}

TEST_F(ShmChannel, ReachesOnlyTheSameHostAndOnlyWhenAllowed) {
  EXPECT_TRUE(a_.transport.reaches(b_.record()));
  PeerRecord record = b_.record();
  record.host_id = "another";
  EXPECT_FALSE(a_.transport.reaches(record));
  record = b_.record();
  record.same_host_socket.clear();
  EXPECT_FALSE(a_.transport.reaches(record));
  Settings off;
  off.same_host = false;
  Host c("", off);
  EXPECT_FALSE(c.transport.reaches(b_.record()));
  EXPECT_EQ(c.transport.socket_name(), "");
  EXPECT_TRUE(c.transport.rails().empty());
  c.transport.open(1, b_.record(), 0, 0, monotonic_now() + kSecond);
  EXPECT_EQ(c.events.wait_down(1).code(), Code::kUnsupported);
}

TEST_F(ShmChannel, SecretsMustAgree) {
  Host with("a secret of sixteen bytes"), same("a secret of sixteen bytes"), other("another secret, as long");
  const uint64_t local = with.pool_memory(4096), remote = same.pool_memory(4096);
  std::memset(bytes_at(local), 1, 4096);
  const ChannelId channel = with.connect(same);
  EXPECT_TRUE(with.write(channel, local, remote, 4096).ok());
  ChannelId next = 100;
  for (auto [from, to] : {std::pair{&with, &other}, {&other, &with}, {&a_, &with}, {&with, &a_}}) {
    from->transport.open(++next, to->record(), 0, 0, monotonic_now() + 30 * kSecond);
    const Status status = from->events.wait_down(next);
    EXPECT_EQ(status.code(), Code::kUnauthenticated) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("secret"));
  }
}

TEST_F(ShmChannel, AStoppedTargetIsHeardOfAtOnceAndTakesNobody) {
  const uint64_t local = a_.pool_memory(4096), remote = b_.pool_memory(4096);
  const ChannelId channel = a_.connect(b_);
  ASSERT_TRUE(a_.write(channel, local, remote, 10).ok());
  b_.transport.stop();
  EXPECT_EQ(a_.events.wait_down(channel).code(), Code::kPeerGone);
  a_.transport.open(20, b_.record(), 0, 0, monotonic_now() + 30 * kSecond);
  EXPECT_EQ(a_.events.wait_down(20).code(), Code::kUnreachable);
  b_.transport.open(21, a_.record(), 0, 0, monotonic_now() + kSecond);
  b_.transport.stop();
}

TEST_F(ShmChannel, StopTakesItsOwnChannelsDown) {
  const ChannelId channel = a_.connect(b_);
  a_.transport.stop();
  EXPECT_EQ(a_.events.wait_down(channel).code(), Code::kClosed);
}

TEST_F(ShmChannel, HandlersMayPostFromWithinEvents) {
  // Each slice posts the next from on_slice_done; without a limit the stack would end.
  class Chain : public Events {
   public:
    void on_channel_up(ChannelId) override { up.store(true); }
    void on_channel_down(ChannelId, const Status&, const InstanceId&) override {}
    void on_slice_done(ChannelId channel, const SlicePtr&, const Status& status) override {
      EXPECT_TRUE(status.ok());
      if (++count < 20'000) transport->post(channel, make());
    }
    void on_revoked(ChannelId) override {}
    std::function<SlicePtr()> make;
    ShmTransport* transport = nullptr;
    std::atomic<bool> up{false};
    std::atomic<int> count{0};
  } chain;
  const uint64_t remote = b_.pool_memory(4096);
  RegionTable regions;
  std::vector<char> buffer(4096);
  const auto local = reinterpret_cast<uint64_t>(buffer.data());
  ASSERT_TRUE(regions.add(local, 4096, "*", Permission::kNone).ok());
  ShmTransport transport(regions, LocalIdentity{make_instance_id(), "chain", ""}, Settings{}, chain);
  chain.transport = &transport;
  chain.make = [&] {
    auto slice = std::make_shared<Slice>();
    slice->pieces = {{local, remote, 64}};
    slice->bytes = 64;
    EXPECT_TRUE(regions.use(local, 64, Access::kLocal, slice->hold).ok());
    return slice;
  };
  transport.open(1, b_.record(), 0, 0, monotonic_now() + 30 * kSecond);
  const Nanos patience = monotonic_now() + 60 * kSecond;
  while (!chain.up && monotonic_now() < patience) std::this_thread::yield();
  transport.post(1, chain.make());
  while (chain.count < 20'000 && monotonic_now() < patience) std::this_thread::yield();
  EXPECT_EQ(chain.count, 20'000);
  transport.stop();
}

TEST_F(ShmChannel, RevokeIsConfirmed) {
  const ChannelId channel = a_.connect(b_);
  a_.transport.revoke(channel, 99);
  EXPECT_TRUE(a_.events.wait_revoked(99));
}

TEST_F(ShmChannel, CloseWithWorkInFlightHandsEverythingBackAndTouchesNothingAfter) {
  constexpr uint64_t kSize = 32 << 20;
  const uint64_t local = a_.pool_memory(kSize), remote = b_.pool_memory(kSize);
  for (int round = 0; round < 20; ++round) {
    const ChannelId channel = a_.connect(b_);
    std::vector<uint64_t> ids;
    for (uint64_t i = 0; i < 32; ++i) {
      SlicePtr slice = a_.make_slice(Opcode::kRead, {{local + (i << 20), remote + (i << 20), 1 << 20}});
      ids.push_back(slice->id);
      a_.transport.post(channel, std::move(slice));
    }
    if (round % 2 == 0) a_.transport.drive(channel);
    a_.transport.close(channel, Status(Code::kCanceled, "test"));
    EXPECT_EQ(a_.events.wait_down(channel).code(), Code::kCanceled);
    std::memset(bytes_at(remote), round + 1, kSize);
    std::memset(bytes_at(local), 0, kSize);
    const size_t done =
        static_cast<size_t>(std::count_if(ids.begin(), ids.end(), [&](uint64_t id) { return a_.events.is_done(id); }));
    EXPECT_EQ(a_.transport.drive(channel), false);
    for (uint64_t i = 0; i < kSize; i += 4096) ASSERT_EQ(bytes_at(local)[i], 0) << "touched after on_channel_down";
    EXPECT_EQ(done, static_cast<size_t>(
                        std::count_if(ids.begin(), ids.end(), [&](uint64_t id) { return a_.events.is_done(id); })));
  }
}

TEST_F(ShmChannel, DescribesItself) {
  const ChannelId channel = a_.connect(b_);
  auto json = nlohmann::json::parse(a_.transport.describe());
  EXPECT_EQ(json["channels"][0]["channel"], channel);
  EXPECT_EQ(json["channels"][0]["phase"], "up");
}

TEST_F(ShmChannel, NothingIsLeftBehind) {
  {
    Host warm_up_a, warm_up_b;
    warm_up_a.connect(warm_up_b);
  }
  const size_t descriptors = open_descriptors(), threads = running_threads();
  for (int round = 0; round < 50; ++round) {
    Host c, d;
    const uint64_t local = c.pool_memory(500'000), remote = d.pool_memory(500'000);
    const ChannelId channel = c.connect(d);
    ASSERT_TRUE(c.write(channel, local, remote, 500'000).ok());
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(running_threads(), threads);
}

}  // namespace
}  // namespace tidewire::transport::shm
