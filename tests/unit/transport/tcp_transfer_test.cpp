// SPDX-License-Identifier: Apache-2.0
//
// What a healthy lane promises: exact bytes for any size, shape and kind of memory, nothing beside them, refusals that
// write nothing.
#include <random>

#include "tcp_pair.h"

namespace tidewire::transport::tcp {
namespace {

constexpr size_t kCanary = 64;

class TcpTransfer : public testing::Test {
 protected:
  // Registered buffers on both sides with canaries around what a test uses.
  void SetUp() override { channel_ = pair_.open(); }
  void allocate(size_t size, Permission permission = Permission::kReadWrite) {
    local_ = pattern(size + 2 * kCanary, 1);
    remote_.assign(size + 2 * kCanary, 0xEE);
    ASSERT_TRUE(pair_.initiator.regions.add(address_of(local_.data()), local_.size(), "cpu:0", Permission::kNone).ok());
    ASSERT_TRUE(pair_.target.regions.add(address_of(remote_.data()), remote_.size(), "cpu:0", permission).ok());
  }
  void free() {
    ASSERT_TRUE(pair_.initiator.regions.remove(address_of(local_.data())).ok());
    ASSERT_TRUE(pair_.target.regions.remove(address_of(remote_.data())).ok());
  }
  Piece piece(size_t local_offset, size_t remote_offset, size_t length) {
    return {address_of(local_.data()) + local_offset, address_of(remote_.data()) + remote_offset, length};
  }

  std::vector<uint8_t> local_, remote_;  // outlive the transports, whose threads may be on their way out of a send
  TcpPair pair_;
  ChannelId channel_ = 0;
};

TEST_F(TcpTransfer, EverySizeArrivesExactlyAndNothingBesideIt) {
  allocate(9 << 20);
  std::vector<size_t> sizes;
  for (size_t size = 1; size <= 130; ++size) sizes.push_back(size);
  for (const size_t middle :
       {511, 512, 1024, 2048, 4096, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 2 << 20, 8 << 20}) {
    for (const int delta : {-1, 0, 1}) sizes.push_back(middle + delta);
  }
  for (const size_t size : sizes) {
    const size_t shift = size % 8;  // misaligned on both sides, differently
    const uint8_t *from = local_.data() + kCanary + shift, *to = remote_.data() + kCanary + 3;
    fill_bytes(remote_, 0xEE);
    ASSERT_TRUE(pair_.transfer(channel_, Opcode::kWrite, {piece(kCanary + shift, kCanary + 3, size)}).ok());
    ASSERT_EQ(std::memcmp(from, to, size), 0) << "write of " << size;
    ASSERT_TRUE(all_are(remote_.data(), kCanary + 3, 0xEE)) << size;
    ASSERT_TRUE(all_are(to + size, remote_.size() - kCanary - 3 - size, 0xEE)) << size;
  }
  fill_pattern(remote_.data(), remote_.size(), 7);
  for (const size_t size : sizes) {
    const size_t shift = size % 8;
    const uint8_t *from = remote_.data() + kCanary + 5, *to = local_.data() + kCanary + shift;
    fill_bytes(local_, 0xDD);
    ASSERT_TRUE(pair_.transfer(channel_, Opcode::kRead, {piece(kCanary + shift, kCanary + 5, size)}).ok());
    ASSERT_EQ(std::memcmp(from, to, size), 0) << "read of " << size;
    ASSERT_TRUE(all_are(local_.data(), kCanary + shift, 0xDD)) << size;
    ASSERT_TRUE(all_are(to + size, local_.size() - kCanary - shift - size, 0xDD)) << size;
  }
}

TEST_F(TcpTransfer, ScatteredPiecesOfMixedSizes) {
  allocate(12 << 20);
  std::mt19937_64 random(11);
  for (const size_t limit : {32, 600, 5000, 30'000, 180'000}) {
    for (const Opcode opcode : {Opcode::kWrite, Opcode::kRead}) {
      fill_bytes(remote_, 0xEE);
      fill_pattern(local_.data(), local_.size(), limit);
      if (opcode == Opcode::kRead) fill_pattern(remote_.data(), remote_.size(), limit + 1);
      std::vector<uint8_t> expected_remote = remote_, expected_local = local_;
      std::vector<Piece> pieces;
      size_t at = kCanary;
      for (int i = 0; i < 60; ++i) {
        const size_t length = 1 + random() % limit;
        const size_t gap = random() % 100;
        pieces.push_back(piece(at + random() % 7, at + gap, length));
        at += length + 110;
      }
      std::shuffle(pieces.begin(), pieces.end(), random);
      for (const Piece& one : pieces) {
        const size_t from = one.local - address_of(local_.data()), to = one.remote - address_of(remote_.data());
        if (opcode == Opcode::kWrite) std::copy_n(local_.begin() + from, one.length, expected_remote.begin() + to);
        if (opcode == Opcode::kRead) std::copy_n(remote_.begin() + to, one.length, expected_local.begin() + from);
      }
      ASSERT_TRUE(pair_.transfer(channel_, opcode, pieces).ok());
      ASSERT_TRUE(remote_ == expected_remote) << limit;
      ASSERT_TRUE(local_ == expected_local) << limit;
    }
  }
}

TEST_F(TcpTransfer, SixtyFiveThousandPiecesInOneSlice) {
  constexpr size_t kPieces = 65'536, kLength = 48;
  allocate(kPieces * kLength * 2);
  std::vector<Piece> pieces;
  for (size_t i = 0; i < kPieces; ++i) {
    pieces.push_back(piece(kCanary + i * kLength, kCanary + (kPieces - 1 - i) * 2 * kLength, kLength));
  }
  ASSERT_TRUE(pair_.transfer(channel_, Opcode::kWrite, pieces).ok());
  for (size_t i = 0; i < kPieces; ++i) {
    ASSERT_EQ(std::memcmp(local_.data() + kCanary + i * kLength,
                          remote_.data() + kCanary + (kPieces - 1 - i) * 2 * kLength, kLength),
              0);
    ASSERT_EQ(remote_[kCanary + i * 2 * kLength + kLength], 0xEE);
  }
  std::vector<uint8_t> before = local_;
  fill_bytes(local_, 0);
  ASSERT_TRUE(pair_.transfer(channel_, Opcode::kRead, pieces).ok());
  EXPECT_TRUE(
      std::equal(local_.begin() + kCanary, local_.begin() + kCanary + kPieces * kLength, before.begin() + kCanary));
  pieces.push_back(pieces.back());
  EXPECT_EQ(pair_.transfer(channel_, Opcode::kWrite, pieces).code(), Code::kInvalidArgument);
}

TEST_F(TcpTransfer, ManySlicesAtOnceCompleteOnceEach) {
  allocate(32 << 20);
  std::mt19937_64 random(5);
  std::vector<uint64_t> ids;
  size_t at = 0;
  for (int i = 0; i < 3'000; ++i) {
    const size_t length = i % 100 == 0 ? 200'000 : 1 + random() % 3'000;
    SlicePtr slice = pair_.slice(Opcode::kWrite, {piece(at, at, length)});
    ids.push_back(slice->id);
    pair_.initiator.transport->post(channel_, std::move(slice));
    at += length;
  }
  for (const uint64_t id : ids) ASSERT_TRUE(pair_.initiator.events.wait_done(id).ok());
  EXPECT_TRUE(std::equal(local_.begin(), local_.begin() + static_cast<ptrdiff_t>(at), remote_.begin()));
  EXPECT_EQ(remote_[at], 0xEE);
}

TEST_F(TcpTransfer, ReadsAndWritesMixedFromManyThreads) {
  allocate(64 << 20);
  fill_pattern(remote_.data(), remote_.size(), 3);
  const std::vector<uint8_t> remote_before = remote_;
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  std::atomic<uint64_t> next_id{1'000'000};
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int i = 0; i < 300; ++i) {
        auto slice = std::make_shared<Slice>();
        slice->id = next_id++;
        slice->opcode = random() % 2 ? Opcode::kRead : Opcode::kWrite;
        const size_t length = 1 + random() % (i % 10 == 0 ? 1'000'000 : 5'000);
        // Halves: the lower one is written, the upper one read.
        const size_t base = t * (7 << 20) + (slice->opcode == Opcode::kRead ? 32 << 20 : 0);
        slice->pieces = {piece(base, base, length)};
        slice->bytes = length;
        if (!pair_.initiator.regions.use(slice->pieces[0].local, length, Access::kLocal, slice->hold).ok()) failures++;
        const uint64_t id = slice->id;
        const Opcode opcode = slice->opcode;
        pair_.initiator.transport->post(channel_, std::move(slice));
        // Waiters drive the lane, as the engine's do.
        for (int spin = 0; spin < 200; ++spin) pair_.initiator.transport->drive(channel_);
        if (!pair_.initiator.events.wait_done(id).ok()) failures++;
        if (opcode == Opcode::kRead && std::memcmp(local_.data() + base, remote_before.data() + base, length) != 0)
          failures++;
        if (opcode == Opcode::kWrite && std::memcmp(local_.data() + base, remote_.data() + base, length) != 0)
          failures++;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

TEST_F(TcpTransfer, RefusedRangesWriteNothingAndTheLaneGoesOn) {
  allocate(1 << 20);
  const std::vector<uint8_t> before = remote_;
  // The last piece of many is outside: none of the others may be written.
  for (const size_t length : {100, 300'000}) {
    Piece outside = piece(kCanary, 0, length);
    outside.remote = address_of(remote_.data()) + remote_.size() - length + 1;
    const Status refused = pair_.transfer(channel_, Opcode::kWrite, {piece(0, 0, length), outside});
    EXPECT_EQ(refused.code(), Code::kNotRegistered) << refused.to_string();
    EXPECT_NE(refused.message().find("piece 1 of 2"), std::string::npos) << refused.message();
    EXPECT_TRUE(remote_ == before);
    EXPECT_EQ(pair_.transfer(channel_, Opcode::kRead, {outside}).code(), Code::kNotRegistered);
  }
  Piece wrapped = piece(0, 0, 4096);
  wrapped.remote = UINT64_MAX - 100;
  EXPECT_EQ(pair_.transfer(channel_, Opcode::kWrite, {wrapped}).code(), Code::kInvalidArgument);
  EXPECT_TRUE(remote_ == before);
  EXPECT_TRUE(pair_.transfer(channel_, Opcode::kWrite, {piece(0, 0, 1 << 20)}).ok());
}

TEST_F(TcpTransfer, PermissionsAreCheckedForEveryFrame) {
  allocate(1 << 16, Permission::kRead);
  const std::vector<uint8_t> before = remote_;
  EXPECT_EQ(pair_.transfer(channel_, Opcode::kWrite, {piece(0, 0, 1 << 16)}).code(), Code::kPermissionDenied);
  EXPECT_TRUE(remote_ == before);
  EXPECT_TRUE(pair_.transfer(channel_, Opcode::kRead, {piece(0, 0, 1 << 16)}).ok());
  free();
  allocate(1 << 16, Permission::kNone);
  EXPECT_FALSE(pair_.transfer(channel_, Opcode::kRead, {piece(0, 0, 1 << 16)}).ok());
  EXPECT_FALSE(pair_.transfer(channel_, Opcode::kWrite, {piece(0, 0, 1 << 16)}).ok());
}

TEST_F(TcpTransfer, RangesMayCrossAdjacentRegions) {
  local_ = pattern(1 << 20, 4);
  remote_.assign(1 << 20, 0);
  for (size_t i = 0; i < 20; ++i) {  // more regions than are pinned at once
    const size_t begin = i * 50'000, length = i == 19 ? (1 << 20) - begin : 50'000;
    ASSERT_TRUE(
        pair_.initiator.regions.add(address_of(local_.data()) + begin, length, "cpu:0", Permission::kNone).ok());
    ASSERT_TRUE(
        pair_.target.regions.add(address_of(remote_.data()) + begin, length, "cpu:0", Permission::kReadWrite).ok());
  }
  ASSERT_TRUE(pair_.transfer(channel_, Opcode::kWrite, {piece(1, 1, (1 << 20) - 2)}).ok());
  EXPECT_TRUE(std::equal(local_.begin() + 1, local_.end() - 1, remote_.begin() + 1));
  fill_bytes(local_, 0);
  ASSERT_TRUE(pair_.transfer(channel_, Opcode::kRead, {piece(1, 1, (1 << 20) - 2)}).ok());
  EXPECT_TRUE(std::equal(local_.begin() + 1, local_.end() - 1, remote_.begin() + 1));
}

// Memory that the processor can't touch, on either side and on both.
class TcpTestDevice : public TcpTransfer, public testing::WithParamInterface<std::tuple<bool, bool>> {};

TEST_P(TcpTestDevice, BytesPassThroughTheDevicesOwnCopies) {
  const auto [local_device, remote_device] = GetParam();
  constexpr size_t kSize = 3 << 20;
  std::vector<uint8_t> host_local(kSize), host_remote(kSize);
  const auto make = [](bool device, std::vector<uint8_t>& host) {
    return device ? *test_device_allocate(kSize) : address_of(host.data());
  };
  const uint64_t local = make(local_device, host_local), remote = make(remote_device, host_remote);
  ASSERT_TRUE(pair_.initiator.regions.add(local, kSize, local_device ? "testdev:0" : "cpu:0", Permission::kNone).ok());
  ASSERT_TRUE(
      pair_.target.regions.add(remote, kSize, remote_device ? "testdev:0" : "cpu:0", Permission::kReadWrite).ok());
  const auto set = [](bool device, uint64_t address, const std::vector<uint8_t>& bytes) {
    if (!device) return static_cast<void>(std::memcpy(reinterpret_cast<void*>(address), bytes.data(), bytes.size()));
    ASSERT_TRUE(test_device().copy_from_host(address, bytes.data(), bytes.size()).ok());
  };
  const auto get = [](bool device, uint64_t address, size_t size) {
    std::vector<uint8_t> bytes(size);
    if (device) {
      EXPECT_TRUE(test_device().copy_to_host(bytes.data(), address, size).ok());
    } else {
      std::memcpy(bytes.data(), reinterpret_cast<void*>(address), size);
    }
    return bytes;
  };
  for (const size_t size : {size_t{1}, size_t{63}, size_t{4097}, size_t{300'001}, kSize}) {
    const std::vector<uint8_t> sent = pattern(kSize, size);
    set(local_device, local, sent);
    set(remote_device, remote, std::vector<uint8_t>(kSize, 0xEE));
    ASSERT_TRUE(pair_.transfer(channel_, Opcode::kWrite, {{local, remote, size}}).ok());
    std::vector<uint8_t> expected(kSize, 0xEE);
    std::copy_n(sent.begin(), size, expected.begin());
    ASSERT_TRUE(get(remote_device, remote, kSize) == expected) << size;

    set(remote_device, remote, pattern(kSize, size + 1));
    set(local_device, local, std::vector<uint8_t>(kSize, 0xDD));
    ASSERT_TRUE(pair_.transfer(channel_, Opcode::kRead, {{local, remote, size}}).ok());
    fill_bytes(expected, 0xDD);
    const std::vector<uint8_t> there = pattern(kSize, size + 1);
    std::copy_n(there.begin(), size, expected.begin());
    ASSERT_TRUE(get(local_device, local, kSize) == expected) << size;
  }
  ASSERT_TRUE(pair_.initiator.regions.remove(local).ok());
  ASSERT_TRUE(pair_.target.regions.remove(remote).ok());
  EXPECT_TRUE(!local_device || test_device_free(local).ok());
  EXPECT_TRUE(!remote_device || test_device_free(remote).ok());
}
INSTANTIATE_TEST_SUITE_P(EitherSide, TcpTestDevice, testing::Combine(testing::Bool(), testing::Bool()));

}  // namespace
}  // namespace tidewire::transport::tcp
