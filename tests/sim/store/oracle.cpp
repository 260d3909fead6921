// SPDX-License-Identifier: Apache-2.0
#include "sim/store/oracle.h"

#include <algorithm>

namespace tidewire::store::simulation {

// ---- puts

PatternId Oracle::put_begins(const std::string& key, uint64_t size, bool upsert) {
  const auto id = static_cast<PatternId>(patterns_.size());
  Pattern pattern;
  pattern.key = key;
  pattern.size = size;
  pattern.upsert = upsert;
  pattern.started = world_.now();
  world_.trace("put {} begins: {} key {}, {} bytes", id, upsert ? "upsert of" : "new", key, size);
  patterns_.push_back(pattern);
  keys_[key].patterns.push_back(id);
  return id;
}

void Oracle::placed(PatternId id, Version token, const std::vector<Place>& places) {
  Pattern& pattern = patterns_[id];
  pattern.token = token;
  for (const Place& place : places)
    world_.trace("put {} has token {:x} and a place at {} {:#x}", id, token, place.endpoint, place.address);
  for (const Place& place : places) {
    by_place_[{place.segment.owner, place.address}].push_back(id);
    for (uint64_t i = 0; i < pattern.cells(); ++i) {
      PatternId& newest = newest_in_cell_[{place.segment.owner, place.address + i * kCell}];
      if (patterns_[newest].token < token) newest = id;
    }
  }
}

// Promise: space is given to one writer at a time, by one master or several; what an earlier writer sent does not
// arrive any more.
void Oracle::landing(PatternId id, const ClientPtr& owner, uint64_t address, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const PatternId newest = newest_in_cell_[{owner->membership.id(), address + i * kCell}];
    if (patterns_[newest].token <= patterns_[id].token) continue;
    return world_.fail(
        "space was given to two writers: bytes of put {} (key {}, token {:x}) land at {} {:#x}, which is put {}'s (key "
        "{}, token {:x})",
        id, patterns_[id].key, patterns_[id].token, owner->name, address + i * kCell, newest, patterns_[newest].key,
        patterns_[newest].token);
  }
}

void Oracle::put_ends(ConnectionId connection, uint64_t request, const std::vector<PatternId>& ids) {
  for (const PatternId id : ids) patterns_[id].end_sent = world_.now();
  ending_[{connection, request}] = ids;
}

void Oracle::put_acked(PatternId id, bool by_current) {
  if (!by_current) return;
  Pattern& pattern = patterns_[id];
  ++acked;
  world_.trace("put {} is acknowledged: key {}, version {:x}", id, pattern.key, pattern.version);
  pattern.acked = world_.now();
  keys_[pattern.key].barriers.push_back({pattern.version, cluster_.current()->disk->state.generation, world_.now()});
}

// The master is about to say that this put is done.
void Oracle::acknowledging(SimMaster& master, PatternId id) {
  Pattern& pattern = patterns_[id];
  if (!cluster_.is_current(master)) return;
  // Promise: a put of a key that has a complete version with an owner in contact stores nothing.
  if (!pattern.upsert)
    for (const PatternId other : keys_[pattern.key].patterns) {
      const Pattern& former = patterns_[other];
      if (former.acked == 0 || former.acked >= pattern.started || !kept(former) || !known_to(master, former) ||
          !in_touch(master, former, pattern) || replaced(former, pattern.version))
        continue;
      world_.fail("put {} replaced the complete version of put {} (key {})", id, other, pattern.key);
    }
  const GetPlace place = master.master->look(pattern.key);
  if (place.code != Code::kOk || place.version != pattern.version) return;  // overtaken already
  pattern.owners.clear();
  for (const Place& each : place.places)
    if (const ClientPtr owner = cluster_.find(each.segment.owner)) pattern.owners.push_back(owner);
  // Promise: an acknowledged put is recorded by every owner of its replicas.
  for (const ClientPtr& owner : pattern.owners) {
    const std::optional<InventoryEntry> entry = owner->membership.inventory().find(pattern.key);
    if (owner->alive && owner->lost_at < pattern.end_sent &&
        owner->membership.inventory().term() == master.master->term() && (!entry || entry->version < pattern.version))
      world_.fail("put {} (key {}) was acknowledged, but {} did not record it", id, pattern.key, owner->name);
  }
}

// ---- reads

void Oracle::read(const std::string& key, Nanos begun, bool from_current, const GetPlace& place,
                  const std::vector<Cell>& cells) {
  ++reads;
  const PatternId id = cells.empty() ? 0 : cells.front().pattern;
  const Pattern& pattern = patterns_[id];
  // Promise: within its lease a get returns exactly the bytes of one complete version of the key.
  bool whole = id != 0 && pattern.key == key && pattern.size == place.size && pattern.end_sent != 0 &&
               cells.size() == pattern.cells();
  for (uint32_t i = 0; whole && i < cells.size(); ++i) whole = cells[i] == Cell{id, i};
  if (!whole) {
    std::string seen;
    for (const Cell& cell : cells) seen += fmt::format(" {}/{}", cell.pattern, cell.part);
    return world_.fail(
        "a get of {} (version {:x}, {} bytes) within its lease returned bytes of no complete version of it:{}", key,
        place.version, place.size, seen);
  }
  if (pattern.version != place.version)
    return world_.fail("a get of {} returned the bytes of version {:x} as those of {:x}", key, pattern.version,
                       place.version);
  if (!from_current) return;
  // Promise: what was removed or replaced, and the removal or put acknowledged, is not seen again.
  for (const Barrier& barrier : keys_[key].barriers)
    if (place.version < barrier.below && barrier.at <= begun && pattern.started <= barrier.at)
      return world_.fail(
          "a get of {} returned put {} (version {:x}), which was removed or replaced before the get began (below {:x})",
          key, id, place.version, barrier.below);
}

// ---- removals

Oracle::Removal Oracle::remove_begins(const std::string& key) {
  Key& state = keys_[key];
  state.removals.push_back(kNever);
  world_.trace("a removal of {} begins", key);
  Removal removal{world_.now(), 0, state.removals.size() - 1};
  for (const PatternId id : state.patterns)
    if (patterns_[id].acked != 0) removal.below = std::max(removal.below, patterns_[id].version + 1);
  return removal;
}

void Oracle::remove_ends(const std::string& key, const Removal& removal, Code code, const SimMaster& master) {
  keys_[key].removals[removal.number] = world_.now();
  if (code != Code::kOk || !cluster_.is_current(master)) return;
  ++removals;
  world_.trace("the removal of {} is acknowledged: below {:x}", key, removal.below);
  keys_[key].barriers.push_back({removal.below, master.disk->state.generation, world_.now()});
}

// ---- what the cluster does

void Oracle::master_sends(SimMaster& master, const Connection& connection, const Message& message) {
  if (const auto* record = std::get_if<Record>(&message.body)) {
    for (const InventoryEntry& entry : record->entries) {
      if (by_version_.contains(entry.version)) continue;
      // A former master may be as late with it as it wants: somebody else may have the place by now.
      PatternId whose = 0;
      for (const PatternId id :
           by_place_[{connection.client->membership.id(), (entry.segment + 1) * kBase + entry.offset}]) {
        const Pattern& pattern = patterns_[id];
        if (pattern.key == entry.key && pattern.version == 0 && pattern.end_sent != 0 && pattern.token < entry.version)
          whose = id;
      }
      if (whose == 0)
        return world_.fail("version {:x} of {} is recorded where nobody put it", entry.version, entry.key);
      patterns_[whose].version = entry.version;
      by_version_[entry.version] = whose;
    }
  }
  if (!message.answer) return;
  const auto received = master.open_requests.find({connection.id, message.request});
  if (std::holds_alternative<PutStartAnswer>(message.body) && received != master.open_requests.end() &&
      !master.was_paused && world_.now() - received->second > cluster_.options.put_wait * 102 / 100 + 60 * kMillisecond)
    world_.fail("a put waited {} ms for room", (world_.now() - received->second) / kMillisecond);
  const auto ending = ending_.find({connection.id, message.request});
  if (ending == ending_.end()) return;
  if (const auto* codes = std::get_if<CodesAnswer>(&message.body))
    for (size_t i = 0; i < ending->second.size(); ++i)
      if (codes->codes[i] == Code::kOk) acknowledging(master, ending->second[i]);
  ending_.erase(ending);
}

void Oracle::noted(SimMaster& master, const JournalRecord& record) {
  if (!cluster_.is_current(master)) return;
  if (record.kind == JournalRecord::Kind::kGone || record.kind == JournalRecord::Kind::kNeverBack) {
    if (const ClientPtr client = cluster_.find(record.client)) client->lost_at = world_.now();
  }
  if (record.kind == JournalRecord::Kind::kGeneration && master.began_fresh && !master.knows_generation) {
    // Without the journal, only what an owner who is there has heard of holds.
    master.knows_generation = true;
    ++takeovers;
    for (auto& [key, state] : keys_)
      std::erase_if(state.barriers, [&](const Barrier& barrier) { return barrier.generation >= record.number; });
  }
}

void Oracle::evicted(const std::vector<KeyVersion>& drops) {
  for (const KeyVersion& drop : drops) {
    ++evictions;
    world_.trace("{} version {:x} is dropped, perhaps evicted", drop.key, drop.version);
    if (const auto found = by_version_.find(drop.version); found != by_version_.end())
      patterns_[found->second].evicted = true;
  }
}

// ---- at the end

// Whether a version that was acknowledged must still be there, as far as owners, eviction and removals go.
bool Oracle::kept(const Pattern& pattern) const {
  if (pattern.acked == 0 || pattern.evicted || may_be_removed(pattern)) return false;
  return std::any_of(pattern.owners.begin(), pattern.owners.end(),
                     [&](const ClientPtr& owner) { return owner->alive && owner->lost_at < pattern.end_sent; });
}

// A master without a journal can't know of owners that are not with it.
bool Oracle::known_to(const SimMaster& master, const Pattern& pattern) const {
  return !master.began_fresh || std::any_of(pattern.owners.begin(), pattern.owners.end(), [&](const ClientPtr& owner) {
    return owner->connection && owner->connection->master.get() == &master && owner->membership.attached() &&
           owner->lost_at < pattern.end_sent;
  });
}

// A put replaces what no owner in contact holds.
bool Oracle::in_touch(const SimMaster& master, const Pattern& former, const Pattern& put) const {
  const auto clients = master.master->clients(master.clock());
  const Nanos under_way = (world_.now() - put.started) * 101 / 100;  // clocks differ
  return std::any_of(former.owners.begin(), former.owners.end(), [&](const ClientPtr& owner) {
    const std::optional<InventoryEntry> held = owner->membership.inventory().find(former.key);
    return held && held->version == former.version && owner->membership.attached() && owner->lost_at < put.started &&
           std::any_of(clients.begin(), clients.end(), [&](const Master::ClientView& client) {
             return client.id == owner->membership.id() && client.live > under_way;
           });
  });
}

bool Oracle::may_be_removed(const Pattern& pattern) const {
  const Key& key = keys_.at(pattern.key);
  return all_removed_at_ > pattern.end_sent ||
         std::any_of(key.removals.begin(), key.removals.end(),
                     [&](Nanos ended) { return ended >= pattern.end_sent; }) ||
         std::any_of(key.barriers.begin(), key.barriers.end(), [&](const Barrier& barrier) {
           return barrier.below > pattern.version && pattern.started <= barrier.at;
         });
}

// By a version older than `before`, acknowledged or not.
bool Oracle::replaced(const Pattern& pattern, Version before) const {
  const auto& all = keys_.at(pattern.key).patterns;
  return std::any_of(all.begin(), all.end(), [&](PatternId id) {
    return patterns_[id].version > pattern.version && patterns_[id].version < before;
  });
}

// Promise: no acknowledged put is lost while an owner that recorded it lives and nobody removed, evicted or replaced
// it.
void Oracle::check_readable(const char* when) {
  for (const auto& [key, state] : keys_)
    for (const PatternId id : state.patterns) {
      const Pattern& pattern = patterns_[id];
      if (!kept(pattern) || replaced(pattern, UINT64_MAX)) continue;
      const GetPlace place = cluster_.current()->master->look(key);
      if (place.code != Code::kOk)
        return world_.fail("the acknowledged put {} (key {}, version {:x}) is lost {}", id, key, pattern.version, when);
      if (place.version < pattern.version)
        return world_.fail("key {} has version {:x} {}, older than the acknowledged {:x}", key, place.version, when,
                           pattern.version);
    }
}

// Promise: no space is lost, and every request is answered.
void Oracle::check_empty() {
  const SimMasterPtr master = cluster_.current();
  for (const std::string& key : master->master->keys(1))
    return world_.fail("{} is still there after everything was removed", key);
  for (const Master::SegmentView& segment : master->master->segments())
    if (segment.live && (segment.used != 0 || segment.objects != 0))
      return world_.fail("{} bytes of {} and {} objects are still in use after everything was removed", segment.used,
                         segment.name, segment.objects);
  for (const auto& [request, since] : master->open_requests)
    if (world_.now() - since > 5 * kSecond)
      return world_.fail("request {} of connection {} was not answered in {} s", request.second, request.first,
                         (world_.now() - since) / kSecond);
}

}  // namespace tidewire::store::simulation
