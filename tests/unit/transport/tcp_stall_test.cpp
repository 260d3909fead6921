// SPDX-License-Identifier: Apache-2.0
//
// Links that die without a word: the loopback interface of a network namespace of the test's own is taken down under a
// lane.
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>

#include "tcp_raw_peer.h"

namespace tidewire::transport::tcp {
namespace {

void set_loopback(bool up) {
  UniqueFd control(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = up ? IFF_UP : 0;
  ASSERT_EQ(ioctl(control.get(), SIOCSIFFLAGS, &request), 0);
}

// Runs `body` on a thread whose sockets live in a namespace of their own; skips where that is not permitted.
void in_own_network(const std::function<void()>& body) {
  bool permitted = true;
  std::thread thread([&] {
    permitted = unshare(CLONE_NEWNET) == 0;
    if (!permitted) return;
    set_loopback(true);
    body();
  });
  thread.join();
  if (!permitted) GTEST_SKIP() << "needs the right to make a network namespace";
}

TEST(TcpStall, ADeadLinkUnderAWriteIsGivenUp) {
  in_own_network([] {
    TcpPair pair;
    std::vector<uint8_t> local(64 << 20), remote(64 << 20);
    ASSERT_TRUE(pair.initiator.regions.add(address_of(local.data()), local.size(), "cpu:0", Permission::kNone).ok());
    ASSERT_TRUE(
        pair.target.regions.add(address_of(remote.data()), remote.size(), "cpu:0", Permission::kReadWrite).ok());
    const ChannelId channel = pair.open();
    ASSERT_TRUE(
        pair.transfer(channel, Opcode::kWrite, {{address_of(local.data()), address_of(remote.data()), 1000}}).ok());
    set_loopback(false);
    const Nanos begin = monotonic_now();
    pair.initiator.transport->post(
        channel, pair.slice(Opcode::kWrite, {{address_of(local.data()), address_of(remote.data()), local.size()}}));
    const Status down = pair.initiator.events.wait_down(channel);
    EXPECT_EQ(down.code(), Code::kTimeout) << down.to_string();
    EXPECT_NE(down.message().find("stalled"), std::string::npos) << down.message();
    EXPECT_GE(monotonic_now() - begin, Settings{}.stall_timeout);
    EXPECT_LT(monotonic_now() - begin, 20 * Settings{}.stall_timeout);
  });
}

TEST(TcpStall, ADeadLinkShowsAlsoWhileOnlyAnAnswerIsAwaited) {
  in_own_network([] {
    TcpPair pair;
    UniqueFd server;
    pair.intercept = [&](uint64_t, UniqueFd fd) { server = std::move(fd); };
    std::vector<uint8_t> local(1 << 20);
    ASSERT_TRUE(pair.initiator.regions.add(address_of(local.data()), local.size(), "cpu:0", Permission::kNone).ok());
    const ChannelId channel = pair.open();
    RawPeer target(std::move(server));
    pair.initiator.transport->post(channel, pair.slice(Opcode::kRead, {{address_of(local.data()), 1, 1000}}));
    // The request arrives; the target stays silent. As long as the link lives that is the deadline's business.
    wire::Header header;
    uint8_t bytes[wire::kHeaderBytes + wire::kPieceBytes];
    ASSERT_TRUE(target.receive(bytes, sizeof(bytes)));
    ASSERT_TRUE(target.receive_header(header));
    EXPECT_EQ(header.type, wire::Type::kPing);
    {
      std::unique_lock lock(pair.initiator.events.mutex);
      pair.initiator.events.changed.wait_for(lock, 1500ms, [&] { return !pair.initiator.events.down.empty(); });
      EXPECT_TRUE(pair.initiator.events.down.empty());
    }
    set_loopback(false);
    const Status down = pair.initiator.events.wait_down(channel);
    EXPECT_EQ(down.code(), Code::kTimeout) << down.to_string();
  });
}

}  // namespace
}  // namespace tidewire::transport::tcp
