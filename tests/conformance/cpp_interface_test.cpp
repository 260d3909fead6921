// SPDX-License-Identifier: Apache-2.0
#include "tidewire/tidewire.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace tidewire::client {
namespace {

TEST(CppInterface, MovesBytesAndTellsTheTarget) {
  Engine initiator, target;
  Region source = initiator.allocate(1 << 16);
  std::vector<uint8_t> memory(1 << 16);
  Region destination = target.register_memory(memory.data(), memory.size());
  std::memset(source.data(), 0x5A, source.size());
  Peer peer = initiator.open(target.address());
  const std::string message("layer\0one", 9);
  const tw_submit_options options{sizeof options, 0, "kv", message.data(), message.size()};
  Batch batch = initiator.submit(peer, TW_WRITE, {source.address(), source.address() + 4096}, {destination.address() + 8192, destination.address()},
                                 {4096, 100}, &options);
  batch.wait();
  EXPECT_EQ(batch.status().completed, 2u);
  EXPECT_EQ(batch.transfer_status(1).transferred_bytes, 100u);
  EXPECT_EQ(memory[8192], 0x5A);
  EXPECT_EQ(memory[99], 0x5A);
  EXPECT_EQ(memory[100], 0);
  const std::vector<Notification> received = target.notifications();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].message, message);
  memory[0] = 7;
  initiator.read(peer, source.data(), destination.address(), 1).wait();
  EXPECT_EQ(*static_cast<uint8_t*>(source.data()), 7);
}

TEST(CppInterface, FailuresAreExceptionsWithTheirCode) {
  Engine engine;
  try {
    Engine("127.0.0.1", "efa");
    FAIL() << "efa should be refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), TW_UNSUPPORTED);
  }
  Region region = engine.allocate(4096);
  Peer self = engine.open(engine.address());
  EXPECT_THROW(engine.write(self, region.data(), 0x1000, 64).wait(), Error);
  EXPECT_THROW(engine.submit(self, TW_WRITE, {region.address()}, {}, {64}), Error);
}

}  // namespace
}  // namespace tidewire::client
