// SPDX-License-Identifier: Apache-2.0
//
// Random schedules against the oracle, and proof that the oracle bites. TIDEWIRE_SIM_SCHEDULES sets how many schedules run (10,000 unless set);
// --seed N (or TIDEWIRE_SIM_SEED) runs one alone, --trace shows its events.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "sim/schedule.h"

namespace tidewire::sim {
namespace {

struct Arguments {
  uint64_t seed = 0;
  bool trace = false;
  uint64_t schedules = 10'000;
} arguments;

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
    ASSERT_EQ(outcome.violation, "") << "replay with: tidewire_sim_test --gtest_filter='*KeepAllRules/0' --seed " << seed << " --trace";
    sum.completed += outcome.completed;
    sum.failed += outcome.failed;
    sum.revocations += outcome.revocations;
    sum.retries += outcome.retries;
    sum.events += outcome.events;
  }
  // Schedules in which nothing happens prove nothing.
  EXPECT_GT(sum.completed, 5 * share);
  EXPECT_GT(sum.failed, share);
  EXPECT_GT(sum.retries, share);
  EXPECT_GT(sum.revocations, share / 10);
  RecordProperty("events", std::to_string(sum.events));
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomSchedules, testing::Range(0, 10));

// Breaks one rule and expects the oracle to notice within `most` schedules.
void expect_caught(Mutations mutations, uint64_t most, const std::string& word) {
  std::string other;
  for (uint64_t seed = 1; seed <= most; ++seed) {
    const Outcome outcome = random_schedule(seed, mutations);
    if (outcome.violation.find(word) != std::string::npos) return;
    if (!outcome.violation.empty()) other = outcome.violation;
  }
  FAIL() << "not noticed in " << most << " schedules" << (other.empty() ? "" : "; but: " + other);
}

TEST(Mutation, ConfirmingARevocationWithoutCuttingIsCaught) {
  Mutations mutations;
  mutations.confirm_revocation_without_cutting = true;
  expect_caught(mutations, 400, "after its end");
}

TEST(Mutation, SkippingRevocationIsCaught) {
  Mutations mutations;
  mutations.skip_revocation = true;
  expect_caught(mutations, 400, "after its end");
}

TEST(Mutation, AcknowledgingBeforePlacingIsCaught) {
  Mutations mutations;
  mutations.acknowledge_before_placing = true;
  expect_caught(mutations, 100, "its bytes are not at the target");
}

TEST(Mutation, NotifyingBeforeTheDataIsCaught) {
  Mutations mutations;
  mutations.notify_before_data = true;
  expect_caught(mutations, 100, "notified before its data");
}

TEST(Mutation, NotifyingAnInstanceWithoutTheDataIsCaught) {
  Mutations mutations;
  mutations.notify_any_instance = true;
  expect_caught(mutations, 2000, "notified before its data");
}

TEST(Mutation, ForgettingDuplicateNotificationsIsCaught) {
  Mutations mutations;
  mutations.forget_duplicates = true;
  expect_caught(mutations, 1000, "notified twice");
}

TEST(Mutation, TouchingLocalMemoryAfterTheChannelIsDownIsCaught) {
  Mutations mutations;
  mutations.touch_local_memory_after_down = true;
  expect_caught(mutations, 400, "touched local memory after its end");
}

TEST(Mutation, AcceptingAnyInstanceIsCaught) {
  Mutations mutations;
  mutations.accept_any_instance = true;
  expect_caught(mutations, 1000, "two instances");
}

TEST(Mutation, IgnoringRangesIsCaught) {
  Mutations mutations;
  mutations.ignore_ranges = true;
  expect_caught(mutations, 200, "outside of the regions");
}

TEST(Replay, OfASeedIsExact) {
  for (uint64_t seed : {3u, 17u, 99u}) {
    const Outcome first = random_schedule(seed);
    // Other memory contents in between must not matter.
    std::vector<std::string> noise(1000, std::string(100, 'x'));
    const Outcome second = random_schedule(seed);
    EXPECT_EQ(first.events, second.events);
    EXPECT_EQ(first.completed, second.completed);
    EXPECT_EQ(first.retries, second.retries);
  }
}

}  // namespace
}  // namespace tidewire::sim

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  using tidewire::sim::arguments;
  if (const char* text = std::getenv("TIDEWIRE_SIM_SEED")) arguments.seed = std::strtoull(text, nullptr, 10);
  if (const char* text = std::getenv("TIDEWIRE_SIM_SCHEDULES")) arguments.schedules = std::max(10ull, std::strtoull(text, nullptr, 10));
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--trace") == 0) arguments.trace = true;
    if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) arguments.seed = std::strtoull(argv[++i], nullptr, 10);
  }
  return RUN_ALL_TESTS();
}
