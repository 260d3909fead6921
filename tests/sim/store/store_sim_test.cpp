// SPDX-License-Identifier: Apache-2.0
//
// Random schedules of the store against the oracle, and proof that the oracle bites. TIDEWIRE_SIM_SCHEDULES sets how many schedules run (10,000 unless
// set); --seed N (or TIDEWIRE_SIM_SEED) runs one alone, --trace shows its events.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/log.h"
#include "sim/store/schedule.h"

namespace tidewire::store::simulation {

struct Arguments {
  uint64_t seed = 0;
  bool trace = false;
  uint64_t schedules = 10'000;
} arguments;

namespace {

class RandomSchedules : public testing::TestWithParam<int> {};

// Parts, so that ctest's output shows how far it came.
TEST_P(RandomSchedules, KeepAllRules) {
  if (arguments.seed != 0) {
    if (GetParam() > 0) GTEST_SKIP();
    const Outcome outcome = random_schedule(arguments.seed, {}, arguments.trace);
    ASSERT_EQ(outcome.violation, "") << "seed " << arguments.seed;
    return;
  }
  const uint64_t share = arguments.schedules / 10;
  Outcome sum;
  for (uint64_t i = 0; i < share; ++i) {
    const uint64_t seed = 1 + static_cast<uint64_t>(GetParam()) * share + i;
    const Outcome outcome = random_schedule(seed);
    ASSERT_EQ(outcome.violation, "") << "replay with: tidewire_store_sim_test --gtest_filter='*KeepAllRules/0' --seed " << seed << " --trace";
    sum.reads += outcome.reads;
    sum.acked += outcome.acked;
    sum.removals += outcome.removals;
    sum.evictions += outcome.evictions;
    sum.discarded += outcome.discarded;
    sum.abandoned += outcome.abandoned;
    sum.masters += outcome.masters;
    sum.no_space += outcome.no_space;
    sum.events += outcome.events;
  }
  // Schedules in which nothing happens prove nothing.
  EXPECT_GT(sum.reads, 8 * share);
  EXPECT_GT(sum.acked, 5 * share);
  EXPECT_GT(sum.removals, share);
  EXPECT_GT(sum.evictions, share);
  EXPECT_GT(sum.discarded, share / 10);
  EXPECT_GT(sum.abandoned, share / 10);
  EXPECT_GT(sum.masters, 2 * share);
  EXPECT_GT(sum.no_space, share / 10);
  RecordProperty("events", std::to_string(sum.events));
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomSchedules, testing::Range(0, 10));

// Breaks one rule and expects the oracle to notice within `most` schedules.
void expect_caught(const Mutations& mutations, uint64_t most, const std::string& word) {
  std::string other;
  for (uint64_t seed = 1; seed <= most; ++seed) {
    const Outcome outcome = random_schedule(seed, mutations);
    if (outcome.violation.find(word) != std::string::npos) return;
    if (!outcome.violation.empty()) other = outcome.violation;
  }
  FAIL() << "not noticed in " << most << " schedules" << (other.empty() ? "" : "; but: " + other);
}

TEST(Mutation, ReadersWhoseSpaceIsFreedUnderTheirLeaseAreNoticed) {
  Mutations mutations;
  mutations.readers_lease_too_long = true;
  expect_caught(mutations, 2000, "no complete version");
}

TEST(Mutation, WritersThatIgnoreTheirLeaseAreNoticed) {
  Mutations mutations;
  mutations.writers_ignore_leases = true;
  expect_caught(mutations, 500, "two writers");
}

TEST(Mutation, AcknowledgingWithoutRecordingIsNoticed) {
  Mutations mutations;
  mutations.acknowledge_without_recording = true;
  expect_caught(mutations, 100, "did not record it");
}

TEST(Mutation, IgnoringGrantsIsNoticed) {
  Mutations mutations;
  mutations.ignore_grants = true;
  expect_caught(mutations, 5000, "two writers");
}

TEST(Mutation, AJournalWithoutTombstonesIsNoticed) {
  Mutations mutations;
  mutations.forget_tombstones = true;
  expect_caught(mutations, 5000, "removed or replaced");
}

TEST(Mutation, ConfirmingQuietWithoutCuttingIsNoticed) {
  Mutations mutations;
  mutations.quiet_without_cutting = true;
  expect_caught(mutations, 2000, "two writers");
}

TEST(Mutation, ForgettingRangesUnderLeasesIsNoticed) {
  Mutations mutations;
  mutations.forget_held = true;
  expect_caught(mutations, 5000, "no complete version");
}

TEST(Mutation, ConfirmingDropsWithoutDroppingIsNoticed) {
  Mutations mutations;
  mutations.drop_nothing = true;
  expect_caught(mutations, 500, "removed or replaced");
}

TEST(Mutation, CommittingWhatIsNotWrittenIsNoticed) {
  Mutations mutations;
  mutations.commit_unwritten = true;
  expect_caught(mutations, 200, "no complete version");
}

TEST(Replay, OfASeedIsExact) {
  for (const uint64_t seed : {3u, 17u, 99u}) {
    const Outcome first = random_schedule(seed);
    // Other memory contents in between must not matter.
    std::vector<std::string> noise(1000, std::string(100, 'x'));
    const Outcome second = random_schedule(seed);
    EXPECT_EQ(first.events, second.events);
    EXPECT_EQ(first.reads, second.reads);
    EXPECT_EQ(first.acked, second.acked);
  }
}

}  // namespace
}  // namespace tidewire::store::simulation

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // What masters warn of is what the schedules do to them.
  tidewire::log::set_level(tidewire::log::Level::kOff);
  using tidewire::store::simulation::arguments;
  if (const char* text = std::getenv("TIDEWIRE_SIM_SEED")) arguments.seed = std::strtoull(text, nullptr, 10);
  if (const char* text = std::getenv("TIDEWIRE_SIM_SCHEDULES")) arguments.schedules = std::max(10ull, std::strtoull(text, nullptr, 10));
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--trace") == 0) arguments.trace = true;
    if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) arguments.seed = std::strtoull(argv[++i], nullptr, 10);
  }
  return RUN_ALL_TESTS();
}
