// SPDX-License-Identifier: Apache-2.0
//
// What every transport must do, with every kind of memory on either side. A new transport passes this or is not one.
#include <cstring>
#include <thread>

#include "support/engines.h"

namespace tidewire::testing {
namespace {

struct Path {
  const char* name;
  const char* protocol;
  std::vector<std::string> settings;
  MemoryKind local, remote;
};

std::vector<Path> paths() {
  const std::vector<std::string> tcp_only{"same_host=false"};
  return {
      {"TcpHostToHost", "tcp", tcp_only, MemoryKind::kForeign, MemoryKind::kForeign},
      {"TcpDeviceToHost", "tcp", tcp_only, MemoryKind::kDevice, MemoryKind::kForeign},
      {"TcpHostToDevice", "tcp", tcp_only, MemoryKind::kForeign, MemoryKind::kDevice},
      {"TcpDeviceToDevice", "tcp", tcp_only, MemoryKind::kDevice, MemoryKind::kDevice},
      {"TcpCudaToHost", "tcp", tcp_only, MemoryKind::kCuda, MemoryKind::kForeign},
      {"TcpHostToCuda", "tcp", tcp_only, MemoryKind::kForeign, MemoryKind::kCuda},
      {"TcpCudaToCuda", "tcp", tcp_only, MemoryKind::kCuda, MemoryKind::kCuda},
      {"ShmPoolToPool", "shm", {}, MemoryKind::kPool, MemoryKind::kPool},
      {"ShmHostToPool", "shm", {}, MemoryKind::kForeign, MemoryKind::kPool},
      {"ShmPoolToHost", "shm", {}, MemoryKind::kPool, MemoryKind::kForeign},
      {"ShmHostToHost", "shm", {}, MemoryKind::kForeign, MemoryKind::kForeign},
      {"ShmDeviceToPool", "shm", {}, MemoryKind::kDevice, MemoryKind::kPool},
      {"ShmDeviceToHost", "shm", {}, MemoryKind::kDevice, MemoryKind::kForeign},
      {"ShmCudaToPool", "shm", {}, MemoryKind::kCuda, MemoryKind::kPool},
      {"ShmCudaToHost", "shm", {}, MemoryKind::kCuda, MemoryKind::kForeign},
      {"AutoHostToCuda", "auto", {}, MemoryKind::kForeign, MemoryKind::kCuda},
      {"AutoHostToDevice", "auto", {}, MemoryKind::kForeign, MemoryKind::kDevice},  // falls back from shared memory to TCP
      {"AutoPoolToPool", "auto", {}, MemoryKind::kPool, MemoryKind::kPool},
  };
}

class TransportConformance : public ::testing::TestWithParam<Path> {
 protected:
  TransportConformance()
      : initiator(GetParam().protocol, GetParam().settings),
        target(GetParam().protocol, GetParam().settings),
        peer(initiator.open(target.address())) {}

  Memory local(size_t size) { return Memory(initiator, GetParam().local, size); }
  Memory remote(size_t size, tw_permission permission = TW_REMOTE_READ_WRITE) { return Memory(target, GetParam().remote, size, permission); }

  Engine initiator;
  Engine target;
  tw_peer_t peer;
};

constexpr size_t kCanary = 64;

TEST_P(TransportConformance, WritesAndReadsEverySizeAroundTheBordersAndNothingBeside) {
  const size_t room = (2 << 20) + 4096;
  Memory source(initiator, GetParam().local, room);
  Memory destination(target, GetParam().remote, room);
  const std::vector<size_t> sizes{1,    2,    3,    7,     63,    64,     65,     511,    512,     513,     4095,      4096,     4097,
                                  8191, 8193, 65535, 65536, 65537, 262143, 262145, 1 << 19, (1 << 20) - 1, 1 << 20, (1 << 20) + 1};
  uint64_t seed = 1;
  for (const size_t size : sizes) {
    for (const size_t shift : {0, 1, 3, 7}) {
      const std::vector<uint8_t> bytes = pattern(++seed, size);
      const std::vector<uint8_t> canary(size + 2 * kCanary + 8, 0xEE);
      source.write(bytes, shift);
      destination.write(canary);
      const size_t at = kCanary + (7 - shift);
      const Outcome written = transfer(initiator, peer, TW_WRITE, {source.address(shift)}, {destination.address(at)}, {size});
      ASSERT_EQ(written.code, TW_OK) << written.error << " size " << size;
      EXPECT_EQ(written.status.transferred_bytes, size);
      std::vector<uint8_t> expected = canary;
      std::copy(bytes.begin(), bytes.end(), expected.begin() + static_cast<ptrdiff_t>(at));
      ASSERT_EQ(destination.read(0, expected.size()), expected) << "size " << size << " shift " << shift;

      source.write(canary);
      const Outcome read = transfer(initiator, peer, TW_READ, {source.address(kCanary)}, {destination.address(at)}, {size});
      ASSERT_EQ(read.code, TW_OK) << read.error << " size " << size;
      std::vector<uint8_t> back = canary;
      std::copy(bytes.begin(), bytes.end(), back.begin() + kCanary);
      ASSERT_EQ(source.read(0, back.size()), back) << "read of size " << size;
    }
  }
}

TEST_P(TransportConformance, MovesManyScatteredPiecesInOneCall) {
  const size_t pieces = 20'000, length = 96, stride = 128;
  Memory source(initiator, GetParam().local, pieces * stride);
  Memory destination(target, GetParam().remote, pieces * stride);
  const std::vector<uint8_t> bytes = pattern(5, pieces * stride);
  source.write(bytes);
  destination.fill(0xEE);
  std::vector<uint64_t> from, to, lengths;
  std::vector<uint8_t> expected(pieces * stride, 0xEE);
  for (size_t i = 0; i < pieces; ++i) {
    const size_t target_slot = (i * 7919) % pieces;
    from.push_back(source.address(i * stride + i % 5));
    to.push_back(destination.address(target_slot * stride + i % 3));
    lengths.push_back(length);
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(i * stride + i % 5), length,
                expected.begin() + static_cast<ptrdiff_t>(target_slot * stride + i % 3));
  }
  const Outcome outcome = transfer(initiator, peer, TW_WRITE, from, to, lengths);
  ASSERT_EQ(outcome.code, TW_OK) << outcome.error;
  EXPECT_EQ(outcome.status.completed, pieces);
  EXPECT_EQ(outcome.status.transferred_bytes, pieces * length);
  ASSERT_EQ(destination.read(0, expected.size()), expected);

  source.fill(0);
  const Outcome read = transfer(initiator, peer, TW_READ, from, to, lengths);
  ASSERT_EQ(read.code, TW_OK) << read.error;
  for (size_t i = 0; i < pieces; i += 997) {
    const size_t at = i * stride + i % 5;
    ASSERT_EQ(source.read(at, length), std::vector<uint8_t>(bytes.begin() + static_cast<ptrdiff_t>(at), bytes.begin() + static_cast<ptrdiff_t>(at + length)));
  }
}

TEST_P(TransportConformance, EveryCountOfTransfersCompletesOnce) {
  Memory source(initiator, GetParam().local, 1 << 16);
  Memory destination(target, GetParam().remote, 1 << 16);
  source.write(pattern(9, 1 << 16));
  for (size_t count = 1; count <= 40; ++count) {
    std::vector<uint64_t> from, to, lengths;
    for (size_t i = 0; i < count; ++i) {
      from.push_back(source.address(i * 1024));
      to.push_back(destination.address((count - 1 - i) * 1024));
      lengths.push_back(700);
    }
    const std::string message = "count " + std::to_string(count);
    tw_submit_options options{sizeof options, 0, "done", message.data(), message.size()};
    const Outcome outcome = transfer(initiator, peer, TW_WRITE, from, to, lengths, &options);
    ASSERT_EQ(outcome.code, TW_OK) << outcome.error;
    EXPECT_EQ(outcome.status.completed, count);
    // The batch is terminal only when the peer has the notification.
    tw_notification* list = nullptr;
    size_t received = 0;
    TW_ASSERT_OK(tw_notifications_take(target.handle, &list, &received));
    ASSERT_EQ(received, 1u) << "after " << message;
    EXPECT_EQ(std::string(static_cast<char*>(list[0].message), list[0].length), message);
    EXPECT_EQ(std::string(list[0].name), "done");
    EXPECT_EQ(std::string(list[0].sender), initiator.address());
    tw_notifications_free(list, received);
  }
}

TEST_P(TransportConformance, EmptyTransfersComplete) {
  Memory source(initiator, GetParam().local, 4096);
  Memory destination(target, GetParam().remote, 4096);
  EXPECT_EQ(transfer(initiator, peer, TW_WRITE, {}, {}, {}).code, TW_OK);
  const Outcome outcome = transfer(initiator, peer, TW_WRITE, {source.address(), source.address(), source.address(64)},
                                   {destination.address(), destination.address(64), destination.address(64)}, {32, 0, 32});
  EXPECT_EQ(outcome.code, TW_OK) << outcome.error;
  EXPECT_EQ(outcome.status.completed, 3u);
  EXPECT_EQ(outcome.status.transferred_bytes, 64u);
  EXPECT_EQ(transfer(initiator, peer, TW_READ, {1}, {1}, {0}).code, TW_OK);
}

TEST_P(TransportConformance, RefusesRangesThatAreNotRegisteredAndWritesNothing) {
  Memory source(initiator, GetParam().local, 8192);
  Memory destination(target, GetParam().remote, 8192);
  source.write(pattern(3, 8192));
  destination.fill(0xEE);
  const Outcome beyond = transfer(initiator, peer, TW_WRITE, {source.address()}, {destination.address(8192 - 100)}, {101});
  EXPECT_EQ(beyond.code, TW_NOT_REGISTERED) << beyond.error;
  const Outcome nowhere = transfer(initiator, peer, TW_WRITE, {source.address()}, {0x10}, {64});
  EXPECT_EQ(nowhere.code, TW_NOT_REGISTERED) << nowhere.error;
  const Outcome local = transfer(initiator, peer, TW_WRITE, {source.address(8192)}, {destination.address()}, {64});
  EXPECT_EQ(local.code, TW_NOT_REGISTERED) << local.error;
  EXPECT_NE(local.error.find("local"), std::string::npos) << local.error;
  const Outcome wrapped = transfer(initiator, peer, TW_WRITE, {source.address()}, {UINT64_MAX - 10}, {64});
  EXPECT_EQ(wrapped.code, TW_INVALID_ARGUMENT) << wrapped.error;
  EXPECT_EQ(destination.read(0, 8192), std::vector<uint8_t>(8192, 0xEE));
  const Outcome good = transfer(initiator, peer, TW_WRITE, {source.address()}, {destination.address()}, {8192});
  EXPECT_EQ(good.code, TW_OK) << good.error;
  EXPECT_EQ(destination.read(0, 8192), pattern(3, 8192));
}

TEST_P(TransportConformance, ReportsEachTransferOfAMixedBatchExactly) {
  Memory source(initiator, GetParam().local, 1 << 20);
  Memory destination(target, GetParam().remote, 1 << 20);
  const std::vector<uint8_t> bytes = pattern(11, 1 << 20);
  source.write(bytes);
  destination.fill(0);
  std::vector<tw_transfer> transfers;
  for (size_t i = 0; i < 100; ++i)
    transfers.push_back({TW_WRITE, 0, source.pointer(i * 8192), peer, destination.address(i * 8192), 5000});
  transfers[17].remote = 0x1000;                               // unregistered at the target
  transfers[42].local = reinterpret_cast<void*>(0x2000);       // unregistered here
  transfers[77].peer = 0x1234;                                 // no such peer
  tw_batch_t batch = 0;
  TW_ASSERT_OK(tw_submit(initiator.handle, transfers.data(), transfers.size(), nullptr, &batch));
  tw_batch_status status;
  EXPECT_EQ(tw_batch_wait(batch, kHardStop, &status), TW_PARTIAL);
  EXPECT_EQ(status.completed, 97u);
  EXPECT_EQ(status.failed, 3u);
  EXPECT_EQ(status.state, TW_STATE_FAILED);
  for (size_t i = 0; i < 100; ++i) {
    tw_transfer_status one;
    TW_ASSERT_OK(tw_batch_transfer_status(batch, i, &one));
    if (i == 17 || i == 42) {
      EXPECT_EQ(one.code, TW_NOT_REGISTERED) << i;
      EXPECT_EQ(one.state, TW_STATE_FAILED) << i;
    } else if (i == 77) {
      EXPECT_EQ(one.code, TW_INVALID_ARGUMENT);
      EXPECT_EQ(one.state, TW_STATE_INVALID);
    } else {
      EXPECT_EQ(one.state, TW_STATE_COMPLETED) << i;
      EXPECT_EQ(one.transferred_bytes, 5000u) << i;
      ASSERT_EQ(destination.read(i * 8192, 5000),
                std::vector<uint8_t>(bytes.begin() + static_cast<ptrdiff_t>(i * 8192), bytes.begin() + static_cast<ptrdiff_t>(i * 8192 + 5000)));
    }
  }
  TW_EXPECT_OK(tw_batch_release(batch));
}

TEST_P(TransportConformance, CrossesTheBorderOfAdjacentRegions) {
  if (GetParam().remote != MemoryKind::kForeign) GTEST_SKIP() << "needs memory that is registered in two parts";
  Memory source(initiator, GetParam().local, 8192);
  source.write(pattern(21, 8192));
  uint8_t* const memory = static_cast<uint8_t*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  TW_ASSERT_OK(tw_register(target.handle, memory, 4096, nullptr, TW_REMOTE_READ_WRITE));
  TW_ASSERT_OK(tw_register(target.handle, memory + 4096, 4096, nullptr, TW_REMOTE_READ_WRITE));
  const Outcome outcome =
      transfer(initiator, peer, TW_WRITE, {source.address()}, {reinterpret_cast<uint64_t>(memory) + 4000}, {200});
  EXPECT_EQ(outcome.code, TW_OK) << outcome.error;
  EXPECT_EQ(std::vector<uint8_t>(memory + 4000, memory + 4200), pattern(21, 200));
  TW_EXPECT_OK(tw_unregister(target.handle, memory));
  TW_EXPECT_OK(tw_unregister(target.handle, memory + 4096));
  munmap(memory, 8192);
}

TEST_P(TransportConformance, ChecksPermissionsOnEveryOperation) {
  if (GetParam().remote == MemoryKind::kPool) GTEST_SKIP() << "pool memory is always read-write";
  Memory source(initiator, GetParam().local, 4096);
  source.write(pattern(1, 4096));
  Memory readable(target, GetParam().remote, 4096, TW_REMOTE_READ);
  Memory closed(target, GetParam().remote, 4096, TW_REMOTE_NONE);
  readable.fill(0xEE);
  closed.fill(0xEE);
  EXPECT_EQ(transfer(initiator, peer, TW_READ, {source.address()}, {readable.address()}, {4096}).code, TW_OK);
  EXPECT_EQ(transfer(initiator, peer, TW_WRITE, {source.address()}, {readable.address()}, {64}).code, TW_PERMISSION_DENIED);
  EXPECT_EQ(transfer(initiator, peer, TW_READ, {source.address()}, {closed.address()}, {64}).code, TW_PERMISSION_DENIED);
  EXPECT_EQ(transfer(initiator, peer, TW_WRITE, {source.address()}, {closed.address()}, {64}).code, TW_PERMISSION_DENIED);
  EXPECT_EQ(readable.read(0, 4096), std::vector<uint8_t>(4096, 0xEE));
  EXPECT_EQ(closed.read(0, 4096), std::vector<uint8_t>(4096, 0xEE));
}

TEST_P(TransportConformance, FollowsRegistrationAndItsEndWithoutARestart) {
  Memory source(initiator, GetParam().local, 4096);
  source.write(pattern(1, 4096));
  auto first = std::make_unique<Memory>(target, GetParam().remote, 4096);
  EXPECT_EQ(transfer(initiator, peer, TW_WRITE, {source.address()}, {first->address()}, {4096}).code, TW_OK);
  Memory second(target, GetParam().remote, 4096);
  EXPECT_EQ(transfer(initiator, peer, TW_WRITE, {source.address()}, {second.address()}, {4096}).code, TW_OK);
  const uint64_t old = first->address();
  first.reset();
  const Outcome outcome = transfer(initiator, peer, TW_WRITE, {source.address()}, {old}, {4096});
  EXPECT_EQ(outcome.code, TW_NOT_REGISTERED) << outcome.error;
  EXPECT_EQ(second.read(0, 4096), pattern(1, 4096));
}

TEST_P(TransportConformance, UnregistrationDuringTransfersLeavesNoLateWrite) {
  constexpr uint64_t kBatches = 8, kLength = 1 << 20;
  Memory source(initiator, GetParam().local, kLength);
  source.write(std::vector<uint8_t>(kLength, 0xAA));
  for (int round = 0; round < 10; ++round) {
    auto destination = std::make_unique<Memory>(target, MemoryKind::kForeign, kBatches * kLength);
    uint8_t* const bytes = static_cast<uint8_t*>(destination->pointer());
    std::vector<tw_batch_t> batches;
    for (uint64_t i = 0; i < kBatches; ++i) {
      const uint64_t from = source.address(), to = destination->address(i * kLength), length = kLength;
      tw_batch_t batch = 0;
      TW_ASSERT_OK(tw_submit_lists(initiator.handle, peer, TW_WRITE, &from, &to, &length, 1, nullptr, &batch));
      batches.push_back(batch);
    }
    TW_ASSERT_OK(tw_unregister(target.handle, bytes));
    std::memset(bytes, 0x55, kBatches * kLength);  // from here on nothing may land any more
    for (const tw_batch_t batch : batches) {
      tw_batch_status status;
      const tw_code code = tw_batch_wait(batch, kHardStop, &status);
      EXPECT_TRUE(code == TW_OK || code == TW_NOT_REGISTERED) << tw_code_name(code) << ": " << tw_last_error();
      TW_EXPECT_OK(tw_batch_release(batch));
    }
    EXPECT_EQ(std::count(bytes, bytes + kBatches * kLength, 0x55), static_cast<ptrdiff_t>(kBatches * kLength)) << "round " << round;
    TW_ASSERT_OK(tw_register(target.handle, bytes, kBatches * kLength, nullptr, TW_REMOTE_READ_WRITE));  // for the destructor
  }
}

TEST_P(TransportConformance, SeveralThreadsShareOneEngine) {
  constexpr size_t kThreads = 4, kRounds = 30, kSize = 200'000;
  Memory source(initiator, GetParam().local, kThreads * kSize);
  Memory destination(target, GetParam().remote, kThreads * kSize);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t round = 0; round < kRounds; ++round) {
        const std::vector<uint8_t> bytes = pattern(t * 1000 + round, kSize);
        source.write(bytes, t * kSize);
        const Outcome outcome =
            transfer(initiator, peer, TW_WRITE, {source.address(t * kSize)}, {destination.address(t * kSize)}, {kSize});
        ASSERT_EQ(outcome.code, TW_OK) << outcome.error;
        ASSERT_EQ(destination.read(t * kSize, kSize), bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(TransportConformance, AnEngineReachesItself) {
  Memory source(initiator, GetParam().local, 100'000);
  Memory destination(initiator, GetParam().remote, 100'000);
  source.write(pattern(4, 100'000));
  const tw_peer_t self = initiator.open(initiator.address());
  const Outcome outcome = transfer(initiator, self, TW_WRITE, {source.address()}, {destination.address()}, {100'000});
  ASSERT_EQ(outcome.code, TW_OK) << outcome.error;
  EXPECT_EQ(destination.read(0, 100'000), pattern(4, 100'000));
}

INSTANTIATE_TEST_SUITE_P(Paths, TransportConformance, ::testing::ValuesIn(paths()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tidewire::testing
