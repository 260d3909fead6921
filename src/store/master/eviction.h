// SPDX-License-Identifier: Apache-2.0
//
// Eviction: which objects of a segment go when it is full. Costs depend on what is touched or evicted, never on what is
// stored.
//
// Objects that are put or read together in prefix order form a chain: each is the continuation of the one before. An
// object's turn is how often it was used, across evictions; a new continuation starts with the turn of what it
// continues, so that a conversation's new part counts as its old one does, unless that is a shared prefix with many
// continuations. In each segment the objects of one class (turn, and whether anything continues it) stand in the order
// of their last use. The victim is the oldest of the class in which that one is worth least to ReuseModel, which learns
// what is used again and when.
//
// Promises: of a chain in one segment that is used in order, a continuation goes before its prefix. What was put or
// read in the last moments (2 s, or the time in which an eighth of all objects is evicted) goes last. Pinned objects
// are not looked at.
//
// Memory: 32 bytes per object, 8 to 16 per object for the turns of evicted ones, 184 per segment, 2 MB for the model;
// nothing is allocated per operation once that is there. Not thread-safe: the catalogue's lock protects it. Time must
// not go backwards.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "store/master/reuse_model.h"

namespace tidewire::store {

struct EvictionOptions {
  uint32_t watched_keys = 65'536;  // to learn from: 32 bytes each, for any size of store
};

class Eviction {
 public:
  using Id = uint32_t;  // dense: memory grows with the highest
  static constexpr Id kNone = UINT32_MAX;
  static constexpr uint32_t kAnySegment = UINT32_MAX;
  enum class Pin : uint8_t { kNone, kSoft, kHard };

  explicit Eviction(EvictionOptions options = {});

  // A new object. `key_hash` tells its key from others when it was evicted and comes back. `segment` (below 65,536):
  // where it is looked for; of several replicas the first one's, evicting it frees them all. `parent`: what it
  // continues, which must exist, or kNone.
  void insert(Id id, uint64_t key_hash, uint32_t segment, Id parent, Nanos now);
  // These exist and were read or checked together, in prefix order.
  void touch(std::span<const Id> chain, Nanos now);
  // Removed or, called by `take` or after evict(), evicted; ids that don't exist are ignored.
  void erase(Id id);
  // Hard: never a victim. Soft: only when nothing else is left.
  void pin(Id id, Pin pin);

  // Frees `bytes` of the segment, or of any: offers victims to `take`, which drops the object and returns the bytes
  // that this frees, or returns 0 when it can't go now (a reader's lease): it then counts as just used. Returns the
  // bytes freed: less than asked for when nothing is left, or when very many were refused (another call goes on with
  // others). A victim that was taken no longer exists here; `take` may call erase() for it and nothing else.
  using Take = std::function<uint64_t(Id id)>;
  uint64_t evict(uint64_t bytes, uint32_t segment, Nanos now, const Take& take);

  size_t size() const { return size_; }
  size_t memory_bytes() const;

 private:
  using Ticks = ReuseModel::Ticks;
  static constexpr uint8_t kSoftList = ReuseModel::kClasses;  // after the classes
  static constexpr unsigned kLists = ReuseModel::kClasses + 1;
  static constexpr uint8_t kUnlisted = UINT8_MAX;
  static constexpr uint8_t kAbsent = 0, kUnpinned = 1;

  struct Entry {
    Id prev, next;  // in its list, oldest first
    Id parent;      // a hint: it may have been erased since
    uint32_t key;
    uint32_t watched;  // the model's slot
    Ticks used;
    uint16_t segment;
    uint16_t batch;    // of what was used together
    uint8_t turn;      // saturates
    uint8_t branches;  // new continuations that were put; saturates
    uint8_t list;      // of its segment, or kUnlisted
    uint8_t state;     // kAbsent, or kUnpinned + pin

    Pin pin() const { return static_cast<Pin>(state - kUnpinned); }
  };
  static_assert(sizeof(Entry) == 32);
  struct List {
    Id head = kNone, tail = kNone;
    Id mark = kNone;  // the oldest of the batch linked last
  };
  struct Segment {
    List lists[kLists];
    uint32_t objects = 0;  // that are listed
  };

  bool exists(Id id) const { return id / kChunk < chunks_.size() && at(id).state != kAbsent; }
  static uint8_t class_of(const Entry& entry) { return ReuseModel::class_of(entry.turn, entry.branches == 0); }
  List& list_of(const Entry& entry) { return segments_[entry.segment].lists[entry.list]; }
  Entry& at(Id id) { return chunks_[id / kChunk][id % kChunk]; }
  const Entry& at(Id id) const { return chunks_[id / kChunk][id % kChunk]; }
  Entry& create(Id id);
  void touch_at(std::span<const Id> chain, Ticks now);
  void continue_from(Id parent, Id id, bool known, Ticks now);
  // Into the list of its class: as the youngest, or among its batch as older than what it continues.
  void append(Id id);
  void place(Id id);
  void link(Id id, Id before);
  void unlink(Id id);
  void drop(Id id, bool evicted);
  // What a segment would lose next: kept up to date for one call of evict(), because a victim changes one list only.
  struct Candidate {
    Id head = kNone;
    Ticks used = 0;
    double worth = 0;
    bool before(const Candidate& other) const;
  };
  struct Candidates {
    uint32_t segment;
    Candidate of_list[kLists];
  };
  Candidate candidate(uint32_t segment, unsigned list, Ticks now) const;
  Candidates candidates(uint32_t segment, Ticks now) const;
  void choose_segments(uint32_t wanted, Ticks now);
  void count_turnover(Ticks now);

  void remember(uint32_t key, uint8_t turn);
  uint8_t remembered(uint32_t key) const;

  ReuseModel model_;
  static constexpr size_t kChunk = 4'096;  // so that growing moves nothing
  std::vector<std::unique_ptr<Entry[]>> chunks_;
  std::vector<Segment> segments_;  // by number
  size_t size_ = 0;
  uint16_t last_batch_ = 0;

  // Turns of evicted objects: sets of kWays, newest first; 24 bits of the key and the turn.
  static constexpr size_t kWays = 8;
  std::vector<uint32_t> memory_;
  size_t memory_for_ = 0;  // objects

  Ticks grace_;
  Ticks turnover_since_ = 0;
  size_t turnover_ = 0;
  uint32_t next_segment_ = 0;
  Id offered_ = kNone;     // while `take` is asked
  std::vector<Id> chain_;  // scratch, as is:
  std::vector<Candidates> candidates_;
};

}  // namespace tidewire::store
