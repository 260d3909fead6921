// SPDX-License-Identifier: Apache-2.0
//
// What tests of whole engines share: engines, memory of each kind and seeded patterns, all through tidewire.h.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "support/cuda.h"
#include "tidewire/tidewire.h"

namespace tidewire::testing {

#define TW_ASSERT_OK(call) ASSERT_EQ((call), TW_OK) << tw_last_error()
#define TW_EXPECT_OK(call) EXPECT_EQ((call), TW_OK) << tw_last_error()

// Hard stop of every wait in tests, as the scenarios have it.
constexpr uint64_t kHardStop = 60'000'000'000ull;

class Engine {
 public:
  explicit Engine(const std::string& protocol = "auto", std::vector<std::string> settings = {}, const std::string& name = "127.0.0.1",
                  const std::string& devices = "") {
    std::vector<const char*> list;
    for (const std::string& one : settings) list.push_back(one.c_str());
    list.push_back(nullptr);
    tw_engine_options options{sizeof options, name.c_str(), nullptr, protocol.c_str(), devices.c_str(), list.data()};
    code = tw_engine_create(&options, &handle);
    if (code != TW_OK) error = tw_last_error();
  }
  ~Engine() {
    if (handle) tw_engine_destroy(handle);
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  std::string address() const {
    char text[256] = "";
    EXPECT_EQ(tw_engine_address(handle, text, sizeof text), TW_OK) << tw_last_error();
    return text;
  }
  tw_peer_t open(const std::string& name) {
    tw_peer_t peer = 0;
    EXPECT_EQ(tw_peer_open(handle, name.c_str(), &peer), TW_OK) << tw_last_error();
    return peer;
  }

  tw_engine_t handle = 0;
  tw_code code;
  std::string error;
};

// The bytes of Pattern(seed): any shift, truncation or stale block shows.
inline std::vector<uint8_t> pattern(uint64_t seed, size_t size) {
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15ull + 1);
  std::vector<uint8_t> bytes((size + 7) / 8 * 8);
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t word = random();
    std::memcpy(&bytes[i], &word, 8);
  }
  bytes.resize(size);
  return bytes;
}

enum class MemoryKind { kPool, kForeign, kDevice, kCuda };

// A range of one kind of memory, registered with an engine.
class Memory {
 public:
  Memory(Engine& engine, MemoryKind kind, size_t size, tw_permission permission = TW_REMOTE_READ_WRITE)
      : engine_(engine), kind_(kind), size_(size) {
    switch (kind) {
      case MemoryKind::kPool:
        EXPECT_EQ(tw_allocate(engine.handle, size, nullptr, &address_), TW_OK) << tw_last_error();
        return;
      case MemoryKind::kForeign:
        address_ = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        break;
      case MemoryKind::kDevice:
        EXPECT_EQ(tw_test_device_allocate(size, &address_), TW_OK) << tw_last_error();
        break;
      case MemoryKind::kCuda:
        address_ = reinterpret_cast<void*>(Cuda::get().allocate(size));
        break;
    }
    EXPECT_EQ(tw_register(engine.handle, address_, size, nullptr, permission), TW_OK) << tw_last_error();
  }
  ~Memory() {
    if (kind_ == MemoryKind::kPool) {
      tw_free(engine_.handle, address_);
      return;
    }
    tw_unregister(engine_.handle, address_);
    switch (kind_) {
      case MemoryKind::kPool:
        break;
      case MemoryKind::kForeign:
        munmap(address_, size_);
        break;
      case MemoryKind::kDevice:
        tw_test_device_free(address_);
        break;
      case MemoryKind::kCuda:
        Cuda::get().free(address());
        break;
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  uint64_t address(size_t offset = 0) const { return reinterpret_cast<uint64_t>(address_) + offset; }
  void* pointer(size_t offset = 0) const { return static_cast<uint8_t*>(address_) + offset; }
  size_t size() const { return size_; }

  void write(const std::vector<uint8_t>& bytes, size_t offset = 0) {
    EXPECT_EQ(tw_copy_in(engine_.handle, pointer(offset), bytes.data(), bytes.size()), TW_OK) << tw_last_error();
  }
  std::vector<uint8_t> read(size_t offset, size_t size) const {
    std::vector<uint8_t> bytes(size);
    EXPECT_EQ(tw_copy_out(engine_.handle, bytes.data(), pointer(offset), size), TW_OK) << tw_last_error();
    return bytes;
  }
  void fill(uint8_t value) { write(std::vector<uint8_t>(size_, value)); }

 private:
  Engine& engine_;
  const MemoryKind kind_;
  const size_t size_;
  void* address_ = nullptr;
};

// Submits one list, waits for it, releases it.
struct Outcome {
  tw_code code;
  tw_batch_status status;
  std::string error;
};
inline Outcome transfer(Engine& engine, tw_peer_t peer, tw_opcode opcode, const std::vector<uint64_t>& local, const std::vector<uint64_t>& remote,
                        const std::vector<uint64_t>& lengths, const tw_submit_options* options = nullptr) {
  Outcome outcome{};
  tw_batch_t batch = 0;
  outcome.code = tw_submit_lists(engine.handle, peer, opcode, local.data(), remote.data(), lengths.data(), local.size(), options, &batch);
  if (outcome.code != TW_OK) {
    outcome.error = tw_last_error();
    return outcome;
  }
  outcome.code = tw_batch_wait(batch, kHardStop, &outcome.status);
  if (outcome.code != TW_OK) outcome.error = tw_last_error();
  EXPECT_EQ(tw_batch_release(batch), TW_OK) << tw_last_error();
  return outcome;
}

}  // namespace tidewire::testing
