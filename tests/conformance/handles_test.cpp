// SPDX-License-Identifier: Apache-2.0
//
// What the C interface promises of handles, bad input and the end of engines, whatever the transport.
#include <poll.h>

#include <random>
#include <thread>

#include "support/engines.h"

namespace tidewire::testing {
namespace {

TEST(Handles, StaleAndForgedOnesAreRefused) {
  std::mt19937_64 random(1);
  char text[64];
  for (int i = 0; i < 1000; ++i) {
    const uint64_t handle = random();
    tw_batch_status status;
    EXPECT_EQ(tw_engine_address(handle, text, sizeof text), TW_NOT_FOUND);
    EXPECT_EQ(tw_batch_poll(handle, &status), TW_NOT_FOUND);
  }
  EXPECT_EQ(tw_engine_destroy(0), TW_NOT_FOUND);
  EXPECT_EQ(tw_batch_release(0), TW_NOT_FOUND);
}

TEST(Handles, AReleasedBatchIsUnknown) {
  Engine engine;
  Memory memory(engine, MemoryKind::kPool, 8192);
  const tw_peer_t self = engine.open(engine.address());
  const uint64_t from = memory.address(), to = memory.address(4096), length = 4096;
  tw_batch_t batch = 0;
  TW_ASSERT_OK(tw_submit_lists(engine.handle, self, TW_WRITE, &from, &to, &length, 1, nullptr, &batch));
  TW_ASSERT_OK(tw_batch_wait(batch, kHardStop, nullptr));
  tw_batch_status status;
  for (int i = 0; i < 100; ++i) TW_ASSERT_OK(tw_batch_poll(batch, &status));
  tw_transfer_status one;
  EXPECT_EQ(tw_batch_transfer_status(batch, 1, &one), TW_NOT_FOUND);
  TW_EXPECT_OK(tw_batch_cancel(batch));  // too late: stays completed
  TW_EXPECT_OK(tw_batch_poll(batch, &status));
  EXPECT_EQ(status.state, TW_STATE_COMPLETED);
  TW_ASSERT_OK(tw_batch_release(batch));
  EXPECT_EQ(tw_batch_release(batch), TW_NOT_FOUND);
  EXPECT_EQ(tw_batch_poll(batch, &status), TW_NOT_FOUND);
  EXPECT_EQ(tw_batch_wait(batch, 1, nullptr), TW_NOT_FOUND);
}

TEST(Handles, ABatchesDescriptorSignalsItsEnd) {
  Engine engine;
  Memory memory(engine, MemoryKind::kPool, 8192);
  const tw_peer_t self = engine.open(engine.address());
  const uint64_t from = memory.address(), to = memory.address(4096), length = 4096;
  for (int i = 0; i < 50; ++i) {
    tw_batch_t batch = 0;
    TW_ASSERT_OK(tw_submit_lists(engine.handle, self, TW_WRITE, &from, &to, &length, 1, nullptr, &batch));
    int fd = -1;
    TW_ASSERT_OK(tw_batch_fd(batch, &fd));
    pollfd waited{fd, POLLIN, 0};
    ASSERT_EQ(poll(&waited, 1, 60'000), 1);
    TW_ASSERT_OK(tw_batch_release(batch));
  }
}

TEST(Handles, DestroyingAnEngineEndsItsBatches) {
  Engine target;
  auto engine = std::make_unique<Engine>("tcp", std::vector<std::string>{"same_host=false"});
  Memory destination(target, MemoryKind::kForeign, 64 << 20);
  auto source = std::make_unique<Memory>(*engine, MemoryKind::kForeign, 64 << 20);
  const tw_peer_t peer = engine->open(target.address());
  std::vector<tw_batch_t> batches(20);
  const uint64_t from = source->address(), to = destination.address(), length = 64 << 20;
  for (tw_batch_t& batch : batches) TW_ASSERT_OK(tw_submit_lists(engine->handle, peer, TW_WRITE, &from, &to, &length, 1, nullptr, &batch));
  std::thread waiter([&] {
    for (const tw_batch_t batch : batches) {
      const tw_code code = tw_batch_wait(batch, kHardStop, nullptr);
      EXPECT_TRUE(code == TW_OK || code == TW_CANCELED || code == TW_CLOSED) << tw_code_name(code);
    }
  });
  TW_EXPECT_OK(tw_engine_destroy(engine->handle));
  waiter.join();
  EXPECT_EQ(tw_engine_destroy(engine->handle), TW_NOT_FOUND);
  engine->handle = 0;
  for (const tw_batch_t batch : batches) {
    const tw_code code = tw_batch_release(batch);
    EXPECT_TRUE(code == TW_OK || code == TW_NOT_FOUND);
  }
}

TEST(Registration, FollowsItsRules) {
  Engine engine;
  std::vector<uint8_t> memory(8 << 20);
  uint8_t* const base = memory.data();
  const auto add = [&](size_t offset, size_t length) {
    return tw_register(engine.handle, base + offset, length, nullptr, TW_REMOTE_READ_WRITE);
  };
  EXPECT_EQ(tw_register(engine.handle, nullptr, 10, nullptr, TW_REMOTE_READ_WRITE), TW_INVALID_ARGUMENT);
  EXPECT_EQ(add(0, 0), TW_INVALID_ARGUMENT);
  EXPECT_EQ(tw_register(engine.handle, base, UINT64_MAX - 5, nullptr, TW_REMOTE_READ_WRITE), TW_INVALID_ARGUMENT);
  TW_EXPECT_OK(add(0, 4 << 20));
  TW_EXPECT_OK(add(0, 4 << 20));  // identical: counted
  EXPECT_EQ(add(2 << 20, 4 << 20), TW_OVERLAP);
  EXPECT_EQ(add(1 << 20, 1 << 20), TW_OVERLAP);
  TW_EXPECT_OK(add(4 << 20, 4 << 20));  // adjacent
  TW_EXPECT_OK(tw_unregister(engine.handle, base));
  EXPECT_EQ(add(1 << 20, 1 << 20), TW_OVERLAP);  // still registered once
  TW_EXPECT_OK(tw_unregister(engine.handle, base));
  EXPECT_EQ(tw_unregister(engine.handle, base), TW_NOT_FOUND);
  const tw_range ranges[] = {{base, 4096}, {base + 4096, 4096}, {base + (5 << 20), 4096}};
  EXPECT_EQ(tw_register_many(engine.handle, ranges, 3, nullptr, TW_REMOTE_READ_WRITE), TW_OVERLAP);
  EXPECT_NE(std::string(tw_last_error()).find("2"), std::string::npos) << tw_last_error();
  TW_EXPECT_OK(tw_register_many(engine.handle, ranges, 2, nullptr, TW_REMOTE_READ_WRITE));  // nothing was left behind
}

TEST(Creation, BadNamesAndProtocolsAreNamed) {
  for (const std::string name : {"", "host:", ":80", "host:99999", "1:2:3", "0.0.0.0", "::", "[::1", "a b"}) {
    Engine engine("auto", {}, name);
    EXPECT_NE(engine.code, TW_OK) << name;
    EXPECT_NE(engine.error.find(name), std::string::npos) << name << ": " << engine.error;
  }
  Engine efa("efa");
  EXPECT_EQ(efa.code, TW_UNSUPPORTED);
  EXPECT_NE(efa.error.find("efa"), std::string::npos);
  Engine nonsense("carrier-pigeon");
  EXPECT_EQ(nonsense.code, TW_INVALID_ARGUMENT);
  Engine setting("auto", {"transfer.timeout=never"});
  EXPECT_EQ(setting.code, TW_INVALID_ARGUMENT);
  EXPECT_NE(setting.error.find("transfer.timeout"), std::string::npos) << setting.error;
  Engine device("tcp", {}, "127.0.0.1", "nosuchdevice0");
  EXPECT_NE(device.code, TW_OK);
  EXPECT_NE(device.error.find("nosuchdevice0"), std::string::npos) << device.error;
}

TEST(Creation, AFixedPortThatIsTakenIsNamed) {
  Engine first;
  ASSERT_EQ(first.code, TW_OK) << first.error;
  Engine second("auto", {}, first.address());
  EXPECT_EQ(second.code, TW_ADDRESS_IN_USE);
  const std::string port = first.address().substr(first.address().rfind(':') + 1);
  EXPECT_NE(second.error.find(port), std::string::npos) << second.error;
}

TEST(Peers, ARefusedPortFailsAtOnceAndIsNamed) {
  std::string gone;
  {
    Engine engine;
    gone = engine.address();
  }
  Engine engine;
  tw_peer_t peer = 0;
  EXPECT_EQ(tw_peer_open(engine.handle, gone.c_str(), &peer), TW_UNREACHABLE);
  EXPECT_NE(std::string(tw_last_error()).find(gone), std::string::npos) << tw_last_error();
  EXPECT_EQ(tw_peer_probe(engine.handle, gone.c_str(), 0), TW_UNREACHABLE);
  EXPECT_EQ(tw_peer_open(engine.handle, "not an address", &peer), TW_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace tidewire::testing
