// SPDX-License-Identifier: Apache-2.0
#include "store/master/eviction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <set>
#include <unordered_map>
#include <vector>

namespace tidewire::store {
namespace {

using Id = Eviction::Id;
using Pin = Eviction::Pin;

// A catalogue of objects of one size that does what the policy says.
class Store {
 public:
  explicit Store(size_t room = SIZE_MAX) : room_(room) {}

  Id put(uint64_t key, Id parent, uint32_t segment = 0) {
    if (ids_.size() >= room_) evict(1);
    const Id id = free_.empty() ? next_++ : free_.back();
    if (!free_.empty()) free_.pop_back();
    ids_[key] = id;
    keys_[id] = key;
    eviction.insert(id, key, segment, keys_.contains(parent) ? parent : Eviction::kNone, now);
    return id;
  }
  // Puts keys first … first + length - 1 as one batch.
  std::vector<Id> put_chain(uint64_t first, size_t length, uint32_t segment = 0) {
    std::vector<Id> chain;
    for (size_t i = 0; i < length; ++i) chain.push_back(put(first + i, i ? chain.back() : Eviction::kNone, segment));
    return chain;
  }
  // Reads what is there of a request's prefix and puts the rest; the number of blocks that were there.
  size_t request(const std::vector<uint64_t>& keys) {
    std::vector<Id> chain;
    for (const uint64_t key : keys) {
      const auto found = ids_.find(key);
      if (found == ids_.end()) break;
      chain.push_back(found->second);
    }
    eviction.touch(chain, now);
    Id parent = chain.empty() ? Eviction::kNone : chain.back();
    for (size_t i = chain.size(); i < keys.size(); ++i) {
      const auto found = ids_.find(keys[i]);
      parent = found == ids_.end() ? put(keys[i], parent) : found->second;
    }
    return chain.size();
  }
  // The keys evicted, in order.
  std::vector<uint64_t> evict(uint64_t count, uint32_t segment = 0) {
    std::vector<uint64_t> evicted;
    eviction.evict(count, segment, now, [&](Id id) {
      if (refused.contains(keys_.at(id))) return uint64_t{0};
      evicted.push_back(keys_.at(id));
      ids_.erase(keys_.at(id));
      keys_.erase(id);
      free_.push_back(id);
      return uint64_t{1};
    });
    return evicted;
  }
  void remove(uint64_t key) {
    const Id id = ids_.at(key);
    eviction.erase(id);
    ids_.erase(key);
    keys_.erase(id);
    free_.push_back(id);
  }
  Id id(uint64_t key) const { return ids_.at(key); }
  bool has(uint64_t key) const { return ids_.contains(key); }
  size_t size() const { return ids_.size(); }

  Eviction eviction;
  Nanos now = 1'000 * kSecond;
  std::set<uint64_t> refused;

 private:
  const size_t room_;
  std::unordered_map<uint64_t, Id> ids_;
  std::unordered_map<Id, uint64_t> keys_;
  std::vector<Id> free_;
  Id next_ = 0;
};

using Keys = std::vector<uint64_t>;

TEST(Eviction, WithNothingLearnedTheLeastRecentlyUsedGoesFirst) {
  Store store;
  for (uint64_t key = 1; key <= 4; ++key, store.now += 10 * kSecond) store.put(key, Eviction::kNone);
  const Id first = store.id(1);
  store.eviction.touch({&first, 1}, store.now);
  store.now += 10 * kSecond;
  EXPECT_EQ(store.evict(4), (Keys{2, 3, 4, 1}));
}

TEST(Eviction, ABatchGoesFromItsEndToItsBeginning) {
  Store store;
  store.put_chain(10, 5);
  store.now += 10 * kSecond;
  EXPECT_EQ(store.evict(5), (Keys{14, 13, 12, 11, 10}));
}

TEST(Eviction, ABatchThatIsPutSlowlyStillGoesFromItsEnd) {
  Store store;
  Id parent = Eviction::kNone;
  for (uint64_t key = 10; key < 20; ++key, store.now += 700 * kMillisecond) parent = store.put(key, parent);
  store.now += 10 * kSecond;
  EXPECT_EQ(store.evict(10), (Keys{19, 18, 17, 16, 15, 14, 13, 12, 11, 10}));
}

TEST(Eviction, AContinuationThatWasReadAloneDoesNotOutliveItsPrefixOnceBothAreRead) {
  Store store;
  const auto chain = store.put_chain(1, 2);
  for (int i = 0; i < 5; ++i) {
    store.now += 10 * kSecond;
    store.eviction.touch({&chain[1], 1}, store.now);
  }
  store.now += 10 * kSecond;
  store.eviction.touch(chain, store.now);
  store.now += 10 * kSecond;
  EXPECT_EQ(store.evict(2), (Keys{2, 1}));
}

TEST(Eviction, APrefixStaysWhileAnythingThatContinuesItIsThere) {
  // Random conversations that branch from one another and come back; whatever was learned, no block goes before what
  // continues it.
  Store store;
  std::mt19937 random(7);
  std::vector<Keys> conversations{{1}};
  std::map<uint64_t, uint64_t> parent_of;
  uint64_t next = 2;
  for (int step = 0; step < 5'000; ++step, store.now += static_cast<Nanos>(random() % 800) * kMillisecond) {
    Keys keys = conversations[random() % conversations.size()];
    keys.resize(1 + random() % keys.size());
    for (size_t more = random() % 6; more > 0; --more) {
      parent_of[next] = keys.back();
      keys.push_back(next++);
    }
    store.request(keys);
    conversations.push_back(keys);
    if (conversations.size() > 50) conversations.erase(conversations.begin() + static_cast<int>(random() % 50));
    if (store.size() < 300) continue;
    std::map<uint64_t, int> continuations;
    for (const auto& [key, parent] : parent_of)
      if (store.has(key)) ++continuations[parent];
    for (const uint64_t key : store.evict(60)) {
      ASSERT_EQ(continuations[key], 0) << "step " << step << ": " << key << " went before its continuation";
      if (parent_of.contains(key)) --continuations[parent_of[key]];
    }
    std::erase_if(parent_of, [&](const auto& of) { return !store.has(of.first); });
  }
}

TEST(Eviction, OnlyTheSegmentAskedForLosesObjects) {
  Store store;
  for (uint64_t key = 0; key < 100; ++key) store.put(key, Eviction::kNone, key % 4);
  store.now += 10 * kSecond;
  const Keys evicted = store.evict(SIZE_MAX, 2);
  EXPECT_EQ(evicted.size(), 25u);
  for (const uint64_t key : evicted) EXPECT_EQ(key % 4, 2u);
  EXPECT_TRUE(store.evict(1, 2).empty());
  EXPECT_TRUE(store.evict(1, 65'535).empty());
}

TEST(Eviction, AnySegmentMeansTheOldestOfAllWhenNothingIsLearned) {
  Store store;
  for (uint64_t key = 0; key < 12; ++key, store.now += 10 * kSecond) store.put(key, Eviction::kNone, key * 7 % 5);
  EXPECT_EQ(store.evict(5, Eviction::kAnySegment), (Keys{0, 1, 2, 3, 4}));
  EXPECT_EQ(store.evict(SIZE_MAX, Eviction::kAnySegment).size(), 7u);
}

TEST(Eviction, AnySegmentReachesEachOfVeryManySegments) {
  Store store;
  for (uint64_t key = 0; key < 500; ++key) store.put(key, Eviction::kNone, static_cast<uint32_t>(key * 131));
  store.now += 10 * kSecond;
  EXPECT_EQ(store.evict(SIZE_MAX, Eviction::kAnySegment).size(), 500u);
}

TEST(Eviction, BytesAreCountedNotObjects) {
  Eviction eviction;
  for (Id id = 0; id < 10; ++id) eviction.insert(id, id, 0, Eviction::kNone, id * 10 * kSecond);
  std::vector<Id> victims;
  const uint64_t freed = eviction.evict(1'000, 0, 200 * kSecond, [&](Id id) {
    victims.push_back(id);
    return uint64_t{id == 0 ? 100u : 600u};
  });
  EXPECT_EQ(freed, 1'300u);
  EXPECT_EQ(victims, (std::vector<Id>{0, 1, 2}));
  EXPECT_EQ(eviction.size(), 7u);
}

TEST(Eviction, HardPinnedObjectsAreNeverOffered) {
  Store store;
  store.put_chain(1, 6);
  store.eviction.pin(store.id(3), Pin::kHard);
  store.now += 10 * kSecond;
  EXPECT_EQ(store.evict(SIZE_MAX), (Keys{6, 5, 4, 2, 1}));
  store.eviction.pin(store.id(3), Pin::kNone);
  EXPECT_EQ(store.evict(1), (Keys{3}));
}

TEST(Eviction, SoftPinnedObjectsGoWhenNothingElseIsLeft) {
  Store store;
  for (uint64_t key = 1; key <= 4; ++key, store.now += 10 * kSecond) store.put(key, Eviction::kNone);
  store.eviction.pin(store.id(1), Pin::kSoft);
  store.eviction.pin(store.id(2), Pin::kSoft);
  store.eviction.pin(store.id(2), Pin::kNone);
  store.put(5, Eviction::kNone);  // just put: before it too
  const Keys evicted = store.evict(SIZE_MAX);
  ASSERT_EQ(evicted.size(), 5u);
  EXPECT_EQ(evicted.back(), 1u);
}

TEST(Eviction, ARefusedVictimCountsAsJustUsedAndTheNextOneGoes) {
  Store store;
  for (uint64_t key = 1; key <= 4; ++key, store.now += 10 * kSecond) store.put(key, Eviction::kNone);
  store.refused = {1};
  EXPECT_EQ(store.evict(1), (Keys{2}));
  store.refused.clear();
  EXPECT_EQ(store.evict(3), (Keys{3, 4, 1}));
}

TEST(Eviction, AskingForMoreThanCanGoEndsAndGoesOnAtTheNextCall) {
  Store store;
  for (uint64_t key = 0; key < 5'000; ++key) {
    store.put(key, Eviction::kNone);
    if (key != 4'999) store.refused.insert(key);
  }
  store.now += 10 * kSecond;
  size_t calls = 0;
  for (; store.has(4'999) && calls < 100; ++calls, store.now += 100 * kMillisecond) store.evict(1);
  EXPECT_GT(calls, 1u);
  EXPECT_LT(calls, 10u);
}

TEST(Eviction, WhatWasJustPutGoesLast) {
  // Conversations come back and one-shot prompts don't, so that the policy learns to prefer the former.
  Store store(2'000);
  uint64_t one_shot = 1'000'000;
  for (int round = 0; round < 200; ++round)
    for (uint64_t chat = 0; chat < 20; ++chat, store.now += kSecond) {
      store.request({chat * 10, chat * 10 + 1, chat * 10 + 2, chat * 10 + 3});
      Keys prompt;
      for (int i = 0; i < 10; ++i) prompt.push_back(one_shot++);
      store.request(prompt);
    }
  store.put(1, Eviction::kNone);
  store.request({one_shot});
  // All but three, among them conversations that are worth more.
  EXPECT_GT(store.evict(store.size() - 3).size(), 1'000u);
  EXPECT_TRUE(store.has(one_shot));
}

TEST(Eviction, NumbersAreReusedAndErasedParentsForgotten) {
  Store store;
  const auto chain = store.put_chain(1, 3);
  store.remove(2);
  store.remove(1);
  store.now += 10 * kSecond;
  EXPECT_EQ(store.put(50, Eviction::kNone), chain[0]);
  EXPECT_EQ(store.put(51, chain[2]), chain[1]);
  store.eviction.erase(12'345);
  store.eviction.touch(std::vector<Id>{chain[2], 999'999, chain[1]}, store.now);
  EXPECT_EQ(store.eviction.size(), 3u);
  store.now += 10 * kSecond;
  EXPECT_EQ(store.evict(SIZE_MAX).size(), 3u);
  EXPECT_EQ(store.eviction.size(), 0u);
}

TEST(Eviction, MemoryPerObjectIsSmallAndStopsGrowing) {
  constexpr size_t kRoom = 300'000;
  Store store(kRoom);
  uint64_t key = 0;
  const auto fill = [&] {
    for (size_t i = 0; i < kRoom / 10; ++i, store.now += kMillisecond, key += 10) store.put_chain(key, 10);
  };
  fill();
  fill();
  const size_t after_two = store.eviction.memory_bytes();
  // Beside the model, which is of one size for all.
  EXPECT_LE((after_two - ReuseModel(EvictionOptions().watched_keys).memory_bytes()) / kRoom, 52u);
  fill();
  EXPECT_EQ(store.eviction.memory_bytes(), after_two);
}

// Random operations against a plain list of what exists: everything is offered once, and what isn't evicted is still
// there.
TEST(Eviction, EveryObjectIsOfferedOnceWhateverHappenedBefore) {
  std::mt19937 random(3);
  Store store;
  std::set<uint64_t> present;
  uint64_t next = 0;
  for (int step = 0; step < 30'000; ++step, store.now += static_cast<Nanos>(random() % 3'000) * kMillisecond) {
    const auto any = [&] { return *std::next(present.begin(), static_cast<int>(random() % present.size())); };
    const unsigned choice = present.empty() ? 0 : random() % 6;
    if (choice <= 1) {
      store.put(next, present.empty() ? Eviction::kNone : store.id(any()), random() % 3);
      present.insert(next++);
    } else if (choice == 2) {
      std::vector<Id> chain;
      for (int i = 0; i < 4; ++i) chain.push_back(store.id(any()));
      store.eviction.touch(chain, store.now);
    } else if (choice == 3) {
      store.eviction.pin(store.id(any()), static_cast<Pin>(random() % 3));
    } else if (choice == 4 && present.size() > 100) {
      const uint64_t key = any();
      store.remove(key);
      present.erase(key);
    } else if (choice == 5 && present.size() > 100) {
      for (const uint64_t key : store.evict(2, random() % 4 == 3 ? Eviction::kAnySegment : random() % 3))
        ASSERT_EQ(present.erase(key), 1u);
    }
  }
  ASSERT_EQ(store.eviction.size(), present.size());
  for (const uint64_t key : present) store.eviction.pin(store.id(key), Pin::kNone);
  for (const uint64_t key : store.evict(SIZE_MAX, Eviction::kAnySegment)) ASSERT_EQ(present.erase(key), 1u);
  EXPECT_TRUE(present.empty());
}

struct Request {
  Nanos at;
  Keys blocks;
};

// A trace of the shape of a chat service's: one shared first block, many prompts that never come back, conversations
// that come back after a minute or two with all they had but their last block.
std::vector<Request> chat_trace(unsigned seed, size_t requests) {
  std::mt19937 random(seed);
  std::exponential_distribution<double> pause(1.0 / 100);
  std::multimap<Nanos, Keys> returning;
  std::vector<Request> trace;
  uint64_t next = 1;
  Nanos now = 0;
  while (trace.size() < requests) {
    now += 300 * kMillisecond;
    Keys blocks{0};
    bool again = random() % 100 < 40;
    if (!returning.empty() && returning.begin()->first <= now) {
      blocks = returning.begin()->second;
      returning.erase(returning.begin());
      blocks.pop_back();
      again = random() % 100 < 80;
    }
    for (size_t more = 2 + random() % 30; more > 0; --more) blocks.push_back(next++);
    if (again) returning.emplace(now + static_cast<Nanos>((20 + pause(random)) * kSecond), blocks);
    trace.push_back({now, blocks});
  }
  return trace;
}

size_t saved_by_lru(const std::vector<Request>& trace, size_t room) {
  std::list<uint64_t> order;
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> stored;
  size_t saved = 0;
  for (const Request& request : trace) {
    const auto missing =
        std::find_if(request.blocks.begin(), request.blocks.end(), [&](uint64_t key) { return !stored.contains(key); });
    saved += static_cast<size_t>(missing - request.blocks.begin());
    for (auto key = request.blocks.rbegin(); key != request.blocks.rend(); ++key) {
      if (const auto found = stored.find(*key); found != stored.end()) {
        order.splice(order.end(), order, found->second);
        continue;
      }
      if (stored.size() == room) {
        stored.erase(order.front());
        order.pop_front();
      }
      stored[*key] = order.insert(order.end(), *key);
    }
  }
  return saved;
}

size_t saved_by_ours(const std::vector<Request>& trace, size_t room) {
  Store store(room);
  size_t saved = 0;
  for (const Request& request : trace) {
    store.now = request.at;
    saved += store.request(request.blocks);
  }
  return saved;
}

class EvictionOfChats : public testing::TestWithParam<unsigned> {};

TEST_P(EvictionOfChats, SavesMoreThanLruWhereRoomIsShortAndNoLessWhereItIsNot) {
  const auto trace = chat_trace(GetParam(), 5'000);
  for (const auto& [room, least] : std::map<size_t, double>{{2'000, 1.15}, {5'000, 1.2}, {20'000, 1.0}}) {
    const auto lru = static_cast<double>(saved_by_lru(trace, room)),
               ours = static_cast<double>(saved_by_ours(trace, room));
    EXPECT_GE(ours, least * lru) << room << " blocks: LRU saves " << lru << ", Tidewire " << ours;
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, EvictionOfChats, testing::Values(1, 2));

TEST(ReuseModel, AgeBucketsAndTheirStartsAgree) {
  for (unsigned bucket = 0; bucket < ReuseModel::kAges; ++bucket) {
    EXPECT_EQ(ReuseModel::age_bucket(ReuseModel::age_start(bucket)), bucket);
    if (bucket == 0) continue;
    EXPECT_EQ(ReuseModel::age_bucket(ReuseModel::age_start(bucket) - 1), bucket - 1);
  }
  EXPECT_EQ(ReuseModel::age_bucket(UINT32_MAX), ReuseModel::kAges - 1);
}

TEST(ReuseModel, LearnsWhichClassComesBackAndForgetsTheLongestUnusedKeys) {
  ReuseModel model(1'000);
  const uint8_t returning = ReuseModel::class_of(2, false), lost = ReuseModel::class_of(1, false);
  ReuseModel::Ticks now = 0;
  std::vector<uint32_t> slots;
  for (uint32_t key = 0; key < 200; ++key) slots.push_back(model.watch(key, returning, 0, now));
  const uint32_t first_lost = 1'000;
  for (uint32_t round = 0; round < 100; ++round) {
    now += 60 * 1'000'000'000ull >> 24;
    for (uint32_t key = 0; key < 200; ++key) model.used(slots[key], returning, now);
    for (uint32_t i = 0; i < 100; ++i)
      ASSERT_NE(model.watch(first_lost + 100 * round + i, lost, 0, now), ReuseModel::kNone);
    model.refresh(now);
  }
  EXPECT_EQ(model.watched(), 1'000u);
  EXPECT_EQ(model.find(first_lost), ReuseModel::kNone);
  EXPECT_TRUE(model.watches(slots[0], 0));
  const ReuseModel::Ticks half_a_minute = 30 * 1'000'000'000ull >> 24;
  EXPECT_GT(model.worth(returning, half_a_minute), 3 * model.worth(lost, half_a_minute));
}

TEST(ReuseModel, WatchesFewerOfManyKeys) {
  ReuseModel model(1'000);
  size_t watched = 0;
  for (uint32_t key = 0; key < 64'000; ++key)
    watched += model.watch(key * 2654435761u, 0, 4'000, 0) != ReuseModel::kNone;
  EXPECT_GT(watched, 1'500u);  // one in 32: 8 times the 4,000 objects for each of 1,000 watched
  EXPECT_LT(watched, 2'500u);
}

}  // namespace
}  // namespace tidewire::store
