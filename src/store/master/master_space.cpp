// SPDX-License-Identifier: Apache-2.0
//
// Space: where replicas go, what makes room for them, and when a range may be given out again.
#include <algorithm>
#include <limits>
#include <set>

#include "store/master/master.h"

namespace tidewire::store {
namespace {
// Objects that one step evicts, at 1 to 2 µs each: for puts that wait; and ahead of need, for all segments together,
// from where eviction ends up to a full segment.
constexpr uint64_t kEvictAtOnce = 500;
constexpr double kGentlest = 32, kFirmest = 500;
// Up to this share of the way to a full segment only ticks evict: whoever puts does not wait for it.
constexpr double kUrgent = 2.0 / 3;
}  // namespace

bool Master::allocatable(const Segment& segment, Nanos now) const {
  const Client& owner = *segment.owner;
  return segment.mounted && in_contact(owner) && owner.inventory_done && !owner.needs_quiet &&
         owner.allocate_from <= now && now >= owner.shunned_until && owner.granted_until >= now + options_.write_lease;
}

// As many places as asked for, or none. Preferred segments first, then the writer's own host where that is wished, then
// the emptier ones; no two replicas in one segment, and on different hosts as far as there are.
std::vector<Replica> Master::allocate(const Client& writer, uint64_t size, const PutOptions& options, Nanos now) {
  struct Choice {
    SegmentNumber number;
    size_t preference;
    bool other_host;
    double free_share;
  };
  std::vector<Choice> choices;
  for (SegmentNumber number = 0; number < segments_.size(); ++number) {
    const Segment& segment = *segments_[number];
    if (segment.space.largest_free() < SegmentAllocator::rounded(size) || !allocatable(segment, now)) continue;
    const auto preferred =
        std::find(options.preferred_segments.begin(), options.preferred_segments.end(), segment.info.name);
    // A little chance keeps many writers of one moment from all choosing the same.
    const double chance = static_cast<double>(random_() >> 11) / static_cast<double>(1ull << 53);
    choices.push_back(
        {number, static_cast<size_t>(preferred - options.preferred_segments.begin()),
         options.prefer_same_host && segment.owner->host_id != writer.host_id,
         static_cast<double>(segment.space.free_bytes()) / static_cast<double>(segment.space.size()) + 0.1 * chance});
  }
  if (choices.size() < options.replicas) return {};
  std::sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
    if (a.preference != b.preference) return a.preference < b.preference;
    if (a.other_host != b.other_host) return b.other_host;
    return a.free_share > b.free_share;
  });
  std::vector<Replica> places;
  std::set<std::string> hosts;
  for (const bool new_hosts_only : {true, false})
    for (Choice& choice : choices) {
      if (places.size() == options.replicas) return places;
      Segment& segment = *segments_[choice.number];
      const bool taken = std::any_of(places.begin(), places.end(),
                                     [&](const Replica& replica) { return replica.segment == choice.number; });
      if (taken || (new_hosts_only && hosts.contains(segment.owner->host_id))) continue;
      places.push_back({*segment.space.allocate(size), choice.number});
      pressed_.insert(choice.number);
      hosts.insert(segment.owner->host_id);
    }
  return places;
}

void Master::give_back(const Replica& replica, uint64_t size, Nanos hold_until, Nanos now) {
  Segment& segment = *segments_[replica.segment];
  if (!segment.mounted) return;
  if (hold_until > now) {
    segment.held += size;
    return holds_.push({hold_until, replica, size});
  }
  segment.space.free(replica.offset, size);
  segment.evicting -= std::min(segment.evicting, SegmentAllocator::rounded(size));
  space_freed_ = true;
}

void Master::release_held(Nanos now) {
  while (!holds_.empty() && holds_.top().until <= now) {
    const Hold hold = holds_.top();
    holds_.pop();
    segments_[hold.replica.segment]->held -= hold.size;
    give_back(hold.replica, hold.size, 0, now);
  }
}

void Master::pin(ObjectTable::Id id, Nanos ttl, Nanos now) {
  const Object& object = table_[id];
  if ((object.flags & kFlagHardPin) != 0) {
    eviction_.pin(id, Eviction::Pin::kHard);
  } else if ((object.flags & kFlagSoftPin) != 0) {
    eviction_.pin(id, Eviction::Pin::kSoft);
    soft_pins_.push({now + ttl, id, object.version});
  }
}

void Master::relist(ObjectTable::Id id, Nanos now) {
  const Object& object = table_[id];
  eviction_.erase(id);
  eviction_.insert(id, ObjectTable::hash(object.key()), object.replicas().front().segment, Eviction::kNone, now);
  if ((object.flags & kFlagHardPin) != 0) eviction_.pin(id, Eviction::Pin::kHard);
  if ((object.flags & kFlagSoftPin) != 0) eviction_.pin(id, Eviction::Pin::kSoft);
}

void Master::release_pins(Nanos now) {
  while (!soft_pins_.empty() && soft_pins_.top().until <= now) {
    const SoftPin pin = soft_pins_.top();
    soft_pins_.pop();
    if (!table_.used(pin.id) || table_[pin.id].version != pin.version) continue;
    table_[pin.id].flags &= ~kFlagSoftPin;
    eviction_.pin(pin.id, Eviction::Pin::kNone);
  }
}

// Victims are objects without a reader's lease, not hard-pinned, whose owners can all be told; soft-pinned ones only
// when nothing else is left.
uint64_t Master::evict(SegmentNumber number, uint64_t bytes, uint64_t largest, uint64_t objects, Nanos now) {
  if (taking_over_) return 0;  // an older version may turn up
  // A part at a time, so that nobody waits for long: the rest in the next steps.
  const Segment& segment = *segments_[number];
  const uint64_t mean = segment.space.used_bytes() / std::max<uint64_t>(segment.objects, 1);
  bytes = std::min(bytes, objects * std::max(mean, SegmentAllocator::kAlignment));
  return eviction_.evict(bytes, number, now, [&](ObjectTable::Id id) -> uint64_t {
    const Object& object = table_[id];
    if (object.lease_until > now || object.size > largest) return 0;
    if ((object.flags & kFlagSoftPin) != 0 && !options_.evict_soft_pinned) return 0;
    const auto replicas = object.replicas();
    const bool reachable = std::all_of(replicas.begin(), replicas.end(), [this](const Replica& replica) {
      const Segment& segment = *segments_[replica.segment];
      return !segment.mounted || in_contact(*segment.owner);
    });
    if (!reachable) return 0;
    const uint64_t size = SegmentAllocator::rounded(object.size);
    for (const Replica& replica : replicas) segments_[replica.segment]->evicting += size;
    ++counters_.evicted;
    counters_.evicted_bytes += size;
    drop_object(id, now);
    return size;
  });
}

// For puts that found no room: on the segments that could take them. 0: nothing can be evicted and nothing is on its
// way to be freed.
uint64_t Master::make_room(const PutStart& start, const std::vector<size_t>& open, Nanos now) {
  uint64_t wanted = 0, largest = 0;
  for (const size_t i : open) {
    wanted += SegmentAllocator::rounded(start.sizes[i]);
    largest = std::max(largest, SegmentAllocator::rounded(start.sizes[i]));
  }
  uint64_t coming = 0;
  for (SegmentNumber number = 0; number < segments_.size(); ++number) {
    Segment& segment = *segments_[number];
    if (segment.space.size() < largest) continue;
    if (!allocatable(segment, now)) {
      // About to be: its owner is attaching just now.
      if (segment.mounted && in_contact(*segment.owner) && now >= segment.owner->shunned_until)
        coming += segment.space.free_bytes();
      continue;
    }
    if (segment.evicting < wanted) evict(number, wanted - segment.evicting, UINT64_MAX, kEvictAtOnce, now);
    coming += segment.evicting;
    if (!holds_.empty() && holds_.top().until <= now + options_.put_wait) coming += segment.held;
  }
  return coming;
}

// Eviction ahead of need, little by little, and the more the fuller the segment is. An object that is larger than what
// is missing waits until somebody needs its room. True while there is more to evict.
bool Master::keep_below_watermark(SegmentNumber number, bool urgent_only, Nanos now) {
  Segment& segment = *segments_[number];
  if (!segment.mounted || segment.space.size() == 0) return false;
  const auto size = static_cast<double>(segment.space.size());
  const uint64_t coming = std::min(segment.evicting + segment.held, segment.space.used_bytes());
  const double used = static_cast<double>(segment.space.used_bytes() - coming);
  const double goal = std::max(options_.high_watermark - options_.eviction_ratio, 0.0) * size;
  if (used <= goal) {
    segment.draining = false;
  } else if (used > options_.high_watermark * size) {
    segment.draining = true;
  }
  if (!segment.draining) return false;
  const double pressure = (used - goal) / (size - goal);
  if (urgent_only && pressure < kUrgent) return true;
  const double objects = (kGentlest + (kFirmest - kGentlest) * pressure * pressure) / static_cast<double>(draining_);
  const auto excess = static_cast<uint64_t>(used - goal);
  if (evict(number, excess, 2 * excess, static_cast<uint64_t>(objects) + 1, now) == 0) segment.draining = false;
  return segment.draining;
}

}  // namespace tidewire::store
