// SPDX-License-Identifier: Apache-2.0
//
// What the region table promises to several threads at once; meant for the thread sanitizer too.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "memory/region.h"

namespace tidewire {
namespace {

constexpr auto kReadWrite = Permission::kReadWrite;

class RegionThreads : public ::testing::Test {
 protected:
  RegionThreads() : buffer_(new char[1 << 20]) {}
  uint64_t at(uint64_t offset) const { return reinterpret_cast<uint64_t>(buffer_.get()) + offset; }
  std::unique_ptr<char[]> buffer_;
  RegionTable table_;
};

class CountingObserver : public RegionTable::Observer {
 public:
  Status region_added(Region&) override {
    ++live;
    return {};
  }
  void region_removing(Region&, Nanos) override { --live; }
  std::atomic<int> live{0};
};

TEST_F(RegionThreads, EightThreadsRegisterOneRange) {
  CountingObserver observer;
  table_.set_observer(&observer);
  for (int round = 0; round < 200; ++round) {
    std::barrier start(8);
    std::atomic<int> successes{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        successes += table_.add(at(0), 4096, "*", kReadWrite).ok();
      });
    }
    for (auto& thread : threads) thread.join();
    ASSERT_EQ(successes, 8);
    ASSERT_EQ(table_.size(), 1u);
    ASSERT_EQ(observer.live, 1);
    for (int i = 0; i < 8; ++i) {
      ASSERT_NE(table_.find(at(0)), nullptr) << "removed after " << i;
      ASSERT_TRUE(table_.remove(at(0)).ok());
    }
    ASSERT_EQ(table_.find(at(0)), nullptr);
    ASSERT_EQ(observer.live, 0);
  }
}

TEST_F(RegionThreads, OverlappingRegistrationsLeaveOne) {
  for (int round = 0; round < 200; ++round) {
    std::barrier start(4);
    std::atomic<int> successes{0}, overlaps{0};
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        const Status status = table_.add(at(i), 4096, "*", kReadWrite);
        successes += status.ok();
        overlaps += status.code() == Code::kOverlap;
      });
    }
    for (auto& thread : threads) thread.join();
    ASSERT_EQ(successes, 1);
    ASSERT_EQ(overlaps, 3);
    table_.clear();
  }
}

TEST_F(RegionThreads, RemoveWaitsForUses) {
  ASSERT_TRUE(table_.add(at(0), 4096, "*", kReadWrite).ok());
  auto hold = std::make_unique<RangeHold>();
  ASSERT_TRUE(table_.use(at(0), 10, Access::kLocal, *hold).ok());
  auto region = table_.find(at(0));
  std::atomic<bool> removed{false};
  std::thread remover([&] {
    ASSERT_TRUE(table_.remove(at(0), 60 * kSecond).ok());
    removed = true;
  });
  while (!region->draining) std::this_thread::yield();
  RangeHold late;
  EXPECT_EQ(table_.use(at(0), 10, Access::kLocal, late).code(), Code::kNotRegistered);
  {
    RegionPin pin(*region);
    EXPECT_TRUE(pin.valid()) << "work in flight may finish";
  }
  EXPECT_FALSE(removed);
  hold.reset();
  remover.join();
  EXPECT_TRUE(region->cut);
}

TEST_F(RegionThreads, RemoveWaitsForThePinEvenAfterTheDrain) {
  ASSERT_TRUE(table_.add(at(0), 4096, "*", kReadWrite).ok());
  RangeHold hold;
  ASSERT_TRUE(table_.use(at(0), 10, Access::kLocal, hold).ok());
  Region* region = hold.find(at(0));
  auto pin = std::make_unique<RegionPin>(*region);
  std::atomic<bool> removed{false};
  std::thread remover([&] {
    ASSERT_TRUE(table_.remove(at(0), kMillisecond).ok());
    removed = true;
  });
  while (!region->cut) std::this_thread::yield();
  EXPECT_FALSE(removed);
  pin.reset();
  remover.join();
}

// Writers copy under pins while the memory is removed; after remove returns, not one byte may change.
TEST_F(RegionThreads, NothingTouchesTheMemoryAfterRemove) {
  for (int round = 0; round < 100; ++round) {
    ASSERT_TRUE(table_.add(at(0), 65536, "*", kReadWrite).ok());
    std::vector<std::thread> writers;
    std::barrier start(5);
    for (uint64_t i = 0; i < 4; ++i) {
      writers.emplace_back([&, i] {
        RangeHold hold;
        const bool held = table_.use(at(i * 16384), 16384, Access::kRemoteWrite, hold).ok();
        start.arrive_and_wait();
        if (!held) return;
        for (unsigned n = 0;; ++n) {
          RegionPin pin(*hold.find(at(i * 16384)));
          if (!pin.valid()) return;
          std::fill_n(buffer_.get() + i * 16384, 16384, static_cast<char>(n));
        }
      });
    }
    start.arrive_and_wait();
    ASSERT_TRUE(table_.remove(at(0), kMillisecond).ok());
    std::fill_n(buffer_.get(), 65536, 'x');  // the sanitizer sees a writer that is still there
    for (auto& writer : writers) writer.join();
    for (int i = 0; i < 65536; ++i) ASSERT_EQ(buffer_[i], 'x');
  }
}

TEST_F(RegionThreads, AddsRemovalsUsesAndLooksMix) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 1000; ++n) {
        const uint64_t address = at(i * 65536 + static_cast<uint64_t>(n % 16) * 4096);
        ASSERT_TRUE(table_.add(address, 4096, "*", kReadWrite).ok());
        ASSERT_TRUE(table_.remove(address, kSecond).ok());
      }
    });
  }
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (uint64_t n = 0; !stop; ++n) {
        RangeHold hold;
        const uint64_t address = at(n % 32 * 4096);
        if (table_.use(address, 4096, Access::kRemoteWrite, hold).ok()) {
          RegionPin pin(*hold.find(address));
        }
        (void)table_.first();
        (void)table_.size();
      }
    });
  }
  threads[0].join();
  threads[1].join();
  stop = true;
  for (size_t i = 2; i < threads.size(); ++i) threads[i].join();
  EXPECT_EQ(table_.size(), 0u);
}

}  // namespace
}  // namespace tidewire
