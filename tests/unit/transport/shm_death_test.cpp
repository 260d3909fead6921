// SPDX-License-Identifier: Apache-2.0
//
// Peers in processes of their own that die or stop at bad moments.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "shm_support.h"

namespace tidewire::transport::shm {
namespace {

constexpr uint64_t kSize = 8 << 20;

// What a process tells another of its engine.
struct Introduction {
  InstanceId instance;
  char socket[100];
  uint64_t pool;
  uint64_t own;
};

Introduction introduce(Host& host) {
  Introduction introduction{};
  introduction.instance = host.instance;
  std::strncpy(introduction.socket, host.transport.socket_name().c_str(), sizeof introduction.socket - 1);
  introduction.pool = host.pool_memory(kSize);
  introduction.own = host.own_memory(kSize);
  return introduction;
}

PeerRecord record_of(const Introduction& introduction) {
  PeerRecord record;
  record.instance = introduction.instance;
  record.name = "the other process";
  record.host_id = host_id();
  record.same_host_socket = introduction.socket;
  return record;
}

// A forked process; created before this one starts threads. Ended with the test.
class Child {
 public:
  // `body` runs in the child, with the ends of two pipes.
  template <typename Body>
  explicit Child(Body&& body) {
    EXPECT_EQ(pipe(to_child_), 0);
    EXPECT_EQ(pipe(from_child_), 0);
    pid_ = fork();
    if (pid_ != 0) {
      close(to_child_[0]);
      close(from_child_[1]);
      return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(to_child_[1]);
    close(from_child_[0]);
    body(to_child_[0], from_child_[1]);
    _exit(0);
  }
  ~Child() {
    kill();
    close(to_child_[1]);
    close(from_child_[0]);
  }
  void signal(int number) const { ::kill(pid_, number); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  // Waits until the process is stopped.
  void stop() const {
    ::kill(pid_, SIGSTOP);
    waitpid(pid_, nullptr, WUNTRACED);
  }
  template <typename T>
  T receive() const {
    T value{};
    EXPECT_EQ(read(from_child_[0], &value, sizeof value), static_cast<ssize_t>(sizeof value));
    return value;
  }
  template <typename T>
  void send(const T& value) const {
    EXPECT_EQ(write(to_child_[1], &value, sizeof value), static_cast<ssize_t>(sizeof value));
  }

 private:
  pid_t pid_ = 0;
  int to_child_[2], from_child_[2];
};

void be_target(int, int out) {
  Host host;
  const Introduction introduction = introduce(host);
  if (write(out, &introduction, sizeof introduction) < 0) _exit(1);
  while (true) pause();
}

// Writes to the target's pool and own memory without end; tells of the first success of each.
void be_initiator(int in, int out) {
  Host host;
  Introduction target{};
  if (read(in, &target, sizeof target) != sizeof target) _exit(1);
  const uint64_t local = host.pool_memory(kSize);
  std::memset(bytes_at(local), 0x77, kSize);
  const ChannelId channel = host.connect(record_of(target));
  for (uint64_t round = 0;; ++round) {
    const bool good =
        host.write(channel, local, target.pool, kSize).ok() && host.write(channel, local, target.own, kSize).ok();
    if (round == 0 && write(out, &good, sizeof good) < 0) _exit(1);
    if (!good) pause();
  }
}

TEST(ShmDeath, AKilledTargetTakesTheChannelDownAndNothingElse) {
  for (int round = 0; round < 10; ++round) {
    Child child(be_target);
    const auto target = child.receive<Introduction>();
    Host host;
    const uint64_t local = host.pool_memory(kSize);
    const ChannelId channel = host.connect(record_of(target));
    ASSERT_TRUE(host.write(channel, local, target.pool, kSize).ok());
    ASSERT_TRUE(host.write(channel, local, target.own, kSize).ok());
    std::thread killer([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
      child.kill();
    });
    const Nanos patience = monotonic_now() + 30 * kSecond;
    bool down = false;
    while (!down && monotonic_now() < patience) {
      SlicePtr slice = host.make_slice(Opcode::kWrite, {{local, round % 2 ? target.pool : target.own, kSize}});
      const uint64_t id = slice->id;
      host.transport.post(channel, std::move(slice));
      while (host.transport.drive(channel)) {
      }
      ASSERT_TRUE(host.events.wait_terminal(id, channel));
      down = !host.events.is_done(id) || host.events.wait_done(id).code() != Code::kOk;
    }
    EXPECT_TRUE(down);
    EXPECT_EQ(host.events.wait_down(channel).code(), Code::kPeerGone);
    killer.join();
  }
}

TEST(ShmDeath, AKilledInitiatorDoesNotHoldUpUnregistration) {
  for (int round = 0; round < 10; ++round) {
    Child child(be_initiator);
    Host host;
    const Introduction self = introduce(host);
    child.send(self);
    ASSERT_TRUE(child.receive<bool>());
    std::this_thread::sleep_for(std::chrono::microseconds(700 * round));
    child.kill();
    const Nanos start = monotonic_now();
    ASSERT_TRUE(host.regions.remove(self.pool, 20 * kSecond).ok());
    ASSERT_TRUE(host.regions.remove(self.own, 20 * kSecond).ok());
    EXPECT_LT(monotonic_now() - start, 10 * kSecond) << "it waited for references of a dead process";
    std::memset(bytes_at(self.pool), 1, kSize);
    for (uint64_t i = 0; i < kSize; i += 512) ASSERT_EQ(bytes_at(self.pool)[i], 1);
  }
}

TEST(ShmDeath, AStoppedInitiatorIsCutOffAfterTheDrain) {
  Child child(be_initiator);
  Host host;
  const Introduction self = introduce(host);
  child.send(self);
  ASSERT_TRUE(child.receive<bool>());
  child.stop();
  ASSERT_TRUE(host.regions.remove(self.pool, 50 * kMillisecond).ok());
  ASSERT_TRUE(host.regions.remove(self.own, 50 * kMillisecond).ok());
  // Whether it was stopped within a copy or not: the engine is usable, for others and for itself.
  const uint64_t local = host.pool_memory(4096), remote = host.pool_memory(4096);
  const ChannelId channel = host.connect(host);
  EXPECT_TRUE(host.write(channel, local, remote, 4096).ok());
}

TEST(ShmDeath, AStoppedTargetBlocksNobody) {
  Child child(be_target);
  const auto target = child.receive<Introduction>();
  Host host;
  const uint64_t local = host.pool_memory(kSize);
  const ChannelId channel = host.connect(record_of(target));
  ASSERT_TRUE(host.write(channel, local, target.pool, kSize).ok());
  child.stop();
  EXPECT_TRUE(host.write(channel, local, target.pool, kSize).ok()) << "its memory is still there";
  // A region that has to be asked for waits; the caller doesn't, and closing ends it.
  SlicePtr slice = host.make_slice(Opcode::kWrite, {{local, target.own, 100}});
  const uint64_t id = slice->id;
  host.transport.post(channel, std::move(slice));
  EXPECT_FALSE(host.events.is_done(id));
  host.transport.close(channel, Status(Code::kTimeout, "test"));
  EXPECT_EQ(host.events.wait_down(channel).code(), Code::kTimeout);
  EXPECT_FALSE(host.events.is_done(id));
  // A new channel to it comes to its deadline.
  host.transport.open(50, record_of(target), 0, 0, monotonic_now() + 100 * kMillisecond);
  EXPECT_EQ(host.events.wait_down(50).code(), Code::kTimeout);
}

TEST(ShmDeath, AForkedChildOfTheTargetDoesNotHideItsDeath) {
  // The grandchild inherits all sockets and lives on.
  Child child([](int, int out) {
    Host host;
    Introduction introduction = introduce(host);
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      while (true) pause();
    }
    introduction.own = static_cast<uint64_t>(grandchild);
    if (write(out, &introduction, sizeof introduction) < 0) _exit(1);
    while (true) pause();
  });
  const auto target = child.receive<Introduction>();
  Host host;
  const ChannelId channel = host.connect(record_of(target));
  child.kill();
  EXPECT_EQ(host.events.wait_down(channel).code(), Code::kPeerGone);
  ::kill(static_cast<pid_t>(target.own), SIGKILL);
}

TEST(ShmDeath, NothingOfAKilledProcessStays) {
  std::string socket;
  {
    Child child(be_target);
    socket = child.receive<Introduction>().socket;
  }
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) EXPECT_EQ(line.find(socket), std::string::npos) << line;
}

}  // namespace
}  // namespace tidewire::transport::shm
