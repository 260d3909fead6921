// SPDX-License-Identifier: Apache-2.0
//
// What bench/store_master.cpp plays: a real master as a process of its own, and clients of it that lend memory and put
// objects, without engines. Their inventories are real; the memory that they lend is made up and never touched.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "store/client/membership.h"
#include "store/rpc/link.h"

namespace bench {

using tidewire::Nanos;
namespace store = tidewire::store;

// What goes wrong ends the program with a text.
struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr size_t kBatch = 100;  // keys of a put
constexpr uint64_t kObjectBytes = 4096;

// Different for each number, 64 bytes, without order: as hashes of prefixes are.
std::string key_of(uint64_t number);

// Puts the calling process, or one that is about to be started, on the index-th processor that this program may use.
void pin_process(unsigned index);

// `tidewire master` on the first processor. Killed with the object; its journal goes too.
class MasterProcess {
 public:
  explicit MasterProcess(std::string program, std::vector<std::string> flags = {});
  ~MasterProcess();
  MasterProcess(const MasterProcess&) = delete;

  const std::string& address() const { return address_; }
  // SIGKILL, and the process is gone when this returns.
  void kill();
  // Again, with the same port and journal.
  void start();
  double processor_seconds() const;  // used so far
  uint64_t resident_bytes() const;

 private:
  const std::string program_;
  const std::vector<std::string> flags_;
  std::string journal_, address_ = "127.0.0.1:auto";
  pid_t pid_ = -1;
};

// A client with one segment (none when `segment_bytes` is 0). All functions may be called from any thread but the
// link's; callbacks run on the link's.
class Player final : private store::Membership::Io, private store::MasterLink::Events {
 public:
  Player(const std::string& master, unsigned number, uint64_t segment_bytes);
  ~Player() override;

  void wait_attached() const;
  bool attached() const { return attached_.load(); }
  void grow(uint64_t segment_bytes);
  bool has_space();  // whether the master gives out space in this player's segment
  store::MasterLink& link() { return *link_; }
  // Space, records of the owners, end. `done` gets how it ended for each key, or nothing when the connection broke.
  void put(std::vector<std::string> keys, std::function<void(const std::vector<store::Code>&)> done);

 private:
  void ask(store::Body request, std::function<void(const store::Body*)> done) override;
  void answer(uint64_t request, store::Body body) override { link_->answer(request, std::move(body)); }
  void quiet(const store::Quiet&, std::function<void()> done) override { done(); }
  void on_standing() override { attached_.store(membership_->attached()); }
  void on_up() override;
  void on_down(const tidewire::Status&) override { membership_->on_disconnected(); }
  void on_request(uint64_t request, store::Body body) override;
  void tick();
  void end(const store::PutStartAnswer& started, std::vector<std::string> keys,
           std::function<void(const std::vector<store::Code>&)> done);

  const std::string name_;
  std::unique_ptr<store::MasterLink> link_;
  std::unique_ptr<store::Membership> membership_;
  Nanos ticking_at_ = tidewire::kNever;
  std::atomic<bool> attached_{false};
};
using Players = std::vector<std::unique_ptr<Player>>;

// Players that the master knows and gives space on.
Players make_players(const std::string& master, unsigned count, uint64_t segment_bytes);

// Puts objects [first, last) in batches, several outstanding at each player; returns when all are acknowledged.
void fill(Players& players, uint64_t first, uint64_t last, unsigned outstanding = 4);

// Requests that are under way, for a thread that waits for the last of them.
class Open {
 public:
  void begin() {
    std::lock_guard lock(mutex_);
    ++count_;
  }
  void end() {
    std::lock_guard lock(mutex_);
    if (--count_ == 0) none_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    none_.wait(lock, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_;
  size_t count_ = 0;
};

}  // namespace bench
