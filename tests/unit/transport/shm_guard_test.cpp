// SPDX-License-Identifier: Apache-2.0
//
// The target's last word: regions that go, or change their permission, while peers copy.
#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "shm_support.h"

namespace tidewire::transport::shm {
namespace {

class ShmGuard : public ::testing::TestWithParam<bool> {
 protected:
  // The same memory again and again: in the pool, or the application's own.
  ShmGuard() {
    if (GetParam()) {
      auto allocation = target_.pool.allocate(kSize, "*").value();
      address_ = allocation.address;
      backing_ = allocation.backing;
    } else {
      target_.buffers.emplace_back(new char[kSize]());
      address_ = reinterpret_cast<uint64_t>(target_.buffers.back().get());
    }
  }
  void add(Permission permission) { ASSERT_TRUE(target_.regions.add(address_, kSize, "*", permission, backing_).ok()); }
  static constexpr uint64_t kSize = 4 << 20;
  Host initiator_, target_;
  uint64_t address_ = 0;
  PoolBacking backing_;
};

INSTANTIATE_TEST_SUITE_P(Memory, ShmGuard, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Pool" : "Own"; });

// Writers never stop; after each remove() the memory belongs to the target's owner again, and no byte of it may change.
TEST_P(ShmGuard, NothingIsWrittenAfterRemoveReturns) {
  const uint64_t local = initiator_.pool_memory(kSize);
  std::memset(bytes_at(local), 0x11, kSize);
  const ChannelId channel = initiator_.connect(target_);
  const std::vector<char> untouched(kSize, 0x22);
  std::atomic<bool> stop{false};
  std::atomic<int> written{0};
  std::vector<std::thread> writers;
  for (uint64_t t = 0; t < 3; ++t) {
    writers.emplace_back([&, t] {
      const uint64_t at = t << 20;
      const uint64_t size = t == 0 ? 64 : t == 1 ? 50'000 : kSize - at;
      while (!stop) {
        const Status status = initiator_.write(channel, local + at, address_ + at, size);
        ASSERT_TRUE(status.ok() || status.code() == Code::kNotRegistered) << status.to_string();
        written += status.ok();
      }
    });
  }
  for (int round = 0; round < 30; ++round) {
    add(Permission::kReadWrite);
    const int before = written;
    const Nanos patience = monotonic_now() + 30 * kSecond;
    while (written == before && monotonic_now() < patience) std::this_thread::yield();
    EXPECT_GT(written, before);
    ASSERT_TRUE(target_.regions.remove(address_, 20 * kSecond).ok());
    std::memset(bytes_at(address_), 0x22, kSize);
    std::this_thread::yield();
    ASSERT_EQ(std::memcmp(bytes_at(address_), untouched.data(), kSize), 0) << "round " << round;
  }
  stop = true;
  for (auto& writer : writers) writer.join();
}

TEST_P(ShmGuard, ReRegistrationWithAnotherPermissionIsSeen) {
  const uint64_t local = initiator_.pool_memory(4096);
  const ChannelId channel = initiator_.connect(target_);
  for (int round = 0; round < 5; ++round) {
    add(Permission::kReadWrite);
    EXPECT_TRUE(initiator_.write(channel, local, address_, 4096).ok());
    ASSERT_TRUE(target_.regions.remove(address_).ok());
    EXPECT_EQ(initiator_.write(channel, local, address_, 4096).code(), Code::kNotRegistered);
    add(Permission::kRead);
    EXPECT_EQ(initiator_.write(channel, local, address_, 4096).code(), Code::kPermissionDenied);
    EXPECT_TRUE(initiator_.read(channel, local, address_, 4096).ok());
    ASSERT_TRUE(target_.regions.remove(address_).ok());
    add(Permission::kNone);
    EXPECT_EQ(initiator_.read(channel, local, address_, 4096).code(), Code::kPermissionDenied);
    ASSERT_TRUE(target_.regions.remove(address_).ok());
  }
}

TEST_P(ShmGuard, LocalUnregistrationStopsAReadIntoIt) {
  add(Permission::kReadWrite);
  std::memset(bytes_at(address_), 0x33, kSize);
  const uint64_t local = initiator_.own_memory(kSize);
  const ChannelId channel = initiator_.connect(target_);
  for (int round = 0; round < 30; ++round) {
    SlicePtr slice = initiator_.make_slice(Opcode::kRead, {{local, address_, kSize}});
    const uint64_t id = slice->id;
    initiator_.transport.post(channel, std::move(slice));
    ASSERT_TRUE(initiator_.regions.remove(local, 0).ok());
    std::memset(bytes_at(local), 0, kSize);
    const Status status = initiator_.events.wait_done(id);
    EXPECT_TRUE(status.ok() || status.code() == Code::kNotRegistered) << status.to_string();
    for (uint64_t i = 0; i < kSize; i += 64) ASSERT_EQ(bytes_at(local)[i], 0) << "written after remove returned";
    ASSERT_TRUE(initiator_.regions.add(local, kSize, "*", Permission::kReadWrite).ok());
  }
}

TEST_P(ShmGuard, FreedMemoryIsUnmappedByPeers) {
  add(Permission::kReadWrite);
  const uint64_t local = initiator_.pool_memory(4096);
  const ChannelId channel = initiator_.connect(target_);
  ASSERT_TRUE(initiator_.write(channel, local, address_, 4096).ok());
  const auto mapped = [&] {
    size_t count = 0;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) count += line.find("memfd:tidewire-pool") != std::string::npos;
    return count;
  };
  const size_t before = mapped();
  ASSERT_TRUE(target_.regions.remove(address_).ok());
  const Nanos patience = monotonic_now() + 30 * kSecond;
  while (GetParam() && mapped() == before && monotonic_now() < patience) std::this_thread::yield();
  EXPECT_EQ(mapped(), before - (GetParam() ? 1 : 0));
}

TEST(ShmGuardPage, AReferenceIsValidOnlyForTheExpectedState) {
  auto state = StatePage::create("test-state", true).value();
  auto references = ReferencePage::create("test-references", false).value();
  const uint64_t open = state_word(3, Permission::kReadWrite, true);
  (*state)[7].store(open);
  {
    CopyReference reference(*references, *state, 7, open);
    EXPECT_TRUE(reference.valid());
    EXPECT_EQ((*references)[7].load(), 1u);
  }
  EXPECT_EQ((*references)[7].load(), 0u);
  for (uint64_t other : {state_word(4, Permission::kReadWrite, true), state_word(3, Permission::kRead, true),
                         state_word(3, Permission::kReadWrite, false), uint64_t{0}}) {
    (*state)[7].store(other);
    EXPECT_FALSE(CopyReference(*references, *state, 7, open).valid());
  }
}

TEST(ShmGuardPage, PeersCanReadTheStateAndNotWriteIt) {
  auto state = StatePage::create("test-state", true).value();
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, state->descriptor(), 0), MAP_FAILED);
  EXPECT_EQ(ftruncate(state->descriptor(), 0), -1);
  (*state)[1].store(99);
  auto view = StatePage::open(UniqueFd(dup(state->descriptor())), true);
  ASSERT_TRUE(view.ok()) << view.status().to_string();
  EXPECT_EQ((**view)[1].load(), 99u);
}

TEST(ShmGuardPage, UnsealedOrShortFilesAreRefused) {
  UniqueFd unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), StatePage::kBytes), 0);
  EXPECT_EQ(StatePage::open(UniqueFd(dup(unsealed.get())), true).status().code(), Code::kProtocol);
  EXPECT_EQ(Mapping::create(UniqueFd(dup(unsealed.get())), true).status().code(), Code::kProtocol);
  UniqueFd small(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(small.get(), 4096), 0);
  ASSERT_EQ(fcntl(small.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(StatePage::open(UniqueFd(dup(small.get())), true).status().code(), Code::kProtocol);
}

}  // namespace
}  // namespace tidewire::transport::shm
