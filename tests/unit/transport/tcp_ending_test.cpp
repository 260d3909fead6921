// SPDX-License-Identifier: Apache-2.0
//
// Lanes that end: regions cut, lanes closed, peers gone, nothing touched afterwards, nothing left behind.
#include <dirent.h>

#include "base/log.h"
#include "tcp_raw_peer.h"

namespace tidewire::transport::tcp {
namespace {

size_t entries(const char* path) {
  size_t count = 0;
  DIR* directory = opendir(path);
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

// Looks at a byte that another thread may be placing.
__attribute__((no_sanitize("thread"))) uint8_t peek(const std::vector<uint8_t>& bytes) {
  return *static_cast<const volatile uint8_t*>(bytes.data());
}

// Forwards bytes from one socket to another at a bounded pace: a slow link between an initiator and its target.
class SlowLink {
 public:
  SlowLink(UniqueFd from, UniqueFd to, size_t chunk, std::chrono::microseconds pause)
      : from_(std::move(from)),
        to_(std::move(to)),
        forward_([this, chunk, pause] { copy(from_.get(), to_.get(), chunk, pause); }),
        back_([this] { copy(to_.get(), from_.get(), 64 << 10, 0us); }) {}
  ~SlowLink() {
    shutdown(from_.get(), SHUT_RDWR);
    shutdown(to_.get(), SHUT_RDWR);
    forward_.join();
    back_.join();
  }

 private:
  static void copy(int from, int to, size_t chunk, std::chrono::microseconds pause) {
    fcntl(from, F_SETFL, 0);
    fcntl(to, F_SETFL, 0);
    std::vector<uint8_t> buffer(chunk);
    for (;;) {
      const ssize_t got = recv(from, buffer.data(), buffer.size(), 0);
      if (got <= 0) break;
      if (pause.count() > 0) std::this_thread::sleep_for(pause);
      for (ssize_t sent = 0; sent < got;) {
        const ssize_t now = send(to, buffer.data() + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
        if (now <= 0) return;
        sent += now;
      }
    }
    shutdown(to, SHUT_WR);
  }
  UniqueFd from_, to_;
  std::thread forward_, back_;
};

class TcpEnding : public testing::Test {
 protected:
  void SetUp() override {
    local_ = pattern(kSize, 1);
    remote_.assign(kSize, 0xEE);
  }
  void make(Settings settings = {}) {
    pair_ = std::make_unique<TcpPair>(settings);
    ASSERT_TRUE(pair_->initiator.regions.add(address_of(local_.data()), kSize, "cpu:0", Permission::kNone).ok());
    ASSERT_TRUE(pair_->target.regions.add(address_of(remote_.data()), kSize, "cpu:0", Permission::kReadWrite).ok());
  }
  // A lane whose bytes pass through a slow link.
  ChannelId open_slow(size_t chunk, std::chrono::microseconds pause) {
    UniqueFd near;
    pair_->intercept = [&](uint64_t, UniqueFd fd) { near = std::move(fd); };
    const ChannelId channel = pair_->open();
    pair_->intercept = nullptr;
    auto [far, server] = connected_pair();
    pair_->target.transport->accept(std::move(server), pair_->initiator.instance, "initiator", channel, 0);
    links_.push_back(std::make_unique<SlowLink>(std::move(near), std::move(far), chunk, pause));
    return channel;
  }
  Piece all() { return {address_of(local_.data()), address_of(remote_.data()), kSize}; }

  static constexpr size_t kSize = 24 << 20;
  std::vector<uint8_t> local_, remote_;
  std::unique_ptr<TcpPair> pair_;
  std::vector<std::unique_ptr<SlowLink>> links_;
};

// B01: done means that the bytes are there, not that a socket has taken them.
TEST_F(TcpEnding, DoneComesAfterTheLastByteIsInPlace) {
  make();
  const ChannelId channel = open_slow(256 << 10, 300us);
  bool complete = false;
  pair_->initiator.events.on_done = [&](ChannelId, const SlicePtr& slice, const Status&) {
    complete = std::memcmp(local_.data(), remote_.data(), slice->bytes) == 0;
  };
  for (uint64_t round = 0; round < 10; ++round) {
    constexpr size_t kBytes = 8 << 20;
    fill_pattern(local_.data(), kBytes, round + 100);
    complete = false;
    ASSERT_TRUE(pair_->transfer(channel, Opcode::kWrite, {{all().local, all().remote, kBytes}}).ok());
    EXPECT_TRUE(complete) << round;
  }
}

TEST_F(TcpEnding, NothingIsReadFromTheSourceAfterDown) {
  make();
  for (int round = 0; round < 20; ++round) {
    const ChannelId channel = pair_->open();
    fill_bytes(local_, 0x11);
    fill_bytes(remote_, 0x00);
    pair_->initiator.events.on_down = [&](ChannelId) { fill_bytes(local_, 0x99); };
    for (size_t i = 0; i < 6; ++i) {
      pair_->initiator.transport->post(
          channel,
          pair_->slice(Opcode::kWrite, {{all().local + i * (4 << 20), all().remote + i * (4 << 20), 4 << 20}}));
      if (i == static_cast<size_t>(round % 6))
        pair_->initiator.transport->close(channel, Status(Code::kCanceled, "test"));
    }
    EXPECT_EQ(pair_->initiator.events.wait_down(channel).code(), Code::kCanceled);
    // What is still on its way ends with the target's lane; a revocation over another lane awaits that.
    const ChannelId via = pair_->open();
    pair_->initiator.transport->revoke(via, channel);
    ASSERT_TRUE(pair_->initiator.events.wait([&] { return pair_->initiator.events.revoked[channel] == 1; }));
    EXPECT_EQ(std::memchr(remote_.data(), 0x99, remote_.size()), nullptr) << round;
    pair_->initiator.events.on_down = nullptr;
    pair_->initiator.transport->close(via, Status());
    EXPECT_EQ(pair_->initiator.events.wait_down(via).code(), Code::kClosed);
  }
}

TEST_F(TcpEnding, CloseIsAnsweredOnceAndSlicesAreRefusedAfterwards) {
  make();
  const ChannelId channel = pair_->open();
  for (int i = 0; i < 3; ++i) pair_->initiator.transport->close(channel, Status());
  EXPECT_EQ(pair_->initiator.events.wait_down(channel).code(), Code::kClosed);
  EXPECT_EQ(pair_->transfer(channel, Opcode::kWrite, {all()}).code(), Code::kUnreachable);
  pair_->initiator.transport->close(channel, Status());
  EXPECT_FALSE(pair_->initiator.transport->drive(channel));
  std::lock_guard lock(pair_->initiator.events.mutex);
  EXPECT_EQ(pair_->initiator.events.down[channel].size(), 1u);
}

TEST_F(TcpEnding, ARegionThatGoesAtTheTargetFailsTheWriteAndKeepsTheLane) {
  make();
  const ChannelId channel = open_slow(256 << 10, 3000us);
  SlicePtr slice = pair_->slice(Opcode::kWrite, {all()});
  const uint64_t id = slice->id;
  pair_->initiator.transport->post(channel, std::move(slice));
  const auto stop = std::chrono::steady_clock::now() + kHardStop;
  while (peek(remote_) == 0xEE && std::chrono::steady_clock::now() < stop) std::this_thread::yield();
  (void)pair_->target.regions.remove(address_of(remote_.data()), 0);
  const std::vector<uint8_t> after = remote_;
  EXPECT_EQ(pair_->initiator.events.wait_done(id).code(), Code::kNotRegistered);
  EXPECT_TRUE(remote_ == after) << "bytes placed after the region was removed";
  ASSERT_TRUE(pair_->target.regions.add(address_of(remote_.data()), kSize, "cpu:0", Permission::kReadWrite).ok());
  EXPECT_TRUE(pair_->transfer(channel, Opcode::kWrite, {{all().local, all().remote, 1000}}).ok())
      << "the lane is still good";
}

TEST_F(TcpEnding, ARegionThatGoesAtTheTargetFailsTheReadAndKeepsTheLane) {
  make();
  ChannelId channel;
  UniqueFd near;
  pair_->intercept = [&](uint64_t, UniqueFd fd) { near = std::move(fd); };
  channel = pair_->open();
  pair_->intercept = nullptr;
  auto [far, server] = connected_pair();
  pair_->target.transport->accept(std::move(server), pair_->initiator.instance, "initiator", channel, 0);
  // The other way round: the data passes slowly.
  links_.push_back(std::make_unique<SlowLink>(std::move(far), std::move(near), 256 << 10, 3000us));
  SlicePtr slice = pair_->slice(Opcode::kRead, {all()});
  const uint64_t id = slice->id;
  fill_bytes(local_, 0);
  pair_->initiator.transport->post(channel, std::move(slice));
  const auto stop = std::chrono::steady_clock::now() + kHardStop;
  while (peek(local_) != 0xEE && std::chrono::steady_clock::now() < stop) std::this_thread::yield();
  (void)pair_->target.regions.remove(address_of(remote_.data()), 0);
  fill_bytes(remote_, 0x77);
  EXPECT_EQ(pair_->initiator.events.wait_done(id).code(), Code::kNotRegistered);
  EXPECT_EQ(std::memchr(local_.data(), 0x77, local_.size()), nullptr);
  ASSERT_TRUE(pair_->target.regions.add(address_of(remote_.data()), kSize, "cpu:0", Permission::kReadWrite).ok());
  EXPECT_TRUE(pair_->transfer(channel, Opcode::kRead, {{all().local, all().remote, 1000}}).ok());
}

TEST_F(TcpEnding, ALocalRegionThatGoesMidwayResetsTheLaneOrFailsTheSlice) {
  make();
  fill_bytes(local_, 0x11);
  const ChannelId channel = open_slow(256 << 10, 3000us);
  SlicePtr first = pair_->slice(Opcode::kWrite, {all()}), second = pair_->slice(Opcode::kWrite, {all()});
  pair_->initiator.transport->post(channel, std::move(first));
  pair_->initiator.transport->post(channel, std::move(second));
  (void)pair_->initiator.regions.remove(address_of(local_.data()), 0);
  fill_bytes(local_, 0x99);
  EXPECT_EQ(pair_->initiator.events.wait_down(channel).code(), Code::kNotRegistered);
  links_.clear();
  pair_->target.transport->stop();  // what was on its way has been placed or thrown away
  EXPECT_EQ(std::memchr(remote_.data(), 0x99, remote_.size()), nullptr);
  EXPECT_TRUE(pair_->initiator.regions.add(address_of(local_.data()), kSize, "cpu:0", Permission::kNone).ok());
}

TEST_F(TcpEnding, APeerThatGoesIsNoticedAtOnce) {
  make();
  UniqueFd server;
  pair_->intercept = [&](uint64_t, UniqueFd fd) { server = std::move(fd); };
  const ChannelId channel = pair_->open();
  pair_->initiator.transport->post(channel, pair_->slice(Opcode::kWrite, {all()}));
  server.reset();
  EXPECT_EQ(pair_->initiator.events.wait_down(channel).code(), Code::kPeerGone);
}

TEST_F(TcpEnding, AStoppedTargetApplicationIsLeftToTheDeadlines) {
  Settings settings;
  settings.stall_timeout = 50 * kMillisecond;
  make(settings);
  UniqueFd server;
  pair_->intercept = [&](uint64_t, UniqueFd fd) { server = std::move(fd); };
  const ChannelId channel = pair_->open();
  pair_->initiator.transport->post(channel, pair_->slice(Opcode::kWrite, {all()}));  // more than the kernels buffer
  {
    std::unique_lock lock(pair_->initiator.events.mutex);
    pair_->initiator.events.changed.wait_for(lock, 700ms,
                                             [&] { return pair_->initiator.events.down.count(channel) > 0; });
    EXPECT_EQ(pair_->initiator.events.down.count(channel), 0u);
  }
  pair_->initiator.transport->close(channel, Status(Code::kTimeout, "deadline"));
  EXPECT_EQ(pair_->initiator.events.wait_down(channel).code(), Code::kTimeout);
}

TEST_F(TcpEnding, IdleLanesCloseButNotWorkingOnes) {
  Settings settings;
  settings.idle_close = 300 * kMillisecond;
  make(settings);
  const ChannelId channel = open_slow(256 << 10, 10'000us);
  const Nanos begin = monotonic_now();
  ASSERT_TRUE(pair_->transfer(channel, Opcode::kWrite, {all()}).ok())
      << "took longer than idle_close and was not closed";
  EXPECT_GT(monotonic_now() - begin, settings.idle_close);
  EXPECT_EQ(pair_->initiator.events.wait_down(channel).code(), Code::kClosed);
}

TEST_F(TcpEnding, AttemptsEndWithTheDialersStatusOrAtTheDeadline) {
  RegionTable regions;
  Recorder events;
  std::function<void(Status, UniqueFd, InstanceId)> late;
  {
    TcpTransport transport(regions, Settings{}, events,
                           [&](const std::string& local, const std::string& remote, const InstanceId&, uint64_t channel,
                               Nanos, std::function<void(Status, UniqueFd, InstanceId)> done) {
                             EXPECT_EQ(local, "127.0.0.1");
                             EXPECT_EQ(remote, "127.0.0.1:9");
                             if (channel == 1) done(Status(Code::kPeerGone, "restarted"), UniqueFd(), InstanceId{5});
                             if (channel == 2) late = done;
                           },
                           {{"tcp", "lo", "127.0.0.1:1", 0}});
    PeerRecord record;
    record.rails = {{"tcp", "lo", "127.0.0.1:9", 0}};
    transport.open(1, record, 0, 0, monotonic_now() + 10 * kSecond);
    EXPECT_EQ(events.wait_down(1).code(), Code::kPeerGone);
    EXPECT_EQ(events.seen[1], InstanceId{5});
    transport.open(2, record, 0, 0, monotonic_now() + 50 * kMillisecond);
    EXPECT_EQ(events.wait_down(2).code(), Code::kTimeout);
    late(Status(), connected_pair().first, InstanceId{});
    transport.open(3, record, 7, 0, monotonic_now() + 10 * kSecond);
    EXPECT_EQ(events.wait_down(3).code(), Code::kInvalidArgument);
    transport.open(2, record, 0, 0, monotonic_now() + 10 * kSecond);
    transport.stop();
    EXPECT_EQ(events.down[2].size(), 2u);
  }
  late(Status(), connected_pair().first, InstanceId{});  // after the transport is gone
  EXPECT_EQ(events.up.size(), 0u);
}

TEST_F(TcpEnding, DescriptorsAndThreadsComeBackToTheirLevel) {
  make();
  pair_.reset();
  const size_t descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  for (int round = 0; round < 10; ++round) {
    make();
    std::vector<ChannelId> channels;
    for (int i = 0; i < 20; ++i) channels.push_back(pair_->open());
    const uint64_t part = all().length / channels.size();  // each its own: nothing orders writes of different channels
    for (size_t i = 0; i < channels.size(); ++i)
      pair_->initiator.transport->post(
          channels[i], pair_->slice(Opcode::kWrite, {{all().local + i * part, all().remote + i * part, part}}));
    for (size_t i = 0; i < channels.size(); i += 2) pair_->initiator.transport->close(channels[i], Status());
    if (round % 2) pair_->target.transport->stop();
    pair_->initiator.transport->stop();
    for (const ChannelId channel : channels) EXPECT_FALSE(pair_->initiator.events.wait_down(channel).ok());
    pair_.reset();
    EXPECT_EQ(entries("/proc/self/fd"), descriptors);
    EXPECT_EQ(entries("/proc/self/task"), threads);
  }
}

TEST_F(TcpEnding, AnIdleTransportUsesNoProcessorTime) {
  make();
  const ChannelId channel = pair_->open();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(pair_->transfer(channel, Opcode::kWrite, {{all().local, all().remote, 64}}).ok());
  }
  std::this_thread::sleep_for(1500ms);  // lanes doze a second after their last work
  timespec before{}, after{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(1s);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const int64_t used = (after.tv_sec - before.tv_sec) * kSecond + after.tv_nsec - before.tv_nsec;
  EXPECT_LT(used, 5 * kMillisecond);
  // And it wakes up again.
  EXPECT_TRUE(pair_->transfer(channel, Opcode::kWrite, {all()}).ok());
}

}  // namespace
}  // namespace tidewire::transport::tcp
