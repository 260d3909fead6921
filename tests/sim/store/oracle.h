// SPDX-License-Identifier: Apache-2.0
//
// The oracle: what must hold in every schedule. It knows each version that anybody tried to put, as a pattern of bytes
// of its own; sees what masters send and note, every byte that lands and every read; and is told the operations'
// beginnings and ends. The checks are listed in oracle.cpp.
//
// A former master that still lives promises less: bytes that it leads readers to are those of one complete version of
// the key, and its writers are never in anybody's way. What it acknowledges while its successor works may be lost, and
// what it shows may be old.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/store/cluster.h"

namespace tidewire::store::simulation {

using PatternId = uint32_t;  // 0 = none
struct Pattern {
  std::string key;
  uint64_t size = 0;
  bool upsert = false;
  Nanos started = 0;   // its PutStart was sent
  Nanos end_sent = 0;  // its PutEnd was sent; 0 = never
  Nanos acked = 0;     // its writer was told kOk by the master of the time; 0 = never
  Version token = 0, version = 0;
  std::vector<ClientPtr> owners;  // that held it when it was acknowledged
  bool evicted = false;           // perhaps
  uint64_t cells() const { return (size + kCell - 1) / kCell; }
};

class Oracle {
 public:
  Oracle(World& world, Cluster& cluster) : world_(world), cluster_(cluster), patterns_(1) {}

  // Puts.
  PatternId put_begins(const std::string& key, uint64_t size, bool upsert);
  void placed(PatternId id, Version token, const std::vector<Place>& places);
  void landing(PatternId id, const ClientPtr& owner, uint64_t address, uint64_t count);
  void put_ends(ConnectionId connection, uint64_t request, const std::vector<PatternId>& ids);
  void put_acked(PatternId id, bool by_current);
  Pattern& pattern(PatternId id) { return patterns_[id]; }

  // Reads. What the reader sees was not removed or replaced, and that acknowledged, before the read began.
  Nanos now() const { return world_.now(); }
  void read(const std::string& key, Nanos begun, bool from_current, const GetPlace& place,
            const std::vector<Cell>& cells);

  // Removals.
  struct Removal {
    Nanos begun = 0;
    Version below = 0;
    size_t number = 0;  // of the key's removals
  };
  Removal remove_begins(const std::string& key);
  void remove_ends(const std::string& key, const Removal& removal, Code code, const SimMaster& master);
  void clearing() { all_removed_at_ = world_.now(); }

  // What the cluster does.
  void master_started(SimMaster& master) { (void)master; }
  void master_sends(SimMaster& master, const Connection& connection, const Message& message);
  void noted(SimMaster& master, const JournalRecord& record);
  void evicted(const std::vector<KeyVersion>& drops);

  // Once all is well: every acknowledged version that must be there is readable.
  void check_readable(const char* when);
  // After everything was removed: all space is free, nobody waits.
  void check_empty();

  uint64_t reads = 0, acked = 0, removals = 0, evictions = 0, discarded = 0, abandoned = 0, takeovers = 0, no_space = 0;

 private:
  // Of a key, versions below `below` of puts that began before `at` are not seen any more (a later put may get a lower
  // version from a master that never met the owner of the higher one); as long as an owner knows `generation`, if the
  // journal is lost.
  struct Barrier {
    Version below;
    uint64_t generation;
    Nanos at;
  };
  struct Key {
    std::vector<PatternId> patterns;
    std::vector<Barrier> barriers;
    std::vector<Nanos> removals;  // when they ended; kNever: not known
  };
  bool kept(const Pattern& pattern) const;
  bool replaced(const Pattern& pattern, Version before) const;
  bool known_to(const SimMaster& master, const Pattern& pattern) const;
  bool in_touch(const SimMaster& master, const Pattern& former, const Pattern& put) const;
  bool may_be_removed(const Pattern& pattern) const;
  void acknowledging(SimMaster& master, PatternId id);

  World& world_;
  Cluster& cluster_;
  std::vector<Pattern> patterns_;
  std::map<std::string, Key> keys_;
  std::unordered_map<Version, PatternId> by_version_;
  std::map<std::pair<ClientId, uint64_t>, std::vector<PatternId>> by_place_;  // by address: who was given it
  std::map<std::pair<ClientId, uint64_t>, PatternId> newest_in_cell_;         // by address of each cell
  std::map<std::pair<ConnectionId, uint64_t>, std::vector<PatternId>> ending_;
  Nanos all_removed_at_ = 0;
};

}  // namespace tidewire::store::simulation
