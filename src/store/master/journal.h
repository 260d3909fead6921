// SPDX-License-Identifier: Apache-2.0
//
// What a master must not forget, and no more: its term, the store's generation, who its owners are, and what
// unreachable owners have still to forget. Objects are not in it: the owners hold them. JournalState is the sum of the
// records; the master changes it only by records that are safely written.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/types.h"

namespace tidewire::store {

struct JournalRecord {
  enum class Kind : uint8_t {
    kTerm = 1,        // number: the term that a master is about to propose
    kGeneration = 2,  // number: grows when an owner is left out of a removal
    kMember = 3,      // client, text: its name; it holds replicas
    kGone = 4,        // client: what it holds is forgotten; it has to clear its inventory before it is a member again
    kTombstone = 5,   // client, text: key, number: version; it has to forget this one
    kForgot = 6,      // client: it has done so
    kNeverBack = 7,   // client: its process is known to have ended
  };
  Kind kind{};
  uint64_t number = 0;
  ClientId client{};
  std::string text;
};

struct JournalState {
  struct Member {
    std::string name;
    bool gone = false;
    std::map<std::string, std::set<Version>> tombstones;
  };
  bool fresh = true;  // it was never known, or is lost, who the members are: no generation was written
  uint64_t term = 0;
  uint64_t generation = 0;
  std::map<ClientId, Member> members;

  void apply(const JournalRecord& record);
  // The records whose sum this is.
  std::vector<JournalRecord> records() const;
};

// Where a master writes its records.
class Journal {
 public:
  virtual ~Journal() = default;
  // OK once they would survive the machine's loss of power. Otherwise none of them may be relied on.
  virtual Status append(const std::vector<JournalRecord>& records) = 0;
};

}  // namespace tidewire::store
