// SPDX-License-Identifier: Apache-2.0
//
// What the master has learned about reuse: how likely an object of a class, unused for so long, is to be used again,
// and how soon. It watches a bounded sample of keys, whether their objects are still stored or not, so that what it
// learns does not depend on what is evicted. From that it ranks (class, age) by the expected uses for each second of
// keeping the object, with the best moment to give up (the Gittins index of the reuse time), made monotone: of two
// objects the one that was used more often and more recently never ranks lower. With nothing learned the ranking is
// that of LRU.
//
// Not thread-safe: its owner's lock protects it. Times are ticks of 2^24 ns (17 ms), which suffice for two years of
// uptime.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace tidewire::store {

class ReuseModel {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr unsigned kTurnBuckets = 7;
  static constexpr unsigned kClasses = 2 * kTurnBuckets;
  static constexpr unsigned kAges = 44;  // two for each doubling, from 67 ms to 39 hours

  using Ticks = uint32_t;
  static Ticks ticks(Nanos time) { return static_cast<Ticks>(static_cast<uint64_t>(time) >> 24); }
  static double seconds(Ticks ticks) { return ticks * (16'777'216e-9); }
  static unsigned age_bucket(Ticks age);
  static Ticks age_start(unsigned bucket);
  // Uses in one window of 2 s (an existence check, then the read) are one use.
  static bool same_use(Ticks a, Ticks b) { return a >> 7 == b >> 7; }
  // `turn`: how often its conversation was used. `last`: nothing was ever put as its continuation (in a prompt: the
  // block that is partly filled, which the next turn replaces).
  static uint8_t class_of(uint8_t turn, bool last);

  // Watches at most `keys` keys, 28 bytes each.
  explicit ReuseModel(uint32_t keys);

  // The watched slot of a key (32 bits of its hash), or kNone.
  uint32_t find(uint32_t key) const;
  // Starts to watch `key`, which is not watched, when it belongs to the sample for a store of `objects`; otherwise
  // kNone.
  uint32_t watch(uint32_t key, uint8_t cls, size_t objects, Ticks now);
  // Whether the slot still watches that key (the longest unused make room for new ones).
  bool watches(uint32_t slot, uint32_t key) const {
    return slot < slots_.size() && slots_[slot].live && slots_[slot].key == key;
  }
  // The key was used: counts a reuse after the time since its last use, unless that was the same use.
  void used(uint32_t slot, uint8_t cls, Ticks now);
  // The object just used turned out to be of another class.
  void reclassify(uint32_t slot, uint8_t cls);
  void forget(uint32_t slot);

  // Brings the ranking up to date when enough was learned since; cheap otherwise.
  void refresh(Ticks now);
  // Expected uses per second of keeping an object of the class that has been unused for `age`.
  double worth(uint8_t cls, Ticks age) const { return worth_[cls * kAges + age_bucket(age)]; }

  size_t watched() const { return live_; }
  size_t memory_bytes() const;

 private:
  static constexpr unsigned kLists = kClasses * kAges;
  struct Slot {
    uint32_t key;
    uint32_t prev, next;  // in its (class, age) list, oldest use first; `next` also links free slots
    uint32_t chain;       // next with the same hash
    Ticks used;
    uint8_t cls, age;
    bool live;
  };
  struct List {
    uint32_t head = kNone, tail = kNone;
  };
  void append(uint32_t slot, uint8_t cls, uint8_t age);
  void unlink(uint32_t slot);
  void passed(uint32_t slot, unsigned until);
  void advance(Ticks now);
  void rank();

  const uint32_t capacity_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> hash_;  // heads of chains, a power of two; empty until the first key
  std::array<List, kLists> lists_;
  std::array<uint32_t, kAges> live_at_age_{};
  size_t live_ = 0;
  uint32_t free_ = kNone;

  // For each (class, age): how many watched keys were used again at that age, and how many outlived it unused.
  std::array<double, kLists> reused_{}, outlived_{};
  std::array<double, kLists> worth_{};
  uint32_t uses_since_rank_ = 0, uses_since_halving_ = 0;
  Ticks advanced_ = 0;
};

}  // namespace tidewire::store
