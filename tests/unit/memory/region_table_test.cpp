// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "memory/region.h"
#include "memory/test_device.h"

namespace tidewire {
namespace {

using ::testing::HasSubstr;
constexpr auto kReadWrite = Permission::kReadWrite;
constexpr uint64_t kMiB = 1 << 20;

class RegionTableTest : public ::testing::Test {
 protected:
  RegionTableTest() : buffer_(new char[8 * kMiB]) {}
  uint64_t at(uint64_t offset) const { return reinterpret_cast<uint64_t>(buffer_.get()) + offset; }
  Status add(uint64_t from, uint64_t to, Permission permission = kReadWrite) {
    return table_.add(at(from), to - from, "*", permission);
  }
  Status use(uint64_t from, uint64_t to, Access access = Access::kLocal) {
    RangeHold hold;
    return table_.use(at(from), to - from, access, hold);
  }
  std::string hex(uint64_t offset) const { return fmt::format("{:#x}", at(offset)); }

  std::unique_ptr<char[]> buffer_;
  RegionTable table_;
};

TEST_F(RegionTableTest, BadRangesAreRefused) {
  EXPECT_EQ(table_.add(0, 10, "*", kReadWrite).code(), Code::kInvalidArgument);
  EXPECT_EQ(table_.add(at(0), 0, "*", kReadWrite).code(), Code::kInvalidArgument);
  EXPECT_EQ(table_.add(UINT64_MAX - 5, 10, "*", kReadWrite).code(), Code::kInvalidArgument);
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(RegionTableTest, IdenticalRangesAreCounted) {
  ASSERT_TRUE(add(0, 4 * kMiB).ok());
  ASSERT_TRUE(add(0, 4 * kMiB).ok());
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_EQ(table_.registered_bytes(), 4 * kMiB);
  ASSERT_TRUE(table_.remove(at(0)).ok());
  EXPECT_TRUE(use(0, 100).ok());
  ASSERT_TRUE(table_.remove(at(0)).ok());
  EXPECT_EQ(use(0, 100).code(), Code::kNotRegistered);
  EXPECT_EQ(table_.remove(at(0)).code(), Code::kNotFound);
  EXPECT_EQ(table_.registered_bytes(), 0u);
}

TEST_F(RegionTableTest, OverlapNamesBothRangesAndLeavesTheFirst) {
  ASSERT_TRUE(add(kMiB, 3 * kMiB).ok());
  for (auto [from, to] : {std::pair{0 * kMiB, 2 * kMiB},
                          {2 * kMiB, 4 * kMiB},
                          {kMiB + 1, kMiB + 2},
                          {0 * kMiB, 4 * kMiB},
                          {kMiB, 2 * kMiB}}) {
    const Status status = add(from, to);
    EXPECT_EQ(status.code(), Code::kOverlap);
    EXPECT_THAT(status.message(), HasSubstr(hex(from)));
    EXPECT_THAT(status.message(), HasSubstr(hex(to)));
    EXPECT_THAT(status.message(), HasSubstr(hex(kMiB)));
    EXPECT_THAT(status.message(), HasSubstr(hex(3 * kMiB)));
  }
  EXPECT_EQ(add(kMiB, 3 * kMiB, Permission::kRead).code(), Code::kOverlap) << "the same range with another permission";
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_TRUE(use(kMiB, 3 * kMiB).ok());
}

TEST_F(RegionTableTest, RangesMayCrossAdjacentRegions) {
  ASSERT_TRUE(add(0, 1000).ok());
  ASSERT_TRUE(add(1000, 2000).ok());
  ASSERT_TRUE(add(2000, 2001).ok());
  RangeHold hold;
  ASSERT_TRUE(table_.use(at(990), 1011, Access::kRemoteWrite, hold).ok());
  std::vector<std::pair<uint64_t, uint64_t>> parts;
  hold.for_each_part(at(990), 1011, [&](Region& region, uint64_t address, uint64_t length) {
    EXPECT_GE(address, region.address);
    parts.emplace_back(address, length);
  });
  EXPECT_EQ(parts, (std::vector<std::pair<uint64_t, uint64_t>>{{at(990), 10}, {at(1000), 1000}, {at(2000), 1}}));
  EXPECT_EQ(use(990, 2002).code(), Code::kNotRegistered);
}

TEST_F(RegionTableTest, UsesAreCountedOncePerHoldAndGivenBack) {
  ASSERT_TRUE(add(0, 1000).ok());
  ASSERT_TRUE(add(1000, 2000).ok());
  auto first = table_.find(at(0)), second = table_.find(at(1999));
  RangeHold hold;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(table_.use(at(5), 10, Access::kLocal, hold).ok());
    ASSERT_TRUE(table_.use(at(1500), 10, Access::kLocal, hold).ok());
    ASSERT_TRUE(table_.use(at(900), 200, Access::kLocal, hold).ok());
  }
  EXPECT_EQ(first->uses, 1u);
  EXPECT_EQ(second->uses, 1u);
  RangeHold moved = std::move(hold);
  EXPECT_EQ(first->uses, 1u);
  EXPECT_EQ(moved.find(at(999)), first.get());
  EXPECT_EQ(moved.find(at(1000)), second.get());
  EXPECT_EQ(moved.find(at(2000)), nullptr);
  moved = RangeHold{};
  EXPECT_EQ(first->uses, 0u);
  EXPECT_EQ(second->uses, 0u);
}

TEST_F(RegionTableTest, AFailedUseAddsNothing) {
  ASSERT_TRUE(add(0, 1000).ok());
  RangeHold hold;
  EXPECT_EQ(table_.use(at(500), 1000, Access::kLocal, hold).code(), Code::kNotRegistered);
  EXPECT_EQ(table_.find(at(0))->uses, 0u);
  EXPECT_EQ(hold.find(at(500)), nullptr);
}

TEST_F(RegionTableTest, WrappedAndEmptyUses) {
  ASSERT_TRUE(add(0, 1000).ok());
  RangeHold hold;
  EXPECT_EQ(table_.use(at(10), UINT64_MAX - 5, Access::kLocal, hold).code(), Code::kInvalidArgument);
  EXPECT_TRUE(table_.use(at(10), 0, Access::kLocal, hold).ok());
  ASSERT_TRUE(table_.use(at(10), 10, Access::kLocal, hold).ok());
  EXPECT_EQ(table_.use(at(10), UINT64_MAX - 5, Access::kLocal, hold).code(), Code::kInvalidArgument)
      << "after the fast path is set";
}

TEST_F(RegionTableTest, PermissionsDecideRemoteAccess) {
  ASSERT_TRUE(add(0, 10, Permission::kNone).ok());
  ASSERT_TRUE(add(10, 20, Permission::kRead).ok());
  ASSERT_TRUE(add(20, 30, Permission::kReadWrite).ok());
  EXPECT_TRUE(use(0, 30, Access::kLocal).ok());
  EXPECT_EQ(use(0, 10, Access::kRemoteRead).code(), Code::kPermissionDenied);
  EXPECT_TRUE(use(10, 30, Access::kRemoteRead).ok());
  EXPECT_EQ(use(10, 30, Access::kRemoteWrite).code(), Code::kPermissionDenied);
  EXPECT_TRUE(use(20, 30, Access::kRemoteWrite).ok());
  RangeHold hold;
  ASSERT_TRUE(table_.use(at(10), 10, Access::kRemoteRead, hold).ok());
  EXPECT_EQ(table_.use(at(10), 10, Access::kRemoteWrite, hold).code(), Code::kPermissionDenied)
      << "the fast path checks too";
}

TEST_F(RegionTableTest, AddManyIsAllOrNothingAndNamesIndexAndAddress) {
  ASSERT_TRUE(add(5000, 6000).ok());
  const Status status =
      table_.add_many({{at(0), 1000}, {at(1000), 1000}, {at(4500), 1000}, {at(7000), 10}}, "*", kReadWrite);
  EXPECT_EQ(status.code(), Code::kOverlap);
  EXPECT_THAT(status.message(), HasSubstr("range 2 of 4"));
  EXPECT_THAT(status.message(), HasSubstr(hex(4500)));
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_EQ(use(0, 10).code(), Code::kNotRegistered);
  EXPECT_EQ(table_.registered_bytes(), 1000u);
}

TEST_F(RegionTableTest, AddManyRollsBackCountsAndItsOwnOverlaps) {
  ASSERT_TRUE(add(0, 1000).ok());
  EXPECT_EQ(table_.add_many({{at(0), 1000}, {at(1000), 100}, {at(1050), 100}}, "*", kReadWrite).code(), Code::kOverlap);
  EXPECT_EQ(table_.size(), 1u);
  ASSERT_TRUE(table_.remove(at(0)).ok());
  EXPECT_EQ(table_.size(), 0u) << "the failed call must not have left a count";
}

TEST_F(RegionTableTest, AddManyCountsARangeGivenTwice) {
  ASSERT_TRUE(table_.add_many({{at(0), 1000}, {at(0), 1000}}, "*", kReadWrite).ok());
  EXPECT_EQ(table_.size(), 1u);
  ASSERT_TRUE(table_.remove(at(0)).ok());
  EXPECT_EQ(table_.size(), 1u);
  ASSERT_TRUE(table_.remove(at(0)).ok());
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(RegionTableTest, AFailedRegistrationIsRemembered) {
  ASSERT_EQ(table_.add(at(0), 1000, "cuda:0", kReadWrite).code(), Code::kUnsupported);
  const Status status = use(500, 600);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("cuda"));
  EXPECT_EQ(use(1000, 1100).code(), Code::kNotRegistered) << "outside of the failed range";
  ASSERT_TRUE(add(0, 1000).ok());
  EXPECT_TRUE(use(500, 600).ok());
  ASSERT_TRUE(table_.remove(at(0)).ok());
  EXPECT_EQ(use(500, 600).code(), Code::kNotRegistered) << "forgotten once registered";
}

TEST_F(RegionTableTest, UnregisteringForgetsTheFailure) {
  ASSERT_FALSE(table_.add(at(0), 1000, "cuda:0", kReadWrite).ok());
  const Status status = table_.remove(at(0));
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("cuda"));
  EXPECT_EQ(use(500, 600).code(), Code::kNotRegistered);
}

TEST_F(RegionTableTest, RemoveManyRemovesWhatItFinds) {
  ASSERT_TRUE(add(0, 10).ok());
  ASSERT_TRUE(add(20, 30).ok());
  const Status status = table_.remove_many({at(0), at(10), at(20)});
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr(hex(10)));
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(RegionTableTest, FirstIsTheLowestNumberThatPeersMaySee) {
  EXPECT_EQ(table_.first(), nullptr);
  ASSERT_TRUE(add(0, 10, Permission::kNone).ok());
  ASSERT_TRUE(add(4000, 4010).ok());
  ASSERT_TRUE(add(2000, 2010).ok());
  EXPECT_EQ(table_.first()->address, at(4000));
  ASSERT_TRUE(table_.remove(at(4000)).ok());
  EXPECT_EQ(table_.first()->address, at(2000));
}

TEST_F(RegionTableTest, SlotsAreReusedWithANewEpoch) {
  ASSERT_TRUE(add(0, 10).ok());
  const auto first = table_.find(at(0));
  ASSERT_TRUE(table_.remove(at(0)).ok());
  ASSERT_TRUE(add(100, 110).ok());
  const auto second = table_.find(at(100));
  EXPECT_EQ(first->slot, second->slot);
  EXPECT_GT(second->epoch, first->epoch);
  EXPECT_GT(second->number, first->number);
}

TEST_F(RegionTableTest, RemoveWithoutUsersReturnsAtOnceAndWithUsersCutsAfterTheDrain) {
  ASSERT_TRUE(add(0, 1000).ok());
  RangeHold hold;
  ASSERT_TRUE(table_.use(at(0), 10, Access::kLocal, hold).ok());
  Region* region = hold.find(at(0));
  {
    RegionPin pin(*region);
    EXPECT_TRUE(pin.valid());
  }
  ASSERT_TRUE(table_.remove(at(0), 20 * kMillisecond).ok());
  RegionPin pin(*region);
  EXPECT_FALSE(pin.valid());
  EXPECT_EQ(table_.use(at(0), 10, Access::kLocal, hold).code(), Code::kNotRegistered)
      << "a hold does not keep it usable";
}

TEST_F(RegionTableTest, KindIsTakenFromTheMemory) {
  const uint64_t device = test_device_allocate(4096).value();
  ASSERT_TRUE(table_.add(device, 4096, "*", kReadWrite).ok());
  EXPECT_EQ(table_.find(device)->location, "testdev:0");
  RangeHold hold;
  ASSERT_TRUE(table_.use(device, 10, Access::kLocal, hold).ok());
  EXPECT_FALSE(hold.all_host_accessible());
  hold.release();
  table_.clear();
  EXPECT_TRUE(test_device_free(device).ok());
}

TEST_F(RegionTableTest, AHundredThousandRegionsWork) {
  constexpr uint64_t kCount = 100'000, kSize = 64;
  std::vector<RegionTable::Range> ranges;
  std::vector<uint64_t> addresses;
  for (uint64_t i = 0; i < kCount; ++i) {
    ranges.push_back({at(i * kSize), kSize});
    addresses.push_back(at(i * kSize));
  }
  ASSERT_TRUE(table_.add_many(ranges, "*", kReadWrite).ok());
  EXPECT_EQ(table_.size(), kCount);
  EXPECT_EQ(table_.registered_bytes(), kCount * kSize);
  RangeHold hold;
  ASSERT_TRUE(table_.use(at(0), kCount * kSize, Access::kRemoteRead, hold).ok());
  uint64_t parts = 0;
  hold.for_each_part(at(0), kCount * kSize, [&](Region&, uint64_t, uint64_t length) { parts += length == kSize; });
  EXPECT_EQ(parts, kCount);
  hold.release();
  for (uint64_t i = 0; i < kCount; ++i) {
    RangeHold one;
    ASSERT_TRUE(table_.use(at((i * 7919 % kCount) * kSize), kSize, Access::kRemoteWrite, one).ok());
  }
  ASSERT_TRUE(table_.remove_many(addresses).ok());
  EXPECT_EQ(table_.size(), 0u);
}

class RecordingObserver : public RegionTable::Observer {
 public:
  Status region_added(Region& region) override {
    events.push_back(fmt::format("+{}", region.slot));
    return fail_at == static_cast<int>(events.size()) ? Status(Code::kNoResources, "no more slots") : Status{};
  }
  void region_removing(Region& region, Nanos) override { events.push_back(fmt::format("-{}", region.slot)); }
  std::vector<std::string> events;
  int fail_at = 0;
};

TEST_F(RegionTableTest, TheObserverHearsOfEachRegionOnce) {
  RecordingObserver observer;
  ASSERT_TRUE(add(500, 600).ok());
  table_.set_observer(&observer);
  ASSERT_TRUE(add(0, 10).ok());
  ASSERT_TRUE(add(0, 10).ok());
  ASSERT_TRUE(table_.remove(at(0)).ok());
  ASSERT_TRUE(table_.remove(at(0)).ok());
  EXPECT_THAT(observer.events, ::testing::ElementsAre("+0", "+1", "-1"));
}

TEST_F(RegionTableTest, AnObserversRefusalRegistersNothing) {
  RecordingObserver observer;
  observer.fail_at = 2;
  table_.set_observer(&observer);
  const Status status = table_.add_many({{at(0), 10}, {at(10), 10}, {at(20), 10}}, "*", kReadWrite);
  EXPECT_EQ(status.code(), Code::kNoResources);
  EXPECT_THAT(status.message(), HasSubstr("range 1 of 3"));
  EXPECT_EQ(table_.size(), 0u);
  EXPECT_THAT(observer.events, ::testing::ElementsAre("+0", "+1", "-0"));
}

}  // namespace
}  // namespace tidewire
