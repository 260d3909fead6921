// SPDX-License-Identifier: Apache-2.0
//
// Two TcpTransports of one process, joined over loopback without any control plane: for tests of the transport alone.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "memory/test_device.h"
#include "transport/tcp/tcp_transport.h"

namespace tidewire::transport::tcp {

using namespace std::chrono_literals;
constexpr auto kHardStop = 60s;

inline std::pair<UniqueFd, UniqueFd> connected_pair() {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  socklen_t size = sizeof(address);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  UniqueFd server(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  fcntl(client.get(), F_SETFL, O_NONBLOCK);
  const int one = 1;
  setsockopt(client.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  setsockopt(server.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  return {std::move(client), std::move(server)};
}

// Remembers what happened and lets a test wait for it.
class Recorder : public Events {
 public:
  void on_channel_up(ChannelId channel) override {
    note([&] { up[channel]++; });
  }
  void on_channel_down(ChannelId channel, const Status& why, const InstanceId& instance) override {
    if (on_down) on_down(channel);
    note([&] {
      down[channel].push_back(why);
      seen[channel] = instance;
    });
  }
  void on_slice_done(ChannelId channel, const SlicePtr& slice, const Status& status) override {
    if (on_done) on_done(channel, slice, status);
    note([&] { done[slice->id].push_back(status); });
  }
  void on_revoked(ChannelId victim) override {
    note([&] { revoked[victim]++; });
  }

  // Whether `condition` (evaluated under the lock) came true before the hard stop.
  template <typename Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kHardStop, condition);
  }
  bool wait_up(ChannelId channel) {
    return wait([&] { return up.count(channel) || down.count(channel); }) && up.count(channel);
  }
  Status wait_down(ChannelId channel) {
    EXPECT_TRUE(wait([&] { return down.count(channel) > 0; })) << "channel " << channel << " did not go down";
    std::lock_guard lock(mutex);
    return down[channel].empty() ? Status() : down[channel].front();
  }
  Status wait_done(uint64_t slice) {
    if (!wait([&] { return done.count(slice) > 0; })) return Status(Code::kInternal, "test: hard stop");
    std::lock_guard lock(mutex);
    EXPECT_EQ(done[slice].size(), 1u);
    return done[slice].front();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::map<ChannelId, int> up, revoked;
  std::map<ChannelId, std::vector<Status>> down;
  std::map<ChannelId, InstanceId> seen;
  std::map<uint64_t, std::vector<Status>> done;
  std::function<void(ChannelId)> on_down;
  std::function<void(ChannelId, const SlicePtr&, const Status&)> on_done;

 private:
  template <typename Change>
  void note(Change change) {
    std::lock_guard lock(mutex);
    change();
    changed.notify_all();
  }
};

struct Side {
  explicit Side(const Settings& settings, Dial dial = {})
      : instance(make_instance_id()),
        transport(std::make_unique<TcpTransport>(regions, settings, events, std::move(dial),
                                                 std::vector<RailRecord>{{"tcp", "lo", "127.0.0.1:1", 0}})) {}
  ~Side() {
    transport.reset();
    regions.clear();
  }
  InstanceId instance;
  RegionTable regions;
  Recorder events;
  std::unique_ptr<TcpTransport> transport;
};

class TcpPair {
 public:
  explicit TcpPair(Settings settings = {})
      : target(settings),
        initiator(settings, [this](const std::string&, const std::string&, const InstanceId&, uint64_t channel, Nanos,
                                   std::function<void(Status, UniqueFd, InstanceId)> done) {
          auto [client, server] = connected_pair();
          if (intercept) {
            intercept(channel, std::move(server));
          } else {
            target.transport->accept(std::move(server), initiator.instance, "initiator", channel, 0);
          }
          done(Status(), std::move(client), target.instance);
        }) {
    record.instance = target.instance;
    record.name = "target";
    record.rails = {{"tcp", "lo", "127.0.0.1:1", 0}};
  }

  ChannelId open() {
    const ChannelId channel = next_channel++;
    initiator.transport->open(channel, record, 0, 0, monotonic_now() + 10 * kSecond);
    EXPECT_TRUE(initiator.events.wait_up(channel));
    return channel;
  }
  // The slice, its local ranges held; not posted.
  SlicePtr slice(Opcode opcode, std::vector<Piece> pieces) {
    auto made = std::make_shared<Slice>();
    made->id = next_slice++;
    made->opcode = opcode;
    made->pieces = std::move(pieces);
    for (const Piece& piece : made->pieces) {
      made->bytes += piece.length;
      const Status used = initiator.regions.use(piece.local, piece.length, Access::kLocal, made->hold);
      EXPECT_TRUE(used.ok()) << used.to_string();
    }
    return made;
  }
  Status transfer(ChannelId channel, Opcode opcode, std::vector<Piece> pieces) {
    SlicePtr made = slice(opcode, std::move(pieces));
    const uint64_t id = made->id;
    initiator.transport->post(channel, std::move(made));
    return initiator.events.wait_done(id);
  }

  std::function<void(uint64_t, UniqueFd)> intercept;  // gets the target's end instead of the target
  ChannelId next_channel = 1;
  uint64_t next_slice = 1;
  PeerRecord record;
  Side target;
  Side initiator;
};

// Bytes that show any shift, truncation or stale block.
inline void fill_pattern(uint8_t* bytes, size_t size, uint64_t seed) {
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (size_t i = 0; i < size; i += sizeof(state)) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(bytes + i, &state, std::min(sizeof(state), size - i));
  }
}
// Whole blocks at a time: the sanitizers pay for each byte that a loop touches.
inline void fill_bytes(std::vector<uint8_t>& bytes, uint8_t value) {
  std::memset(bytes.data(), value, bytes.size());
}
inline bool all_are(const uint8_t* bytes, size_t size, uint8_t value) {
  return size == 0 || (bytes[0] == value && std::memcmp(bytes, bytes + 1, size - 1) == 0);
}
inline std::vector<uint8_t> pattern(size_t size, uint64_t seed) {
  std::vector<uint8_t> bytes(size);
  fill_pattern(bytes.data(), size, seed);
  return bytes;
}
inline uint64_t address_of(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

}  // namespace tidewire::transport::tcp
