// SPDX-License-Identifier: Apache-2.0
//
// What clients do: puts, gets and removals, each an operation of its own that follows the protocol of messages.h over its client's connection, and moves
// bytes to and from owners' memory piece by piece. An operation ends by itself; a client that dies ends it where it stands.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/store/oracle.h"

namespace tidewire::store::simulation {

struct PutWish {
  std::string key;
  uint64_t size = 0;
  PutOptions options;
};
struct PutStyle {
  bool upsert = false;
  Nanos pace = 0;         // between pieces
  bool dies = false;      // goes silent in the middle, with bytes under way
  bool confirms = true;   // cuts what is under way before it gives up
};
void put(const ClientPtr& client, Oracle& oracle, std::vector<PutWish> wishes, PutStyle style);

struct GetStyle {
  Nanos pace = 0;
  int attempts = 3;
};
void get(const ClientPtr& client, Oracle& oracle, const std::string& key, GetStyle style);

void remove(const ClientPtr& client, Oracle& oracle, std::vector<std::string> keys, bool force);
void exists(const ClientPtr& client, std::vector<std::string> keys);

}  // namespace tidewire::store::simulation
