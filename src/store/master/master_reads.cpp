// SPDX-License-Identifier: Apache-2.0
//
// Where objects are, and leases for their readers.
#include <algorithm>

#include "store/master/master.h"

namespace tidewire::store {

bool Master::readable(const Object& object) const {
  const auto replicas = object.replicas();
  return std::any_of(replicas.begin(), replicas.end(),
                     [this](const Replica& replica) { return segments_[replica.segment]->mounted; });
}

bool Master::in_touch(const Object& object) const {
  const auto replicas = object.replicas();
  return std::any_of(replicas.begin(), replicas.end(), [this](const Replica& replica) {
    const Segment& segment = *segments_[replica.segment];
    return segment.mounted && in_contact(*segment.owner);
  });
}

// Places of owners in contact come first. An owner whose grant has run out may obey another master by now, which may
// give out the space.
GetPlace Master::place_of(const Object& object, Nanos now) const {
  GetPlace place;
  place.version = object.version;
  place.size = object.size;
  place.checksum = object.checksum;
  for (const bool in_touch : {true, false})
    for (const Replica& replica : object.replicas()) {
      const Segment& segment = *segments_[replica.segment];
      if (!segment.mounted || in_contact(*segment.owner) != in_touch || segment.owner->reads_until <= now) continue;
      place.places.push_back(
          {{segment.owner->id, segment.info.ordinal}, segment.owner->name, segment.info.base + replica.offset});
    }
  if (place.places.empty()) place.code = readable(object) ? Code::kReplicaGone : Code::kNotFound;
  return place;
}

void Master::on_get(ConnectionId connection, uint64_t request, Client& client, const Get& get, Nanos now) {
  GetAnswer reply;
  reply.lease = options_.lease;
  reply.gets.reserve(get.keys.size());
  std::vector<ObjectTable::Id> chain;
  chain.reserve(get.keys.size());
  counters_.gets += get.keys.size();
  std::vector<ObjectTable::Id> ids(get.keys.size());
  table_.find(get.keys, ids.data());
  for (const ObjectTable::Id id : ids) {
    if (id == ObjectTable::kNone) {
      reply.gets.push_back({Code::kNotFound});
      continue;
    }
    Object& object = table_[id];
    reply.gets.push_back(place_of(object, now));
    if (reply.gets.back().code != Code::kOk) continue;
    object.lease_until = std::max(object.lease_until, lease_end(now, options_.lease));
    chain.push_back(id);
  }
  counters_.hits += chain.size();
  if (!chain.empty()) client.chain_end = chain.back();
  eviction_.touch(chain, now);
  answer(connection, request, std::move(reply));
}

void Master::on_exists(ConnectionId connection, uint64_t request, Client& client, const Exists& exists, Nanos now) {
  CodesAnswer reply;
  reply.codes.reserve(exists.keys.size());
  std::vector<ObjectTable::Id> chain;
  std::vector<ObjectTable::Id> ids(exists.keys.size());
  table_.find(exists.keys, ids.data());
  for (const ObjectTable::Id id : ids) {
    const bool there = id != ObjectTable::kNone && place_of(table_[id], now).code == Code::kOk;
    reply.codes.push_back(there ? Code::kOk : Code::kNotFound);
    if (!there) continue;
    table_[id].lease_until = std::max(table_[id].lease_until, lease_end(now, options_.lease));
    chain.push_back(id);
  }
  if (!chain.empty()) client.chain_end = chain.back();
  eviction_.touch(chain, now);
  answer(connection, request, std::move(reply));
}

GetPlace Master::look(const std::string& key) const {
  const ObjectTable::Id id = table_.find(key);
  return id == ObjectTable::kNone ? GetPlace{Code::kNotFound} : place_of(table_[id], -1);
}

}  // namespace tidewire::store
