// SPDX-License-Identifier: Apache-2.0
//
// A master with a journal in memory, and owners as the master sees them: each test says what they answer.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/master/master.h"
#include "store/owner/inventory.h"

namespace tidewire::store::testing {

inline InstanceId id_of(uint8_t number) {
  InstanceId id{};
  id[15] = number;
  return id;
}

struct MemoryJournal : Journal {
  JournalState state;
  bool full = false;
  Status append(const std::vector<JournalRecord>& records) override {
    if (full) return Status::error(tidewire::Code::kNoResources, "the disk is full");
    for (const JournalRecord& record : records) state.apply(record);
    return Status();
  }
};

// One master and its surroundings; time stands still unless pass() moves it.
class Bench : public MasterIo {
 public:
  explicit Bench(uint8_t id = 100, JournalState state = {}) {
    journal.state = state;
    master = std::move(*Master::start({}, id_of(id), std::move(state), journal, *this, now));
  }
  void send(ConnectionId connection, Message message) override { sent.emplace_back(connection, std::move(message)); }

  // Takes the oldest message of this kind to the connection; nullptr when there is none.
  template <typename Kind>
  std::unique_ptr<Kind> take(ConnectionId connection, uint64_t* request = nullptr) {
    for (auto each = sent.begin(); each != sent.end(); ++each) {
      if (each->first != connection || !std::holds_alternative<Kind>(each->second.body)) continue;
      auto body = std::make_unique<Kind>(std::get<Kind>(std::move(each->second.body)));
      if (request) *request = each->second.request;
      sent.erase(each);
      return body;
    }
    return nullptr;
  }
  uint64_t ask(ConnectionId connection, Body body) {
    const uint64_t request = ++requests;
    master->on_message(connection, {request, false, std::move(body)}, now);
    return request;
  }
  void reply(ConnectionId connection, uint64_t request, Body body) { master->on_message(connection, {request, true, std::move(body)}, now); }
  void pass(Nanos time) {
    for (const Nanos end = now + time; now < end;) {
      now = std::min(end, now + 100 * kMillisecond);
      master->tick(now);
    }
  }

  // An owner that does what it is told, with a segment of `size`.
  struct Owner {
    uint8_t number;
    Inventory inventory;
    ConnectionId connection = 0;
    uint64_t size = 1 << 20;
  };
  void attach(Owner& owner, ConnectionId connection) {
    owner.connection = connection;
    Attach attach{id_of(owner.number), "host" + std::to_string(owner.number) + ":1", "host" + std::to_string(owner.number)};
    attach.term = owner.inventory.term();
    attach.master = owner.inventory.master();
    attach.generation = owner.inventory.generation();
    attach.entries = owner.inventory.size();
    if (owner.size > 0) attach.segments.push_back({0, attach.name, 1 << 30, owner.size});
    ask(connection, std::move(attach));
    attached = take<AttachAnswer>(connection);
    if (attached && attached->code == Code::kOk && attached->inventory == InventoryWish::kSend) {
      Inventory::Cursor cursor;
      ask(connection, owner.inventory.next_chunk(&cursor, now));
    }
    serve(owner);
  }
  // Answers what the master has asked of the owner; only grants, when `grants_only`.
  void serve(Owner& owner, bool grants_only = false) {
    uint64_t request = 0;
    for (bool more = true; more;) {
      more = false;
      if (const auto grant = take<Grant>(owner.connection, &request)) {
        reply(owner.connection, request, owner.inventory.on_grant(*grant, now));
        more = true;
      }
      if (grants_only) continue;
      if (const auto record = take<Record>(owner.connection, &request)) {
        reply(owner.connection, request, owner.inventory.on_record(*record));
        more = true;
      }
      if (const auto drop = take<Drop>(owner.connection, &request)) {
        reply(owner.connection, request, owner.inventory.on_drop(*drop, now));
        more = true;
      }
      if (take<Quiet>(owner.connection, &request)) {
        reply(owner.connection, request, CodeAnswer{Code::kOk});
        more = true;
      }
    }
  }
  // Time passes, and the owners answer and show that they live.
  void live(Nanos time, std::vector<Owner*> owners) {
    for (const Nanos end = now + time; now < end;) {
      pass(200 * kMillisecond);
      for (Owner* owner : owners) {
        ask(owner->connection, Heartbeat{});
        serve(*owner);
      }
    }
  }

  PutPlace start_put(ConnectionId writer, const std::string& key, uint64_t size, bool upsert = false) {
    ask(writer, PutStart{{key}, {size}, {}, {}, upsert});
    const auto answer = take<PutStartAnswer>(writer);
    return answer ? answer->puts[0] : PutPlace{Code::kInternal};
  }
  void end_put(ConnectionId writer, const std::string& key, Version token) { ask(writer, PutEnd{{{key, token}}, {0}, {1}}); }
  GetPlace get(ConnectionId reader, const std::string& key) {
    ask(reader, Get{{key}});
    return take<GetAnswer>(reader)->gets[0];
  }

  MemoryJournal journal;
  std::unique_ptr<Master> master;
  std::deque<std::pair<ConnectionId, Message>> sent;
  std::unique_ptr<AttachAnswer> attached;
  uint64_t requests = 1'000'000;
  Nanos now = 1000 * kSecond;
};

}  // namespace tidewire::store::testing
