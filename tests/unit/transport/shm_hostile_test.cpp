// SPDX-License-Identifier: Apache-2.0
//
// Foreign bytes on the local socket, in both directions: they cost the connection that brought them and nothing else.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <functional>
#include <thread>

#include "shm_support.h"

namespace tidewire::transport::shm {
namespace {

// Waits until the other end closed; false when it did not.
bool closed_by_peer(int socket) {
  const Nanos patience = monotonic_now() + 60 * kSecond;
  while (monotonic_now() < patience) {
    pollfd poll_fd{socket, POLLIN, 0};
    poll(&poll_fd, 1, 1000);
    Received received;
    if (!receive_packet(socket, true, &received).ok()) return true;
  }
  return false;
}

Received next_packet(int socket) {
  Received received;
  const Nanos patience = monotonic_now() + 60 * kSecond;
  while (received.bytes.empty() && monotonic_now() < patience) {
    pollfd poll_fd{socket, POLLIN, 0};
    poll(&poll_fd, 1, 1000);
    if (!receive_packet(socket, true, &received).ok()) break;
  }
  return received;
}

class ShmHostile : public ::testing::Test {
 protected:
  UniqueFd connect_raw() { return connect_local(target_.transport.socket_name()).value(); }
  // A connection whose handshake is done.
  UniqueFd connect_up() {
    UniqueFd socket = connect_raw();
    Hello hello = good_hello();
    EXPECT_TRUE(send_packet(socket.get(), &hello, seal(hello)).ok());
    Challenge challenge;
    EXPECT_TRUE(parse(next_packet(socket.get()).bytes, &challenge));
    Proof proof{};
    EXPECT_TRUE(send_packet(socket.get(), &proof, seal(proof)).ok());
    Welcome welcome;
    Received received = next_packet(socket.get());
    EXPECT_TRUE(parse(received.bytes, &welcome));
    EXPECT_EQ(received.descriptors.size(), 2u);
    return socket;
  }
  Hello good_hello() const {
    Hello hello{};
    std::copy(target_.instance.begin(), target_.instance.end(), hello.expected);
    std::memcpy(hello.host_id, host_id().data(), host_id().size());
    return hello;
  }
  void expect_alive() {
    Host host;
    const uint64_t local = host.pool_memory(1000), remote = target_.pool_memory(1000);
    std::memset(bytes_at(local), 3, 1000);
    const ChannelId channel = host.connect(target_);
    EXPECT_TRUE(host.write(channel, local, remote, 1000).ok());
    EXPECT_EQ(bytes_at(remote)[999], 3);
  }
  // Until the target has noticed that all connections ended.
  void wait_for_no_peers() {
    const Nanos patience = monotonic_now() + 60 * kSecond;
    while (target_.transport.describe().find("\"served_peers\": 0,") == std::string::npos &&
           monotonic_now() < patience) {
      std::this_thread::yield();
    }
  }
  Host target_;
};

TEST_F(ShmHostile, RandomPackets) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    UniqueFd socket = round % 2 ? connect_raw() : connect_up();
    std::vector<uint8_t> bytes(1 + random() % 3000);
    for (auto& byte : bytes) byte = static_cast<uint8_t>(random());
    if (round % 4 < 2) {  // a right beginning, so that what follows is looked at
      Header header;
      header.type = static_cast<Type>(random() % 10);
      header.length = static_cast<uint32_t>(bytes.size());
      header.count = random() % 400;
      std::memcpy(bytes.data(), &header, std::min(bytes.size(), sizeof header));
    }
    ASSERT_TRUE(send_packet(socket.get(), bytes.data(), bytes.size()).ok());
    ASSERT_TRUE(closed_by_peer(socket.get())) << "round " << round;
  }
  expect_alive();
}

TEST_F(ShmHostile, EveryCutAndEveryFlippedHeaderBit) {
  const Hello good = [&] {
    Hello hello = good_hello();
    seal(hello);
    return hello;
  }();
  for (size_t length = 1; length < sizeof good; length += 3) {
    UniqueFd socket = connect_raw();
    ASSERT_TRUE(send_packet(socket.get(), &good, length).ok());
    ASSERT_TRUE(closed_by_peer(socket.get()));
  }
  for (size_t bit = 0; bit < 8 * sizeof(Header); ++bit) {
    Hello bad = good;
    reinterpret_cast<uint8_t*>(&bad)[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    UniqueFd socket = connect_raw();
    ASSERT_TRUE(send_packet(socket.get(), &bad, sizeof bad).ok());
    ASSERT_TRUE(closed_by_peer(socket.get())) << "bit " << bit;
  }
  expect_alive();
}

TEST_F(ShmHostile, PacketsOutOfTurnAndTooLarge) {
  {
    UniqueFd socket = connect_raw();
    Lookup lookup{};
    ASSERT_TRUE(send_packet(socket.get(), &lookup, seal(lookup, 1)).ok());
    EXPECT_TRUE(closed_by_peer(socket.get())) << "a lookup before the handshake";
  }
  {
    UniqueFd socket = connect_up();
    Hello hello = good_hello();
    ASSERT_TRUE(send_packet(socket.get(), &hello, seal(hello)).ok());
    EXPECT_TRUE(closed_by_peer(socket.get())) << "a second hello";
  }
  {
    UniqueFd socket = connect_up();
    std::vector<uint8_t> large(100'000);
    ASSERT_TRUE(send_packet(socket.get(), large.data(), large.size()).ok());
    EXPECT_TRUE(closed_by_peer(socket.get()));
  }
  expect_alive();
}

TEST_F(ShmHostile, DescriptorsThatNobodyWantsAreNotKept) {
  expect_alive();
  wait_for_no_peers();
  const size_t before = open_descriptors();
  for (int round = 0; round < 20; ++round) {
    UniqueFd socket = connect_raw();
    Hello hello = good_hello();
    const int gifts[] = {0, 1, 2};
    ASSERT_TRUE(send_packet(socket.get(), &hello, seal(hello), gifts).ok());
    (void)next_packet(socket.get());
    std::vector<uint8_t> end(3);
    ASSERT_TRUE(send_packet(socket.get(), end.data(), end.size()).ok());
    ASSERT_TRUE(closed_by_peer(socket.get()));
  }
  wait_for_no_peers();
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ShmHostile, AProofFromNowhereIsRefused) {
  Host secret("a secret of sixteen bytes");
  UniqueFd socket = connect_local(secret.transport.socket_name()).value();
  Hello hello = good_hello();
  std::copy(secret.instance.begin(), secret.instance.end(), hello.expected);
  ASSERT_TRUE(send_packet(socket.get(), &hello, seal(hello)).ok());
  Challenge challenge;
  ASSERT_TRUE(parse(next_packet(socket.get()).bytes, &challenge));
  Proof proof{};
  std::memcpy(proof.proof, challenge.proof, sizeof proof.proof);  // the target's own, sent back
  ASSERT_TRUE(send_packet(socket.get(), &proof, seal(proof)).ok());
  Refused refused;
  ASSERT_TRUE(parse(next_packet(socket.get()).bytes, &refused));
  EXPECT_EQ(refused.code, TW_UNAUTHENTICATED);
  EXPECT_TRUE(closed_by_peer(socket.get()));
}

TEST_F(ShmHostile, SilentConnectionsDoNotKeepOthersOut) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connect_raw());
  expect_alive();
}

// A target that lies: the initiator loses the channel, or the slice, and stays whole.
class LyingTarget {
 public:
  // `lie` gets the socket after a right handshake up to and including Welcome.
  explicit LyingTarget(std::function<void(int)> lie) : instance(make_instance_id()) {
    listener_ = listen_local("tidewire-test-" + to_string(instance)).value();
    thread_ = std::thread([this, lie = std::move(lie)] {
      pollfd poll_fd{listener_.get(), POLLIN, 0};
      poll(&poll_fd, 1, 60'000);
      UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      (void)next_packet(socket.get());
      Challenge challenge{};
      std::copy(instance.begin(), instance.end(), challenge.target);
      (void)send_packet(socket.get(), &challenge, seal(challenge));
      (void)next_packet(socket.get());
      lie(socket.get());
      (void)closed_by_peer(socket.get());
    });
  }
  ~LyingTarget() { thread_.join(); }
  PeerRecord record() const {
    PeerRecord record;
    record.instance = instance;
    record.name = "liar";
    record.host_id = host_id();
    record.same_host_socket = "tidewire-test-" + to_string(instance);
    return record;
  }
  static void welcome(int socket) {
    auto state = StatePage::create("test", false).value();
    auto references = ReferencePage::create("test", false).value();
    (*state)[5].store(state_word(1, Permission::kReadWrite, true));
    Welcome welcome{};
    welcome.slots = kSlots;
    welcome.probe_address = reinterpret_cast<uint64_t>(welcome.probe_value);
    const int files[] = {state->descriptor(), references->descriptor()};
    (void)send_packet(socket, &welcome, seal(welcome), files);
  }
  // Answers one question with this entry.
  static void answer(int socket, RegionInfo info, std::span<const int> files = {}) {
    Lookup lookup{};
    if (!parse(next_packet(socket).bytes, &lookup)) return;
    Regions regions{};
    regions.request = lookup.request;
    regions.regions[0] = info;
    (void)send_packet(socket, &regions, seal(regions, 1), files);
  }
  InstanceId instance;

 private:
  UniqueFd listener_;
  std::thread thread_;
};

constexpr uint64_t kAsked = 0x7000'0000;
RegionInfo good_info() {
  RegionInfo info{};
  info.asked = kAsked;
  info.address = kAsked;
  info.length = 4096;
  info.slot = 5;
  info.epoch = 1;
  info.permission = 3;
  info.backing = Backing::kFile;
  info.file_id = 1;
  info.descriptor = 0;
  return info;
}

TEST(ShmLyingTarget, WelcomesThatAreNone) {
  for (int kind = 0; kind < 5; ++kind) {
    LyingTarget liar([kind](int socket) {
      Welcome welcome{};
      welcome.slots = kind == 0 ? 7 : kSlots;
      auto page = StatePage::create("test", false).value();
      UniqueFd unsealed(memfd_create("test", MFD_CLOEXEC));
      const int two[] = {page->descriptor(), page->descriptor()};
      const int bad[] = {unsealed.get(), unsealed.get()};
      if (kind == 0) (void)send_packet(socket, &welcome, seal(welcome), two);
      if (kind == 1) (void)send_packet(socket, &welcome, seal(welcome));
      if (kind == 2) (void)send_packet(socket, &welcome, seal(welcome), bad);
      if (kind == 3) (void)send_packet(socket, "garbage", 7);
      if (kind == 4) (void)send_packet(socket, &welcome, 10);
    });
    Host host;
    host.transport.open(1, liar.record(), 0, 0, monotonic_now() + 30 * kSecond);
    const Status status = host.events.wait_down(1);
    EXPECT_TRUE(status.code() == Code::kProtocol || status.code() == Code::kNoResources)
        << kind << ": " << status.to_string();
  }
}

TEST(ShmLyingTarget, AnswersThatMakeNoSense) {
  const std::vector<std::function<void(RegionInfo&)>> lies{
      [](RegionInfo& info) { info.length = 0; },
      [](RegionInfo& info) { info.length = UINT64_MAX; },
      [](RegionInfo& info) { info.address = kAsked + 1; },
      [](RegionInfo& info) { info.slot = kSlots; },
      [](RegionInfo& info) { info.epoch = 0; },
      [](RegionInfo& info) { info.permission = 2; },
      [](RegionInfo& info) { info.backing = static_cast<Backing>(9); },
      [](RegionInfo& info) { info.file_offset = 1; },
      [](RegionInfo& info) { info.file_offset = UINT64_MAX; },
      [](RegionInfo& info) { info.length = 8192; },
  };
  for (size_t i = 0; i < lies.size(); ++i) {
    LyingTarget liar([&](int socket) {
      LyingTarget::welcome(socket);
      UniqueFd file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      ASSERT_EQ(ftruncate(file.get(), 4096), 0);
      ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
      RegionInfo info = good_info();
      lies[i](info);
      const int files[] = {file.get()};
      LyingTarget::answer(socket, info, files);
    });
    Host host;
    const uint64_t local = host.pool_memory(4096);
    const ChannelId channel = host.connect(liar.record());
    SlicePtr slice = host.make_slice(Opcode::kWrite, {{local, kAsked, 100}});
    host.transport.post(channel, std::move(slice));
    const Status status = host.events.wait_down(channel);
    EXPECT_EQ(status.code(), Code::kProtocol) << i << ": " << status.to_string();
  }
}

TEST(ShmLyingTarget, AFileThatCouldShrinkIsNotMapped) {
  LyingTarget liar([](int socket) {
    LyingTarget::welcome(socket);
    UniqueFd file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(file.get(), 4096), 0);
    const int files[] = {file.get()};
    LyingTarget::answer(socket, good_info(), files);
  });
  Host host;
  const uint64_t local = host.pool_memory(4096);
  const ChannelId channel = host.connect(liar.record());
  host.transport.post(channel, host.make_slice(Opcode::kWrite, {{local, kAsked, 100}}));
  EXPECT_EQ(host.events.wait_down(channel).code(), Code::kProtocol);
}

TEST(ShmLyingTarget, AMissingFileFailsTheSliceAlone) {
  LyingTarget liar([](int socket) {
    LyingTarget::welcome(socket);
    LyingTarget::answer(socket, good_info());
  });
  Host host;
  const uint64_t local = host.pool_memory(4096);
  const ChannelId channel = host.connect(liar.record());
  EXPECT_EQ(host.write(channel, local, kAsked, 100).code(), Code::kUnsupported);
}

TEST(ShmLyingTarget, AnswersThatNeverHelpComeToAnEnd) {
  LyingTarget liar([](int socket) {
    LyingTarget::welcome(socket);
    for (int i = 0; i < 100; ++i) {
      Lookup lookup{};
      if (!parse(next_packet(socket).bytes, &lookup)) return;
      Regions regions{};
      regions.request = lookup.request;
      if (!send_packet(socket, &regions, seal(regions, 0)).ok()) return;
    }
  });
  Host host;
  const uint64_t local = host.pool_memory(4096);
  const ChannelId channel = host.connect(liar.record());
  EXPECT_EQ(host.write(channel, local, kAsked, 100).code(), Code::kNotRegistered);
}

}  // namespace
}  // namespace tidewire::transport::shm
