// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the same-host transport share: an Events that can be waited on, an engine's worth of memory and
// transport, slices.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "memory/pool.h"
#include "memory/region.h"
#include "transport/shm/shm_transport.h"

namespace tidewire::transport::shm {

constexpr auto kHardStop = std::chrono::seconds(60);

class RecordedEvents : public Events {
 public:
  void on_channel_up(ChannelId channel) override {
    std::lock_guard lock(mutex_);
    up_.insert(channel);
    changed_.notify_all();
  }
  void on_channel_down(ChannelId channel, const Status& why, const InstanceId& seen) override {
    std::lock_guard lock(mutex_);
    EXPECT_FALSE(down_.contains(channel)) << "reported down twice";
    down_[channel] = why;
    seen_[channel] = seen;
    changed_.notify_all();
  }
  void on_slice_done(ChannelId channel, const SlicePtr& slice, const Status& status) override {
    std::lock_guard lock(mutex_);
    EXPECT_TRUE(!down_.contains(channel) || status.code() == Code::kUnreachable)
        << "a slice was done after its channel was down";
    EXPECT_FALSE(done_.contains(slice->id)) << "done twice";
    done_[slice->id] = status;
    changed_.notify_all();
  }
  void on_revoked(ChannelId victim) override {
    std::lock_guard lock(mutex_);
    revoked_.insert(victim);
    changed_.notify_all();
  }

  bool wait_up(ChannelId channel) {
    if (!wait([&] { return up_.contains(channel) || down_.contains(channel); })) return false;
    std::lock_guard lock(mutex_);
    return up_.contains(channel);
  }
  Status wait_down(ChannelId channel) {
    if (!wait([&] { return down_.contains(channel); }))
      return Status(Code::kInternal, "hard stop: the channel did not go down");
    std::lock_guard lock(mutex_);
    return down_[channel];
  }
  InstanceId seen(ChannelId channel) {
    std::lock_guard lock(mutex_);
    return seen_[channel];
  }
  bool is_done(uint64_t slice) {
    std::lock_guard lock(mutex_);
    return done_.contains(slice);
  }
  Status wait_done(uint64_t slice) {
    if (!wait([&] { return done_.contains(slice); }))
      return Status(Code::kInternal, "hard stop: the slice was not done");
    std::lock_guard lock(mutex_);
    return done_[slice];
  }
  // Until the slice is done or its channel is down.
  bool wait_terminal(uint64_t slice, ChannelId channel) {
    return wait([&] { return done_.contains(slice) || down_.contains(channel); });
  }
  bool wait_revoked(ChannelId channel) {
    return wait([&] { return revoked_.contains(channel); });
  }

 private:
  template <typename Condition>
  bool wait(Condition&& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kHardStop, condition);
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<ChannelId> up_, revoked_;
  std::map<ChannelId, Status> down_;
  std::map<ChannelId, InstanceId> seen_;
  std::map<uint64_t, Status> done_;
};

// Pool, regions, transport: an engine as far as this transport sees one.
class Host {
 public:
  explicit Host(const std::string& secret = "", Settings settings = {})
      : instance(make_instance_id()),
        transport(regions, LocalIdentity{instance, "127.0.0.1:1", secret}, settings, events) {}
  ~Host() {
    transport.stop();
    regions.clear();
  }

  PeerRecord record() const {
    PeerRecord record;
    record.instance = instance;
    record.name = "127.0.0.1:1";
    record.host_id = host_id();
    record.same_host_socket = transport.socket_name();
    record.rails = transport.rails();
    return record;
  }

  uint64_t pool_memory(uint64_t length, Permission permission = Permission::kReadWrite) {
    auto allocation = pool.allocate(length, "*");
    EXPECT_TRUE(allocation.ok()) << allocation.status().to_string();
    EXPECT_TRUE(regions.add(allocation->address, length, "*", permission, allocation->backing).ok());
    return allocation->address;
  }

  uint64_t own_memory(uint64_t length, Permission permission = Permission::kReadWrite) {
    buffers.emplace_back(new char[length]());
    const auto address = reinterpret_cast<uint64_t>(buffers.back().get());
    EXPECT_TRUE(regions.add(address, length, "*", permission).ok());
    return address;
  }

  // Opens a channel and waits until it is up.
  ChannelId connect(const Host& target) { return connect(target.record()); }
  ChannelId connect(const PeerRecord& target) {
    const ChannelId channel = ++next_channel;
    transport.open(channel, target, 0, 0, monotonic_now() + 30 * kSecond);
    EXPECT_TRUE(events.wait_up(channel)) << "the channel did not come up: " << events.wait_down(channel).to_string();
    return channel;
  }

  SlicePtr make_slice(Opcode opcode, std::vector<Piece> pieces) {
    auto slice = std::make_shared<Slice>();
    slice->id = ++next_slice;
    slice->opcode = opcode;
    slice->pieces = std::move(pieces);
    for (const Piece& piece : slice->pieces) {
      slice->bytes += piece.length;
      const Status status = regions.use(piece.local, piece.length, Access::kLocal, slice->hold);
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    return slice;
  }

  Status transfer(ChannelId channel, Opcode opcode, std::vector<Piece> pieces) {
    SlicePtr slice = make_slice(opcode, std::move(pieces));
    const uint64_t id = slice->id;
    transport.post(channel, std::move(slice));
    while (transport.drive(channel)) {
    }
    return events.wait_done(id);
  }
  Status write(ChannelId channel, uint64_t local, uint64_t remote, uint64_t length) {
    return transfer(channel, Opcode::kWrite, {{local, remote, length}});
  }
  Status read(ChannelId channel, uint64_t local, uint64_t remote, uint64_t length) {
    return transfer(channel, Opcode::kRead, {{local, remote, length}});
  }

  InstanceId instance;
  Pool pool;
  std::vector<std::unique_ptr<char[]>> buffers;
  RegionTable regions;
  RecordedEvents events;
  ShmTransport transport;
  ChannelId next_channel = 0;
  std::atomic<uint64_t> next_slice{0};
};

inline char* bytes_at(uint64_t address) {
  return reinterpret_cast<char*>(address);
}

inline void fill_pattern(uint64_t address, uint64_t length, unsigned seed) {
  std::mt19937_64 random(seed);
  uint64_t i = 0;
  for (; i + 8 <= length; i += 8) {
    const uint64_t value = random();
    std::memcpy(bytes_at(address + i), &value, 8);
  }
  for (; i < length; ++i) bytes_at(address)[i] = static_cast<char>(random());
}

inline size_t open_descriptors() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += !entry.path().empty();
  return count;
}

inline size_t running_threads() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) count += !entry.path().empty();
  return count;
}

}  // namespace tidewire::transport::shm
