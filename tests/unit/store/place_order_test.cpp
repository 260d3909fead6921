// SPDX-License-Identifier: Apache-2.0
#include "store/owner/place_order.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tidewire::store {
namespace {

using Model = std::map<std::pair<uint32_t, uint64_t>, uint32_t>;

void expect_same(const PlaceOrder& order, const Model& model, uint32_t segment, uint64_t offset) {
  const auto expected = model.lower_bound({segment, offset});
  const auto found = order.from({segment, offset});
  ASSERT_EQ(found.has_value(), expected != model.end());
  if (found) {
    EXPECT_EQ(found->place.segment, expected->first.first);
    EXPECT_EQ(found->place.offset, expected->first.second);
    EXPECT_EQ(found->id, expected->second);
  }
  const auto before = order.before({segment, offset});
  const bool has_before = expected != model.begin() && std::prev(expected)->first.first == segment;
  ASSERT_EQ(before.has_value(), has_before);
  if (before) {
    EXPECT_EQ(before->place.offset, std::prev(expected)->first.second);
    EXPECT_EQ(before->id, std::prev(expected)->second);
  }
}

TEST(PlaceOrder, AnswersAsASortedMapDoes) {
  std::mt19937_64 random(1);
  PlaceOrder order;
  Model model;
  for (int step = 0; step < 200'000; ++step) {
    // It grows, shrinks and grows again.
    const bool growing = step / 40'000 % 2 == 0;
    const auto segment = static_cast<uint32_t>(random() % 3);
    const uint64_t offset = random() % 20'000 * 4096;
    if (random() % 10 < (growing ? 7u : 3u)) {
      const auto id = static_cast<uint32_t>(random());
      order.insert({segment, offset}, id);
      model[{segment, offset}] = id;
    } else {
      const auto some = model.lower_bound({segment, offset});
      if (some != model.end() && random() % 8 != 0) {
        order.erase({some->first.first, some->first.second});
        model.erase(some);
      } else {
        order.erase({segment, offset + 1});  // nothing begins there
      }
    }
    if (step % 16 == 0) expect_same(order, model, static_cast<uint32_t>(random() % 4), random() % (20'000 * 4096));
  }
  auto next = order.from({0, 0});
  for (const auto& [place, id] : model) {
    ASSERT_TRUE(next);
    ASSERT_EQ(std::make_pair(next->place.segment, next->place.offset), place);
    ASSERT_EQ(next->id, id);
    next = order.from({next->place.segment, next->place.offset + 1});
  }
  EXPECT_FALSE(next);
  while (!model.empty()) {
    order.erase({model.begin()->first.first, model.begin()->first.second});
    model.erase(model.begin());
  }
  EXPECT_FALSE(order.from({0, 0}));
}

TEST(PlaceOrder, TakesWhatComesFromFrontToBackAndFromBackToFront) {
  for (const bool forward : {true, false}) {
    PlaceOrder order;
    for (uint32_t i = 0; i < 5'000; ++i) order.insert({7, (forward ? i : 4'999 - i) * uint64_t{4096}}, i);
    uint32_t seen = 0;
    for (auto next = order.from({0, 0}); next; next = order.from({7, next->place.offset + 1})) {
      EXPECT_EQ(next->place.offset, seen * uint64_t{4096});
      EXPECT_EQ(next->id, forward ? seen : 4'999 - seen);
      ++seen;
    }
    EXPECT_EQ(seen, 5'000u);
  }
}

}  // namespace
}  // namespace tidewire::store
