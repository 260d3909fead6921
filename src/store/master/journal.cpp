// SPDX-License-Identifier: Apache-2.0
#include "store/master/journal.h"

#include <algorithm>

namespace tidewire::store {

void JournalState::apply(const JournalRecord& record) {
  switch (record.kind) {
    case JournalRecord::Kind::kTerm:
      term = std::max(term, record.number);
      return;
    case JournalRecord::Kind::kGeneration:
      generation = std::max(generation, record.number);
      fresh = false;
      return;
    case JournalRecord::Kind::kMember:
      members[record.client] = {record.text, false, {}};
      return;
    case JournalRecord::Kind::kGone: {
      Member& member = members[record.client];
      member.gone = true;
      member.tombstones.clear();
      return;
    }
    case JournalRecord::Kind::kTombstone: {
      const auto found = members.find(record.client);
      if (found == members.end() || found->second.gone) return;
      found->second.tombstones[record.text].insert(record.number);
      return;
    }
    case JournalRecord::Kind::kForgot:
      if (const auto found = members.find(record.client); found != members.end()) found->second.tombstones.clear();
      return;
    case JournalRecord::Kind::kNeverBack:
      members.erase(record.client);
      return;
  }
}

std::vector<JournalRecord> JournalState::records() const {
  using Kind = JournalRecord::Kind;
  std::vector<JournalRecord> all;
  if (term > 0) all.push_back({Kind::kTerm, term, {}, {}});
  if (!fresh) all.push_back({Kind::kGeneration, generation, {}, {}});
  for (const auto& [client, member] : members) {
    all.push_back({Kind::kMember, 0, client, member.name});
    if (member.gone) all.push_back({Kind::kGone, 0, client, {}});
    for (const auto& [key, versions] : member.tombstones)
      for (const Version version : versions) all.push_back({Kind::kTombstone, version, client, key});
  }
  return all;
}

}  // namespace tidewire::store
