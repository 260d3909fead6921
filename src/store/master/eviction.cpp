// SPDX-License-Identifier: Apache-2.0
#include "store/master/eviction.h"

#include <algorithm>
#include <bit>

namespace tidewire::store {

namespace {

// What was put or read so lately goes last: a reader may be on its way.
constexpr Nanos kGrace = 2 * kSecond;
constexpr size_t kGraceShare = 8;  // but no longer than 1/8 of the objects take to be evicted

// A conversation branches at each turn, where its partly filled last block is replaced, and when an answer is asked for
// again. What has more continuations is a prefix that conversations share: its uses say little about any of them.
constexpr uint8_t kShared = 4;

constexpr size_t kRefusals = 1'024;       // in one call
constexpr size_t kSegmentsCompared = 16;  // when any segment will do,
constexpr size_t kVictimsOfThem = 64;     // then others
constexpr size_t kRememberedPerObject = 2;
constexpr size_t kRememberedAtLeast = 65'536;

// splitmix64's finaliser: key hashes may be any numbers.
uint32_t fold(uint64_t hash) {
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
  return static_cast<uint32_t>(hash >> 32);
}

constexpr size_t kLongestChain = 4'096;
constexpr double kGraceWorth = 1e15;  // above anything learned
constexpr double kSoftWorth = 1e16;

uint8_t next_turn(uint8_t turn) {
  return turn == UINT8_MAX ? turn : static_cast<uint8_t>(turn + 1);
}

}  // namespace

Eviction::Eviction(EvictionOptions options) : model_(options.watched_keys), grace_(ReuseModel::ticks(kGrace)) {}

Eviction::Entry& Eviction::create(Id id) {
  while (id / kChunk >= chunks_.size()) chunks_.push_back(std::make_unique<Entry[]>(kChunk));
  if (exists(id)) erase(id);
  Entry& entry = at(id);
  entry = {.prev = kNone, .next = kNone, .parent = kNone, .watched = kNone, .list = kUnlisted, .state = kUnpinned};
  ++size_;
  return entry;
}

void Eviction::insert(Id id, uint64_t key_hash, uint32_t segment, Id parent, Nanos now) {
  const Ticks tick = ReuseModel::ticks(now);
  if (segment >= segments_.size()) segments_.resize(segment + 1);
  Entry& entry = create(id);
  entry.key = fold(key_hash);
  entry.used = tick;
  entry.segment = static_cast<uint16_t>(segment);
  const uint8_t before = remembered(entry.key);
  entry.turn = next_turn(before);
  if (exists(parent) && parent != id) {
    continue_from(parent, id, before != 0, tick);
  } else {
    entry.batch = ++last_batch_;
  }
  place(id);
  const uint8_t cls = class_of(entry);
  entry.watched = model_.find(entry.key);
  if (entry.watched == ReuseModel::kNone) {
    entry.watched = model_.watch(entry.key, cls, size_, tick);
  } else {
    model_.used(entry.watched, cls, tick);
  }
}

void Eviction::continue_from(Id parent, Id id, bool known, Ticks now) {
  Entry& above = at(parent);
  Entry& entry = at(id);
  if (!ReuseModel::same_use(above.used, now)) {
    // Nobody said that its prefix was used, but putting a continuation is a use.
    chain_.clear();
    for (Id up = parent; chain_.size() < kLongestChain && exists(up) && at(up).used != now; up = at(up).parent)
      chain_.push_back(up);
    std::reverse(chain_.begin(), chain_.end());
    touch_at(chain_, now);
  }
  const bool was_last = above.branches == 0;
  if (known) {
    entry.turn = std::min(entry.turn, above.turn);
  } else if (above.branches < kShared) {
    entry.turn = above.turn;
  }
  if ((!known || was_last) && above.branches < UINT8_MAX) ++above.branches;
  entry.parent = parent;
  entry.batch = above.batch;
  entry.used = above.used;
  if (!was_last) return;
  if (above.list < kSoftList) {
    unlink(parent);
    place(parent);
  }
  if (model_.watches(above.watched, above.key)) model_.reclassify(above.watched, class_of(above));
}

void Eviction::touch(std::span<const Id> chain, Nanos now) {
  touch_at(chain, ReuseModel::ticks(now));
}

void Eviction::touch_at(std::span<const Id> chain, Ticks now) {
  ++last_batch_;
  for (const Id id : chain)
    if (id / kChunk < chunks_.size()) __builtin_prefetch(&at(id), 1);
  for (const Id id : chain) {
    if (!exists(id)) continue;
    const Entry& entry = at(id);
    if (entry.prev != kNone) __builtin_prefetch(&at(entry.prev), 1);
    if (entry.next != kNone) __builtin_prefetch(&at(entry.next), 1);
  }
  // From the front: a continuation has no more turns than its prefix.
  uint8_t above = UINT8_MAX;
  for (const Id id : chain) {
    if (!exists(id)) continue;
    Entry& entry = at(id);
    if (!ReuseModel::same_use(entry.used, now)) entry.turn = next_turn(entry.turn);
    entry.turn = above = std::min(entry.turn, above);
    entry.batch = last_batch_;
    if (model_.watches(entry.watched, entry.key)) model_.used(entry.watched, class_of(entry), now);
  }
  // From the back: the deepest becomes the oldest.
  for (size_t i = chain.size(); i-- > 0;) {
    if (!exists(chain[i])) continue;
    Entry& entry = at(chain[i]);
    entry.used = now;
    if (entry.list == kUnlisted) continue;
    unlink(chain[i]);
    append(chain[i]);
  }
}

void Eviction::erase(Id id) {
  if (id != offered_ && exists(id)) drop(id, false);
}

void Eviction::drop(Id id, bool evicted) {
  Entry& entry = at(id);
  unlink(id);
  entry.state = kAbsent;
  --size_;
  if (evicted) {
    remember(entry.key, entry.turn);
  } else if (model_.watches(entry.watched, entry.key)) {
    model_.forget(entry.watched);
  }
}

void Eviction::pin(Id id, Pin pin) {
  if (!exists(id) || at(id).pin() == pin) return;
  unlink(id);
  at(id).state = static_cast<uint8_t>(kUnpinned + static_cast<uint8_t>(pin));
  append(id);
}

void Eviction::append(Id id) {
  link(id, kNone);
}

void Eviction::place(Id id) {
  const Entry& entry = at(id);
  const uint8_t list = entry.pin() == Pin::kSoft ? kSoftList : class_of(entry);
  const auto fits = [&](Id other) {
    return exists(other) && at(other).batch == entry.batch && at(other).list == list &&
           at(other).segment == entry.segment;
  };
  const Id mark = segments_[entry.segment].lists[list].mark;
  link(id, fits(entry.parent) ? entry.parent : fits(mark) ? mark : kNone);
}

void Eviction::link(Id id, Id before) {
  Entry& entry = at(id);
  if (entry.pin() == Pin::kHard) return;
  entry.list = entry.pin() == Pin::kSoft ? kSoftList : class_of(entry);
  List& list = list_of(entry);
  entry.next = before;
  entry.prev = before == kNone ? list.tail : at(before).prev;
  (entry.prev == kNone ? list.head : at(entry.prev).next) = id;
  (before == kNone ? list.tail : at(before).prev) = id;
  if (before == list.mark || list.mark == kNone || !exists(list.mark) || at(list.mark).batch != entry.batch)
    list.mark = id;
  ++segments_[entry.segment].objects;
}

void Eviction::unlink(Id id) {
  Entry& entry = at(id);
  if (entry.list == kUnlisted) return;
  List& list = list_of(entry);
  (entry.prev == kNone ? list.head : at(entry.prev).next) = entry.next;
  (entry.next == kNone ? list.tail : at(entry.next).prev) = entry.prev;
  if (list.mark == id) list.mark = kNone;
  entry.list = kUnlisted;
  --segments_[entry.segment].objects;
}

bool Eviction::Candidate::before(const Candidate& other) const {
  if (head == kNone || other.head == kNone) return head != kNone;
  return worth != other.worth ? worth < other.worth : used < other.used;
}

Eviction::Candidate Eviction::candidate(uint32_t segment, unsigned list, Ticks now) const {
  const Id head = segments_[segment].lists[list].head;
  if (head == kNone) return {};
  const Ticks used = at(head).used, age = now - used;
  if (list == kSoftList) return {head, used, kSoftWorth};
  return {head, used, age < grace_ ? kGraceWorth - age : model_.worth(static_cast<uint8_t>(list), age)};
}

Eviction::Candidates Eviction::candidates(uint32_t segment, Ticks now) const {
  Candidates all{.segment = segment};
  for (unsigned list = 0; list < kLists; ++list) all.of_list[list] = candidate(segment, list, now);
  return all;
}

void Eviction::choose_segments(uint32_t wanted, Ticks now) {
  candidates_.clear();
  const auto count = static_cast<uint32_t>(segments_.size());
  if (wanted != kAnySegment) {
    if (wanted < count && segments_[wanted].objects > 0) candidates_.push_back(candidates(wanted, now));
    return;
  }
  // Others at the next call.
  uint32_t number = 0;
  for (uint32_t i = 0; i < count && candidates_.size() < kSegmentsCompared; ++i) {
    number = (next_segment_ + i) % count;
    if (segments_[number].objects > 0) candidates_.push_back(candidates(number, now));
  }
  next_segment_ = number + 1;
}

uint64_t Eviction::evict(uint64_t bytes, uint32_t segment, Nanos now, const Take& take) {
  const Ticks tick = ReuseModel::ticks(now);
  model_.refresh(tick);
  choose_segments(segment, tick);
  uint64_t freed = 0;
  const size_t listed = segment == kAnySegment ? size_ : candidates_.empty() ? 0 : segments_[segment].objects;
  const size_t most_refused = std::min(kRefusals, listed);
  for (size_t refused = 0, offered = 0; freed < bytes && refused < most_refused; ++offered) {
    if (segment == kAnySegment && offered % kVictimsOfThem == kVictimsOfThem - 1) choose_segments(segment, tick);
    Candidates* from = nullptr;
    unsigned list = 0;
    Candidate best;
    for (Candidates& some : candidates_)
      for (unsigned i = 0; i < kLists; ++i) {
        // Where all else is equal, the lower turn goes first, and of one turn what has no continuation.
        const unsigned j = i == kSoftList ? i : i ^ 1;
        if (!some.of_list[j].before(best)) continue;
        best = some.of_list[j];
        from = &some;
        list = j;
      }
    if (from == nullptr) {
      // These are empty now; there may be others.
      choose_segments(segment, tick);
      if (candidates_.empty()) break;
      continue;
    }
    const Id victim = best.head;
    unlink(victim);
    offered_ = victim;
    const uint64_t released = take(victim);
    offered_ = kNone;
    if (released == 0) {
      ++refused;
      at(victim).used = tick;
      append(victim);
    } else {
      freed += released;
      drop(victim, true);
      count_turnover(tick);
    }
    from->of_list[list] = candidate(from->segment, list, tick);
  }
  return freed;
}

void Eviction::count_turnover(Ticks now) {
  ++turnover_;
  const size_t share = size_ / kGraceShare;
  if (turnover_ < share || now == turnover_since_) return;
  // One call may have evicted much more than the share.
  const uint64_t elapsed = uint64_t{now - turnover_since_} * share / turnover_;
  grace_ = static_cast<Ticks>(std::min<uint64_t>(ReuseModel::ticks(kGrace), elapsed));
  turnover_since_ = now;
  turnover_ = 0;
}

void Eviction::remember(uint32_t key, uint8_t turn) {
  if (memory_.empty() || size_ > 2 * memory_for_) {
    memory_for_ = std::max(size_, kRememberedAtLeast / kRememberedPerObject);
    memory_.assign(std::bit_ceil(memory_for_ * kRememberedPerObject), 0);
  }
  uint32_t* set = &memory_[key & (memory_.size() - kWays)];
  size_t at = 0;
  while (at < kWays - 1 && set[at] >> 8 != key >> 8) ++at;
  std::copy_backward(set, set + at, set + at + 1);
  set[0] = (key & ~0xffu) | turn;
}

uint8_t Eviction::remembered(uint32_t key) const {
  if (memory_.empty()) return 0;
  const uint32_t* set = &memory_[key & (memory_.size() - kWays)];
  for (size_t at = 0; at < kWays; ++at)
    if (set[at] >> 8 == key >> 8 && (set[at] & 0xff) != 0) return static_cast<uint8_t>(set[at]);
  return 0;
}

size_t Eviction::memory_bytes() const {
  return chunks_.size() * kChunk * sizeof(Entry) + chunks_.capacity() * sizeof(chunks_[0]) +
         segments_.capacity() * sizeof(Segment) + memory_.capacity() * sizeof(uint32_t) + model_.memory_bytes();
}

}  // namespace tidewire::store
