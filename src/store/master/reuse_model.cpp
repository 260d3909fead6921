// SPDX-License-Identifier: Apache-2.0
#include "store/master/reuse_model.h"

#include <algorithm>
#include <bit>

namespace tidewire::store {

namespace {

// Below this age everything is in bucket 0.
constexpr unsigned kFirstBits = 2;  // 4 ticks, 67 ms

// The prior: in each half octave of age 3 % of the objects are used again. It is scale-free, so it ranks as LRU does;
// its weight is that of a few requests of some tens of blocks, which are used together and so count as little more than
// one observation.
constexpr double kPriorReuse = 0.03;
constexpr double kPriorWeight = 200;    // of the prior against what all classes together show
constexpr double kOverallWeight = 200;  // of all classes against one turn bucket
constexpr double kTurnWeight = 50;      // of a turn bucket against one class of it
constexpr int kSmoothing = 6;           // passes of (1 2 1) / 4 over neighbouring ages: one octave

constexpr uint32_t kRankEvery = 4'096;           // uses
constexpr uint32_t kHorizon = 8;                 // the sample outlives this many times the objects stored
constexpr uint32_t kHalveEvery = 4;              // times the watched keys: the memory of what was learned
constexpr ReuseModel::Ticks kAdvanceEvery = 15;  // 0.25 s

using Table = std::array<double, ReuseModel::kClasses * ReuseModel::kAges>;

Table smoothed(Table table) {
  constexpr unsigned n = ReuseModel::kAges;
  std::array<double, n> row;
  for (unsigned cls = 0; cls < ReuseModel::kClasses; ++cls) {
    double* at = &table[cls * n];
    for (int pass = 0; pass < kSmoothing; ++pass) {
      for (unsigned i = 0; i < n; ++i) row[i] = (at[i ? i - 1 : 0] + 2 * at[i] + at[std::min(i + 1, n - 1)]) / 4;
      std::copy(row.begin(), row.end(), at);
    }
  }
  return table;
}

}  // namespace

unsigned ReuseModel::age_bucket(Ticks age) {
  if (age >> kFirstBits == 0) return 0;
  const auto bits = static_cast<unsigned>(std::bit_width(age)) - 1;
  return std::min(2 * (bits - kFirstBits) + ((age >> (bits - 1)) & 1) + 1, kAges - 1);
}

ReuseModel::Ticks ReuseModel::age_start(unsigned bucket) {
  if (bucket == 0) return 0;
  const unsigned bits = kFirstBits + (bucket - 1) / 2;
  return (1u << bits) + ((bucket - 1) % 2) * (1u << (bits - 1));
}

uint8_t ReuseModel::class_of(uint8_t turn, bool last) {
  constexpr std::array<uint8_t, kTurnBuckets - 1> kUpTo = {1, 2, 3, 5, 9, 20};
  const auto bucket = std::lower_bound(kUpTo.begin(), kUpTo.end(), turn) - kUpTo.begin();
  return static_cast<uint8_t>(2 * bucket + (last ? 1 : 0));
}

ReuseModel::ReuseModel(uint32_t keys) : capacity_(std::max(keys, 1u)) {
  rank();
}

uint32_t ReuseModel::find(uint32_t key) const {
  if (hash_.empty()) return kNone;
  uint32_t slot = hash_[key & (hash_.size() - 1)];
  while (slot != kNone && slots_[slot].key != key) slot = slots_[slot].chain;
  return slot;
}

uint32_t ReuseModel::watch(uint32_t key, uint8_t cls, size_t objects, Ticks now) {
  // One key in so many, chosen by bits that the hash table hardly uses.
  const uint64_t one_in = std::bit_ceil((uint64_t{objects} * kHorizon + capacity_ - 1) / capacity_);
  if (one_in > 1 && (std::rotl(key, 12) & (one_in - 1)) != 0) return kNone;
  if (hash_.empty()) hash_.assign(std::bit_ceil(capacity_), kNone);
  uint32_t slot = free_;
  if (slot == kNone && slots_.size() < capacity_) {
    slot = static_cast<uint32_t>(slots_.size());
    slots_.push_back({});
  } else if (slot == kNone) {
    unsigned age = kAges - 1;
    while (live_at_age_[age] == 0) --age;
    for (unsigned c = 0; c < kClasses; ++c) {
      const uint32_t oldest = lists_[c * kAges + age].head;
      if (oldest != kNone && (slot == kNone || slots_[oldest].used < slots_[slot].used)) slot = oldest;
    }
    forget(slot);
    free_ = slots_[slot].next;
  } else {
    free_ = slots_[slot].next;
  }
  uint32_t& head = hash_[key & (hash_.size() - 1)];
  slots_[slot] = {.key = key, .chain = head, .used = now, .live = true};
  head = slot;
  ++live_;
  append(slot, cls, 0);
  ++uses_since_rank_;
  ++uses_since_halving_;
  return slot;
}

void ReuseModel::append(uint32_t slot, uint8_t cls, uint8_t age) {
  Slot& at = slots_[slot];
  List& list = lists_[cls * kAges + age];
  at.cls = cls;
  at.age = age;
  at.prev = list.tail;
  at.next = kNone;
  (list.tail == kNone ? list.head : slots_[list.tail].next) = slot;
  list.tail = slot;
  ++live_at_age_[age];
}

void ReuseModel::unlink(uint32_t slot) {
  const Slot& at = slots_[slot];
  List& list = lists_[at.cls * kAges + at.age];
  (at.prev == kNone ? list.head : slots_[at.prev].next) = at.next;
  (at.next == kNone ? list.tail : slots_[at.next].prev) = at.prev;
  --live_at_age_[at.age];
}

void ReuseModel::forget(uint32_t slot) {
  Slot& at = slots_[slot];
  unlink(slot);
  uint32_t* link = &hash_[at.key & (hash_.size() - 1)];
  while (*link != slot) link = &slots_[*link].chain;
  *link = at.chain;
  at.live = false;
  at.next = free_;
  free_ = slot;
  --live_;
}

void ReuseModel::passed(uint32_t slot, unsigned until) {
  const Slot& at = slots_[slot];
  for (unsigned age = at.age; age < until; ++age) outlived_[at.cls * kAges + age] += 1;
}

void ReuseModel::used(uint32_t slot, uint8_t cls, Ticks now) {
  Slot& at = slots_[slot];
  ++uses_since_rank_;
  if (same_use(at.used, now)) return;
  const unsigned age = age_bucket(now - at.used);
  passed(slot, age);
  reused_[at.cls * kAges + age] += 1;
  unlink(slot);
  at.used = now;
  append(slot, cls, 0);
  ++uses_since_halving_;
}

void ReuseModel::reclassify(uint32_t slot, uint8_t cls) {
  if (slots_[slot].age != 0 || slots_[slot].cls == cls) return;
  unlink(slot);
  append(slot, cls, 0);
}

void ReuseModel::advance(Ticks now) {
  if (now - advanced_ < kAdvanceEvery) return;
  advanced_ = now;
  // From old to young, so that each key is looked at once.
  for (unsigned age = kAges - 1; age-- > 0;) {
    if (live_at_age_[age] == 0) continue;
    for (unsigned cls = 0; cls < kClasses; ++cls) {
      for (;;) {
        const uint32_t slot = lists_[cls * kAges + age].head;
        if (slot == kNone) break;
        const unsigned next = age_bucket(now - slots_[slot].used);
        if (next <= age) break;
        passed(slot, next);
        unlink(slot);
        append(slot, static_cast<uint8_t>(cls), static_cast<uint8_t>(next));
      }
    }
  }
}

void ReuseModel::refresh(Ticks now) {
  advance(now);
  if (uses_since_rank_ >= kRankEvery) rank();
}

void ReuseModel::rank() {
  uses_since_rank_ = 0;
  if (uses_since_halving_ >= uint64_t{kHalveEvery} * capacity_) {
    uses_since_halving_ = 0;
    for (double& count : reused_) count /= 2;
    for (double& count : outlived_) count /= 2;
  }
  // The probability of being used at an age, given that it was reached: each class leans on its turn bucket, that on
  // all classes together, and those on the prior, as far as their own observations are few.
  const Table reused = smoothed(reused_), outlived = smoothed(outlived_);
  Table probability;
  for (unsigned age = 0; age < kAges; ++age) {
    double all_reused = 0, all = 0;
    for (unsigned cls = 0; cls < kClasses; ++cls) {
      all_reused += reused[cls * kAges + age];
      all += reused[cls * kAges + age] + outlived[cls * kAges + age];
    }
    const double overall = (all_reused + kPriorWeight * kPriorReuse) / (all + kPriorWeight);
    for (unsigned turn = 0; turn < kTurnBuckets; ++turn) {
      const unsigned a = 2 * turn * kAges + age, b = a + kAges;
      const double of_turn = (reused[a] + reused[b] + kOverallWeight * overall) /
                             (reused[a] + reused[b] + outlived[a] + outlived[b] + kOverallWeight);
      for (const unsigned list : {a, b})
        probability[list] = (reused[list] + kTurnWeight * of_turn) / (reused[list] + outlived[list] + kTurnWeight);
    }
  }
  for (unsigned cls = 0; cls < kClasses; ++cls) {
    const double* reuse = &probability[cls * kAges];
    for (unsigned age = 0; age < kAges; ++age) {
      double reached = 1, uses = 0, time = 0, best = 0;
      for (unsigned until = age; until < kAges; ++until) {
        const double width =
            seconds(until + 1 < kAges ? age_start(until + 1) - age_start(until) : age_start(kAges - 1));
        uses += reached * reuse[until];
        time += reached * width * (1 - reuse[until] / 2);
        best = std::max(best, uses / time);
        reached *= 1 - reuse[until];
      }
      worth_[cls * kAges + age] = best;
    }
  }
  // Younger is never worth less, nor is a later turn, nor what has a continuation: so a prefix, which is used whenever
  // its continuation is, never goes before it.
  for (unsigned cls = 0; cls < kClasses; ++cls)
    for (unsigned age = kAges - 1; age-- > 0;)
      worth_[cls * kAges + age] = std::max(worth_[cls * kAges + age], worth_[cls * kAges + age + 1]);
  for (unsigned turn = 0; turn < kTurnBuckets; ++turn)
    for (unsigned age = 0; age < kAges; ++age) {
      double* continued = &worth_[2 * turn * kAges + age];
      double* last = continued + kAges;
      if (turn > 0) {
        *continued = std::max(*continued, *(continued - 2 * kAges));
        *last = std::max(*last, *(last - 2 * kAges));
      }
      *continued = std::max(*continued, *last);
    }
}

size_t ReuseModel::memory_bytes() const {
  return sizeof(*this) + slots_.capacity() * sizeof(Slot) + hash_.capacity() * sizeof(uint32_t);
}

}  // namespace tidewire::store
