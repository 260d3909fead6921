// SPDX-License-Identifier: Apache-2.0
//
// tidewire.hpp: the C++ interface, header-only over tidewire.h. RAII for engines, memory, peers and batches; errors are exceptions of type
// tidewire::client::Error. All objects may be used from any thread; an Engine must outlive what was made from it.
//
//   tidewire::client::Engine engine("10.0.0.1");
//   auto buffer = engine.allocate(1 << 20);
//   auto peer = engine.open("10.0.0.2:4000");
//   engine.write(peer, buffer.data(), remote_address, 4096).wait();
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tidewire/tidewire.h"

namespace tidewire::client {

class Error : public std::runtime_error {
 public:
  Error(tw_code code, const std::string& text) : std::runtime_error(std::string(tw_code_name(code)) + ": " + text), code_(code) {}
  tw_code code() const { return code_; }

 private:
  tw_code code_;
};

inline void check(tw_code code) {
  if (code != TW_OK) throw Error(code, tw_last_error());
}

// Several transfers in flight. Destruction waits for them: their local memory may not go before.
class Batch {
 public:
  explicit Batch(tw_batch_t handle) : handle_(handle) {}
  Batch(Batch&& other) noexcept : handle_(std::exchange(other.handle_, 0)) {}
  Batch& operator=(Batch&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Batch() {
    if (handle_ == 0) return;
    tw_batch_wait(handle_, UINT64_MAX, nullptr);
    tw_batch_release(handle_);
  }

  // Returns when every transfer is COMPLETED; throws Error when one is not.
  void wait() { check(tw_batch_wait(handle_, UINT64_MAX, nullptr)); }
  // False when the batch is not terminal after timeout_ns.
  bool wait_for(uint64_t timeout_ns) {
    const tw_code code = tw_batch_wait(handle_, timeout_ns, nullptr);
    if (code == TW_BUSY) return false;
    check(code);
    return true;
  }
  tw_batch_status status() const {
    tw_batch_status status;
    check(tw_batch_poll(handle_, &status));
    return status;
  }
  tw_transfer_status transfer_status(size_t index) const {
    tw_transfer_status status;
    check(tw_batch_transfer_status(handle_, index, &status));
    return status;
  }
  void cancel() { check(tw_batch_cancel(handle_)); }
  tw_batch_t handle() const { return handle_; }

 private:
  tw_batch_t handle_;
};

class Peer {
 public:
  Peer(tw_engine_t engine, tw_peer_t handle) : engine_(engine), handle_(handle) {}
  Peer(Peer&& other) noexcept : engine_(other.engine_), handle_(std::exchange(other.handle_, 0)) {}
  Peer& operator=(Peer&& other) noexcept {
    std::swap(engine_, other.engine_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Peer() {
    if (handle_ != 0) tw_peer_close(engine_, handle_);
  }
  tw_peer_t handle() const { return handle_; }

 private:
  tw_engine_t engine_;
  tw_peer_t handle_;
};

// Registered memory: what the engine allocated (and frees), or memory of others (which stays theirs).
class Region {
 public:
  Region(tw_engine_t engine, void* data, uint64_t size, bool allocated) : engine_(engine), data_(data), size_(size), allocated_(allocated) {}
  Region(Region&& other) noexcept
      : engine_(other.engine_), data_(std::exchange(other.data_, nullptr)), size_(other.size_), allocated_(other.allocated_) {}
  Region& operator=(Region&& other) noexcept {
    std::swap(engine_, other.engine_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(allocated_, other.allocated_);
    return *this;
  }
  ~Region() {
    if (data_) allocated_ ? tw_free(engine_, data_) : tw_unregister(engine_, data_);
  }
  void* data() const { return data_; }
  uint64_t size() const { return size_; }
  uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }

 private:
  tw_engine_t engine_;
  void* data_;
  uint64_t size_;
  bool allocated_;
};

struct Notification {
  std::string name, message, sender;
};

class Engine {
 public:
  // Arguments as in tw_engine_options; settings are "name=value".
  explicit Engine(const std::string& local_name = "127.0.0.1", const std::string& protocol = "auto", const std::string& devices = "",
                  const std::string& metadata = "P2PHANDSHAKE", const std::vector<std::string>& settings = {}) {
    std::vector<const char*> list;
    for (const std::string& one : settings) list.push_back(one.c_str());
    list.push_back(nullptr);
    const tw_engine_options options{sizeof options, local_name.c_str(), metadata.c_str(), protocol.c_str(), devices.c_str(), list.data()};
    check(tw_engine_create(&options, &handle_));
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() { tw_engine_destroy(handle_); }

  std::string address() const {
    char text[512];
    check(tw_engine_address(handle_, text, sizeof text));
    return text;
  }
  Region allocate(uint64_t size, const std::string& location = "*") {
    void* data = nullptr;
    check(tw_allocate(handle_, size, location.c_str(), &data));
    return Region(handle_, data, size, true);
  }
  Region register_memory(void* data, uint64_t size, const std::string& location = "*", tw_permission permission = TW_REMOTE_READ_WRITE) {
    check(tw_register(handle_, data, size, location.c_str(), permission));
    return Region(handle_, data, size, false);
  }
  Peer open(const std::string& name) {
    tw_peer_t peer = 0;
    check(tw_peer_open(handle_, name.c_str(), &peer));
    return Peer(handle_, peer);
  }
  Batch write(const Peer& peer, const void* local, uint64_t remote, uint64_t length) {
    return submit(peer, TW_WRITE, {reinterpret_cast<uint64_t>(local)}, {remote}, {length});
  }
  Batch read(const Peer& peer, void* local, uint64_t remote, uint64_t length) {
    return submit(peer, TW_READ, {reinterpret_cast<uint64_t>(local)}, {remote}, {length});
  }
  // Lists of equal length. `options` as in tw_submit_options (deadline, notification), may be null.
  Batch submit(const Peer& peer, tw_opcode opcode, const std::vector<uint64_t>& local, const std::vector<uint64_t>& remote,
               const std::vector<uint64_t>& lengths, const tw_submit_options* options = nullptr) {
    if (local.size() != remote.size() || local.size() != lengths.size())
      throw Error(TW_INVALID_ARGUMENT, "lists of " + std::to_string(local.size()) + " local addresses, " + std::to_string(remote.size()) +
                                           " remote addresses and " + std::to_string(lengths.size()) + " lengths: they must be equally long");
    tw_batch_t batch = 0;
    check(tw_submit_lists(handle_, peer.handle(), opcode, local.data(), remote.data(), lengths.data(), local.size(), options, &batch));
    return Batch(batch);
  }
  void notify(const Peer& peer, const std::string& name, const std::string& message) {
    check(tw_notify(handle_, peer.handle(), name.c_str(), message.data(), message.size(), 0));
  }
  // Those that arrived, oldest first; waits up to timeout_ns for the first.
  std::vector<Notification> notifications(uint64_t timeout_ns = 0) {
    if (timeout_ns > 0) tw_notifications_wait(handle_, timeout_ns);
    tw_notification* list = nullptr;
    size_t count = 0;
    check(tw_notifications_take(handle_, &list, &count));
    std::vector<Notification> taken;
    for (size_t i = 0; i < count; ++i)
      taken.push_back({list[i].name, std::string(static_cast<const char*>(list[i].message), list[i].length), list[i].sender});
    tw_notifications_free(list, count);
    return taken;
  }
  tw_engine_t handle() const { return handle_; }

 private:
  tw_engine_t handle_ = 0;
};

}  // namespace tidewire::client
