// SPDX-License-Identifier: Apache-2.0
//
// Membership: how a client belongs to its master. It attaches, shows that it lives, and as an owner grants terms, keeps
// the inventory and hands it to a new master. A state machine without I/O: connections, messages and the time in,
// messages out. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "store/messages.h"
#include "store/owner/inventory.h"

namespace tidewire::store {

class Membership {
 public:
  class Io {
   public:
    virtual ~Io() = default;
    // Asks the master; `done` gets the answer, or nullptr when the connection broke before it came.
    virtual void ask(Body request, std::function<void(const Body* answer)> done) = 0;
    virtual void answer(uint64_t request, Body body) = 0;
    // Calls `done` once nothing that this writer has sent can be placed in our memory any more.
    virtual void quiet(const Quiet& wish, std::function<void()> done) = 0;
    // attached() has changed.
    virtual void on_standing() = 0;
  };

  Membership(const ClientId& id, std::string name, std::string host_id, Io& io);

  void on_connected(Nanos now);
  void on_disconnected();
  // What the master asks.
  void on_request(uint64_t request, const Body& body, Nanos now);
  // Does what is due and returns when it wants to be called again.
  Nanos tick(Nanos now);

  // A segment that is new or has grown. `done` is called once the master has answered, which it does when objects can be put there, or will not.
  void mount(const SegmentInfo& segment, Nanos now, std::function<void()> done = [] {});
  // Its replicas are gone; the memory may go once `done` was called (the master knows, or there is none).
  void unmount(uint32_t ordinal, std::function<void()> done);

  // Whether the master knows this client and, as far as it wants it, its inventory.
  bool attached() const { return standing_ == Standing::kAttached; }
  const ClientId& id() const { return id_; }
  const std::map<uint32_t, SegmentInfo>& segments() const { return segments_; }
  const Inventory& inventory() const { return inventory_; }
  // As the master said at the last attachment.
  Nanos client_ttl() const { return client_ttl_; }

 private:
  enum class Standing { kDisconnected, kConnected, kAttaching, kSending, kAttached };
  void attach(Nanos now);
  void on_attach_answer(const Body* answer, Nanos now);
  void send_chunk(Inventory::Cursor cursor, Nanos now);
  void heartbeat(Nanos now);
  void set(Standing standing);

  const ClientId id_;
  const std::string name_, host_id_;
  Io& io_;
  Inventory inventory_;
  std::map<uint32_t, SegmentInfo> segments_;
  Standing standing_ = Standing::kDisconnected;
  uint64_t connection_ = 0;  // counts connections: answers that come late belong to an earlier one
  Nanos due_ = kNever;       // of the next heartbeat or attempt to attach
  Nanos heartbeat_ = kSecond;
  Nanos client_ttl_ = 10 * kSecond;
  Nanos now_ = 0;  // of the last call
};

}  // namespace tidewire::store
