// SPDX-License-Identifier: Apache-2.0
//
// The time limits of the scenarios (B03, B06, B17, X10, a lost rail), in virtual time: plots of their own instead of random ones, under
// the same oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "sim/driver.h"
#include "sim/far_transport.h"
#include "sim/near_transport.h"
#include "sim/schedule.h"

namespace tidewire::sim {
namespace {

class Scenario : public testing::Test {
 protected:
  void build(uint64_t seed, uint32_t engines, uint32_t rails) {
    cluster_.reset();
    world_.emplace(seed, false);
    Settings settings;
    settings.session.least_slice = 512;
    settings.reorder_actions = true;
    cluster_.emplace(*world_, engines, rails, settings, Mutations{});
    number_ = 0;
  }
  ~Scenario() override { cluster_.reset(); }

  SimJobPtr submit(JobShape shape) {
    const SimJobPtr job = make_job(*cluster_, shape, number_++);
    if (!job) {
      ADD_FAILURE() << "no room for the job";
      return nullptr;
    }
    cluster_->submit(job);
    return job;
  }
  void run(Nanos duration) {
    world_->run(world_->now() + duration);
    ASSERT_EQ(world_->violation(), "");
  }
  static bool completed(const SimJob& job) {
    if (!job.finished) return false;
    for (uint64_t i = 0; i < job.job->count; ++i)
      if (job.job->transfers[i].state != TW_STATE_COMPLETED) return false;
    return true;
  }
  Nanos took(const SimJob& job) const { return (job.finished ? job.finished_at : world_->now()) - job.job->submitted; }
  void cut_rail(uint32_t a, uint32_t b, uint32_t rail) {
    cluster_->network.block(a, b, rail);
    cluster_->network.block(b, a, rail);
  }
  void black_hole(uint32_t slot) {
    for (uint32_t other = 0; other < cluster_->slots.size(); ++other)
      for (uint32_t rail = 0; other != slot && rail < cluster_->network.rails(); ++rail) cut_rail(other, slot, rail);
  }

  std::optional<World> world_;
  std::optional<Cluster> cluster_;
  uint32_t number_ = 0;
};

// B03: the first success at most 2 s after the restarted peer is ready, whether its host refused or was silent meanwhile.
TEST_F(Scenario, ARestartedPeerIsUsedWithinTwoSeconds) {
  Nanos worst = 0;
  for (uint64_t round = 1; round <= 200; ++round) {
    build(round, 2, 2);
    std::vector<SimJobPtr> jobs;
    std::function<void()> next = [&] {
      // A caller in a loop: the next transfer follows the last one.
      if (jobs.empty() || jobs.back()->finished) {
        JobShape shape;
        shape.length = 512;
        shape.deadline = 10 * kSecond;
        jobs.push_back(submit(shape));
      }
      world_->after(5 * kMillisecond, next);
    };
    next();
    run(300 * kMillisecond);
    Random& random = world_->random;
    cluster_->crash(1, random.chance(0.5));
    run(random.between(0, 3 * kSecond));
    const Nanos ready = world_->now();
    cluster_->start(1, random.chance(0.5));
    run(4 * kSecond);
    Nanos first = kNever;
    for (const SimJobPtr& job : jobs)
      if (completed(*job) && job->placed_in == cluster_->slots[1].process) first = std::min(first, job->finished_at);
    ASSERT_LE(first, ready + 2 * kSecond) << "round " << round;
    worst = std::max(worst, first - ready);
    world_->clear();
  }
  RecordProperty("worst_ms", std::to_string(worst / kMillisecond));
}

// A before B: the same when the peer did not exist at first.
TEST_F(Scenario, APeerThatComesLaterIsUsedWithinTwoSeconds) {
  for (uint64_t round = 1; round <= 50; ++round) {
    build(round, 2, 1);
    cluster_->crash(1, round % 2 == 0);
    JobShape shape;
    shape.deadline = 10 * kSecond;
    const SimJobPtr early = submit(shape);
    run(1500 * kMillisecond + world_->random.between(0, kSecond));
    EXPECT_TRUE(early->finished);
    cluster_->start(1, true);
    const Nanos ready = world_->now();
    SimJobPtr job;
    do {
      job = submit(shape);
      run(50 * kMillisecond);
    } while (!completed(*job) && world_->now() < ready + 3 * kSecond);
    ASSERT_LE(job->finished_at, ready + 2 * kSecond);
  }
}

// B06: requests to a black hole end within 1.5 s, later ones at once; a healthy peer is as fast as without it.
TEST_F(Scenario, ABlackHoleFailsInTimeAndSlowsNobody) {
  const auto healthy = [&](bool with_black_hole) {
    build(7, 3, 1);
    black_hole(2);
    std::vector<SimJobPtr> good, bad;
    for (int i = 0; i < 400; ++i) {
      JobShape shape;
      shape.length = 4096;
      good.push_back(submit(shape));
      if (with_black_hole && i >= 100 && i < 300) {
        shape.target = 2;
        shape.length = 64;
        bad.push_back(submit(shape));
      }
      run(10 * kMillisecond);
    }
    run(2 * kSecond);
    for (const SimJobPtr& job : bad) {
      EXPECT_TRUE(job->finished);
      EXPECT_LE(took(*job), 1500 * kMillisecond);
    }
    if (with_black_hole) {
      EXPECT_LE(took(*bad.back()), kMillisecond) << "in back-off: at once";
    }
    std::vector<Nanos> times;
    for (const SimJobPtr& job : good) {
      EXPECT_TRUE(completed(*job));
      times.push_back(took(*job));
    }
    std::sort(times.begin(), times.end());
    return times[times.size() * 99 / 100];
  };
  const Nanos without = healthy(false), with = healthy(true);
  EXPECT_LE(with, without + without / 2);
}

// B06, third form.
TEST_F(Scenario, ARefusingPeerFailsWithinATenthOfASecond) {
  build(1, 2, 2);
  cluster_->crash(1, false);
  const SimJobPtr job = submit({});
  run(kSecond);
  ASSERT_TRUE(job->finished);
  EXPECT_LE(took(*job), 100 * kMillisecond);
  EXPECT_EQ(job->job->error.code(), Code::kUnreachable);
}

// One of four rails lost in the middle: no error, no stall above 1.2 s. Rail 0 carries the control plane too.
TEST_F(Scenario, ALostRailStallsForLessThanTwelveHundredMilliseconds) {
  for (uint32_t rail = 0; rail < 4; ++rail) {
    for (bool one_way : {false, true}) {
      build(rail + 1, 2, 4);
      cluster_->network.bytes_per_second = 100'000;  // a second and a half for what follows
      JobShape shape;
      shape.count = 40;
      shape.length = 15'000;
      const SimJobPtr job = submit(shape);
      run(500 * kMillisecond);
      ASSERT_FALSE(job->finished);
      cluster_->network.block(0, 1, rail);
      if (!one_way) cluster_->network.block(1, 0, rail);
      Nanos last = world_->now(), longest = 0;
      uint64_t done = 0;
      while (!job->finished && world_->now() < job->job->deadline) {
        run(5 * kMillisecond);
        uint64_t sum = 0;
        for (uint64_t i = 0; i < job->job->count; ++i) sum += job->job->transfers[i].done;
        if (sum != done) {
          longest = std::max(longest, world_->now() - last);
          last = world_->now();
          done = sum;
        }
      }
      longest = std::max(longest, world_->now() - last);
      EXPECT_TRUE(completed(*job)) << job->job->error.message();
      EXPECT_LE(longest, 1200 * kMillisecond) << "rail " << rail;
      EXPECT_LE(took(*job), 4 * kSecond);
    }
  }
}

// X10: queued, connecting and transferring.
TEST_F(Scenario, ACanceledJobEndsWithinASecondInEveryPhase) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    build(seed, 2, 2);
    cluster_->network.bytes_per_second = 200'000;
    Random& random = world_->random;
    const bool dark = random.chance(0.4);
    if (random.chance(0.3)) black_hole(1);
    JobShape shape;
    shape.count = 10;
    shape.length = 10'000;
    const SimJobPtr job = submit(shape);
    run(random.skewed(0, 800 * kMillisecond));
    if (dark) black_hole(1);
    run(random.skewed(0, 100 * kMillisecond));
    if (job->finished) continue;
    const Nanos canceled = world_->now();
    cluster_->cancel(job);
    run(kSecond);
    ASSERT_TRUE(job->finished) << "seed " << seed;
    EXPECT_LE(job->finished_at - canceled, 500 * kMillisecond);
    const Code code = job->job->error.code();
    EXPECT_TRUE(code == Code::kCanceled || code == Code::kUnreachable) << code_name(code);
  }
}

// B17: each transfer has its own result.
TEST_F(Scenario, OfAHundredTransfersOnlyTheBadOnesFail) {
  build(3, 2, 2);
  JobShape shape;
  shape.count = 100;
  shape.length = 1000;
  shape.bad = 3;
  const SimJobPtr job = submit(shape);
  run(kSecond);
  ASSERT_TRUE(job->finished);
  for (uint64_t i = 0; i < 100; ++i)
    EXPECT_EQ(job->job->transfers[i].state, i < 3 ? TW_STATE_FAILED : TW_STATE_COMPLETED) << i;
}

// A lane that dies with bytes in flight, on a peer that stays: the job completes on another lane, and the old bytes can't follow.
TEST_F(Scenario, ResetConnectionsCostNoTransfer) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    build(seed, 2, 2);
    cluster_->network.bytes_per_second = 1'000'000;
    JobShape shape;
    shape.count = 20;
    shape.length = 10'000;
    shape.notify = true;
    const SimJobPtr job = submit(shape);
    run(world_->random.between(0, 150 * kMillisecond));
    cluster_->reset(0, 1);
    run(5 * kSecond);
    ASSERT_TRUE(completed(*job)) << "seed " << seed << ": " << job->job->error.message();
    EXPECT_EQ(job->delivered, 1u);
  }
}

}  // namespace
}  // namespace tidewire::sim
