// SPDX-License-Identifier: Apache-2.0
//
// Master: the index of what the owners hold, and who may write where. A state machine without I/O: messages, lost
// connections and the time in, messages and journal records out. The program drives it over the network, the simulator
// many of them at once. Not thread-safe.
//
// What it promises, whatever happens to it:
//  - A put that was answered with kOk is recorded by each owner of its replicas before. A remove that was answered with
//  kOk was dropped by each owner that
//    could be reached, and the journal remembers it for the others. So a master that starts anew builds its catalogue
//    from the owners alone.
//  - Bytes under a reader's lease stay what they are: space is given out again when leases have ended, and after a
//  writer that was given up only when
//    the owner has confirmed that nothing of it can arrive any more.
//  - It gives out space on an owner only while it holds the owner's grant (messages.h), so never while another master
//  does.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/master/eviction.h"
#include "store/master/journal.h"
#include "store/master/object_table.h"
#include "store/master/segment_allocator.h"
#include "store/messages.h"

namespace tidewire::store {

using ConnectionId = uint64_t;  // never reused; 0 = none

struct MasterOptions {
  Nanos lease = 10 * kSecond;       // of a reader
  Nanos write_lease = 2 * kSecond;  // of a writer, prolonged by PutRenew
  Nanos grant = 4 * kSecond;        // of an owner to the master: how long a successor may have to wait
  Nanos heartbeat = 1 * kSecond;    // of a client
  Nanos client_ttl = 10 * kSecond;  // after so much silence a client is suspect at the latest,
  int gone_after = 6;               // and after so many times as much, gone
  Nanos put_wait = 1 * kSecond;     // for room, while eviction makes some
  Nanos takeover = 1 * kSecond;     // without a journal: how long owners of a former master are waited for
  Nanos soft_pin_ttl = 1800 * kSecond;
  Nanos max_soft_pin_ttl = 86'400 * kSecond;
  bool evict_soft_pinned = true;
  double high_watermark = 0.90;  // of a segment: eviction starts there
  double eviction_ratio = 0.05;  // of a segment: so much below it, it ends
  uint64_t seed = 1;             // of the placement's choice among equals
};

// What the master asks of its surroundings.
class MasterIo {
 public:
  virtual ~MasterIo() = default;
  virtual void send(ConnectionId connection, Message message) = 0;
};

class Master {
 public:
  // Proposes the term after the journal's. kInternal and worse when the journal can't be written.
  static Result<std::unique_ptr<Master>> start(MasterOptions options, const InstanceId& id, JournalState state,
                                               Journal& journal, MasterIo& io, Nanos now);

  void on_message(ConnectionId connection, Message message, Nanos now);
  void on_closed(ConnectionId connection, Nanos now);
  // Does what is due and returns when it wants to be called again.
  Nanos tick(Nanos now);

  // For the administrator's pages.
  struct SegmentView {
    std::string name;
    ClientId owner{};
    uint64_t size = 0, used = 0, objects = 0;
    bool live = false;
  };
  struct ClientView {
    ClientId id{};
    std::string name, state;  // live, suspect, gone
    Nanos silent = 0;
    Nanos live = 0;  // for how long it has been in contact without a gap
  };
  struct Counters {
    uint64_t gets = 0, hits = 0, puts_started = 0, puts_committed = 0, puts_no_space = 0, puts_abandoned = 0,
             removed = 0, evicted = 0, evicted_bytes = 0, tombstones = 0;
  };
  std::vector<SegmentView> segments() const;
  std::vector<ClientView> clients(Nanos now) const;
  const Counters& counters() const { return counters_; }
  size_t objects() const { return table_.size(); }
  uint64_t term() const { return journal_state_.term; }
  bool taking_over() const { return taking_over_; }
  // At most `limit` keys.
  std::vector<std::string> keys(size_t limit) const;
  // Without a lease, for pages; kNotFound.
  GetPlace look(const std::string& key) const;

 private:
  struct Client;
  enum class State { kLive, kSuspect, kGone };
  using SegmentNumber = uint32_t;
  static constexpr SegmentNumber kNoSegment = UINT32_MAX;

  struct Segment {
    std::shared_ptr<Client> owner;
    SegmentInfo info;
    SegmentAllocator space{0};
    bool mounted = true;
    uint64_t objects = 0;
    bool draining = false;  // above the watermark, or on the way from there to where eviction ends
    uint64_t held = 0;      // bytes that readers may still have a lease on
    uint64_t evicting = 0;  // bytes that owners have been told to drop to make room
  };

  // A request whose answer waits for others. Answered when nothing is open any more.
  struct Waiting {
    ConnectionId connection = 0;
    uint64_t request = 0;
    std::vector<Code> codes;
    size_t open = 0;
    bool counts = false;  // answered with how many codes are kOk
  };
  using WaitingPtr = std::shared_ptr<Waiting>;

  // A new version on its way: from PutStart until it is visible or its space is free again.
  struct Attempt {
    enum class Step { kWriting, kQueued, kRecording, kQuieting };
    Step step = Step::kWriting;
    std::string key;
    std::string group;
    ClientId writer{};
    std::string writer_endpoint;
    uint64_t size = 0;
    uint64_t checksum = 0;
    uint32_t flags = 0;
    PinAction soft_pin = PinAction::kPreserve;
    Nanos soft_pin_ttl = 0;
    bool upsert = false;
    Nanos lease_until = 0;
    Version version = 0;  // drawn when it is recorded
    std::vector<Replica> places;
    std::vector<Replica> recorded;
    size_t answers_open = 0;
    WaitingPtr waiting;
    size_t index = 0;
    // What it continues, a hint for the eviction: the key before it in its batch, by token, or an object that was there
    // already.
    Version before = 0;
    ObjectTable::Id parent = ObjectTable::kNone;
  };

  // Replicas that owners have been told to drop.
  struct Removal {
    std::string key;
    Version version = 0;
    uint64_t size = 0;
    Nanos hold_until = 0;
    size_t answers_open = 0;
    uint64_t generation = 0;  // that all live owners must know first; 0 = none
    WaitingPtr waiting;
    size_t index = 0;
    std::vector<WaitingPtr> later;  // of later operations on the key
  };
  using RemovalPtr = std::shared_ptr<Removal>;

  struct Dropped {
    RemovalPtr removal;
    Replica replica;
    bool settled = false;  // its removal does not wait for this owner any more
  };
  struct Recorded {
    Version token = 0;
    Replica replica;
  };
  // A Record or Drop that the owner has not answered; sent again, in order, when it comes back.
  struct Pending {
    uint64_t request = 0;
    Body body;
    std::vector<Recorded> recorded;
    std::vector<Dropped> dropped;
    std::vector<Version> quieted;
  };
  struct Client {
    ClientId id{};
    std::string name, host_id;
    ConnectionId connection = 0;
    State state = State::kLive;
    Nanos live_since = 0;
    Nanos heard = 0;
    std::map<uint32_t, SegmentNumber> segments;  // by ordinal
    bool inventory_done = false;
    uint64_t grant_request = 0;
    Nanos grant_asked = 0;
    Nanos granted_until = 0;
    Nanos allocate_from = 0;
    Nanos reads_until = 0;       // nobody else gives out space on it before, so that readers may be led to it
    Nanos old_leases_until = 0;  // of readers that an earlier master led to it
    bool needs_quiet = false;    // what writers of an earlier master sent may still arrive
    uint64_t quiet_request = 0;
    uint64_t generation = 0;        // that it is known to have heard of
    uint64_t grant_generation = 0;  // in the grant that it was asked for
    std::deque<Pending> pending;
    Record record;  // collected, sent at the end of the step
    std::vector<Recorded> recorded;
    Drop drop;
    std::vector<Dropped> dropped;
    ObjectTable::Id chain_end = ObjectTable::kNone;  // the last object that it asked for and that was there
    int unreadable = 0;                              // reports since
    Nanos unreadable_since = 0;
    Nanos shunned_until = 0;
  };
  using ClientPtr = std::shared_ptr<Client>;

  struct MountWaiting {
    ConnectionId connection;
    uint64_t request;
    uint32_t ordinal;
    Nanos until;
  };
  struct PutWaiting {
    ConnectionId connection;
    uint64_t request;
    PutStart start;
    PutStartAnswer answer;
    std::vector<size_t> open;  // keys without room yet
    Nanos until;
  };

  Master(MasterOptions options, const InstanceId& id, JournalState state, Journal& journal, MasterIo& io, Nanos now);

  // master_clients.cpp
  void on_attach(ConnectionId connection, uint64_t request, const Attach& attach, Nanos now);
  void on_mount(const ClientPtr& client, const SegmentInfo& info);
  void answer_mounts(Nanos now);
  void on_answer(const ClientPtr& client, uint64_t request, Body body, Nanos now);
  void on_grant_answer(const ClientPtr& client, const GrantAnswer& answer, Nanos now);
  void ask_grant(const ClientPtr& client, Nanos now);
  void quiet_if_due(const ClientPtr& client, Nanos now);
  void suspect(const ClientPtr& client, Nanos now);
  void gone(const ClientPtr& client, bool never_back, Nanos now);
  void unmount(const ClientPtr& client, uint32_t ordinal);
  void replay(const ClientPtr& client);
  void on_unreadable(const ReportUnreadable& report, Nanos now);
  bool in_contact(const Client& client) const { return client.connection != 0 && client.state == State::kLive; }
  ClientPtr client_of(ConnectionId connection) const;
  Status write_journal(const std::vector<JournalRecord>& records);

  // master_takeover.cpp
  void on_inventory(const ClientPtr& client, uint64_t request, InventoryChunk chunk, Nanos now);
  Code adopt(const ClientPtr& client, const InventoryEntry& entry, Nanos now);
  void note_forgotten(const ClientPtr& client);
  uint64_t generation_for(const Client& client) const;
  void end_takeover(Nanos now);

  // master_puts.cpp
  void on_put_start(ConnectionId connection, uint64_t request, const ClientPtr& client, PutStart start, Nanos now);
  struct Chain {
    Version before = 0;
    ObjectTable::Id parent = ObjectTable::kNone;
  };
  Code start_put(const Client& writer, const PutStart& start, size_t index, Chain* chain, PutPlace* place, Nanos now);
  void retry_waiting_puts(Nanos now);
  void answer_put_start(PutWaiting& waiting, Nanos now);
  void on_put_end(ConnectionId connection, uint64_t request, const ClientPtr& client, const PutEnd& end, Nanos now);
  void on_put_revoke(ConnectionId connection, uint64_t request, const ClientPtr& client, const PutRevoke& revoke,
                     Nanos now);
  void on_put_renew(ConnectionId connection, uint64_t request, const ClientPtr& client, const PutRenew& renew,
                    Nanos now);
  Code check_attempt(const KeyVersion& name, const Client& client, Attempt** attempt);
  void record(Version token, Nanos now);
  void flush_records(const ClientPtr& client);
  void recorded(Version token, const Replica& replica, bool ok, Nanos now);
  void quieted(Version token, Nanos now);
  void commit(Version token, Nanos now);
  void finish_attempt(Version token, Code code, Nanos now);
  void next_of_key(const std::string& key, Nanos now);
  void abandon(Version token, Nanos now);
  void expire_attempts(Nanos now);

  // master_reads.cpp
  GetPlace place_of(const Object& object, Nanos now) const;
  void on_get(ConnectionId connection, uint64_t request, Client& client, const Get& get, Nanos now);
  void on_exists(ConnectionId connection, uint64_t request, Client& client, const Exists& exists, Nanos now);
  bool readable(const Object& object) const;
  // Whether an owner of it is in contact. A put does not spare an object that nobody can read: what its lost owners
  // hold is outdated when they return.
  bool in_touch(const Object& object) const;

  // master_removals.cpp
  void on_remove(ConnectionId connection, uint64_t request, const Remove& remove, Nanos now);
  void on_remove_matching(ConnectionId connection, uint64_t request, const RemoveMatching& remove, Nanos now);
  Code remove_object(ObjectTable::Id id, bool force, const WaitingPtr& waiting, size_t index, Nanos now);
  // Takes the object out of the catalogue and tells the owners.
  RemovalPtr drop_object(ObjectTable::Id id, Nanos now);
  RemovalPtr drop_replicas(const std::string& key, Version version, uint64_t size, std::span<const Replica> replicas,
                           Nanos hold_until, Nanos now);
  void queue_drop(const ClientPtr& client, KeyVersion entry, Nanos hold, Dropped dropped);
  void dropped(Dropped& dropped, Nanos now);
  // The removal does not wait for this owner any more.
  void settle_for(Dropped& dropped);
  void settle(const RemovalPtr& removal);
  // `waiting` is not answered before the removal has settled.
  void also_wait(const WaitingPtr& waiting, const RemovalPtr& removal);
  // Nor before earlier versions of the key, evicted ones for instance, have been dropped.
  void wait_for_key(const WaitingPtr& waiting, const std::string& key);
  bool leave_tombstone(const ClientPtr& client, Removal& removal);
  void check_generation();
  void flush_drops();
  void finish(const WaitingPtr& waiting, size_t index, Code code);
  void sweep(Nanos now);

  // master_space.cpp
  std::vector<Replica> allocate(const Client& writer, uint64_t size, const PutOptions& options, Nanos now);
  bool allocatable(const Segment& segment, Nanos now) const;
  void give_back(const Replica& replica, uint64_t size, Nanos hold_until, Nanos now);
  void release_held(Nanos now);
  // Tells the eviction of the object's pins; a soft one ends after `ttl`.
  void pin(ObjectTable::Id id, Nanos ttl, Nanos now);
  void release_pins(Nanos now);
  // The eviction looks for an object in the segment of its first replica, which is another one now.
  void relist(ObjectTable::Id id, Nanos now);
  // Starts to evict up to so many bytes and about so many objects of the segment, of at most `largest` bytes each;
  // returns how many bytes it will give.
  uint64_t evict(SegmentNumber segment, uint64_t bytes, uint64_t largest, uint64_t objects, Nanos now);
  uint64_t make_room(const PutStart& start, const std::vector<size_t>& open, Nanos now);
  bool keep_below_watermark(SegmentNumber segment, bool urgent_only, Nanos now);

  // Entries of a Record or Drop that go out at once: keys of the greatest length still fit into a message.
  static constexpr size_t kMaxCollected = 2'000;
  Version next_version() { return make_version(journal_state_.term, ++sequence_); }
  Nanos lease_end(Nanos now, Nanos lease) const { return now + lease + lease / 100 + 10 * kMillisecond; }
  void answer(ConnectionId connection, uint64_t request, Body body) {
    io_.send(connection, {request, true, std::move(body)});
  }
  uint64_t ask(const Client& client, Body body);

  const MasterOptions options_;
  const InstanceId id_;
  JournalState journal_state_;
  Journal& journal_;
  MasterIo& io_;
  std::mt19937_64 random_;

  uint64_t sequence_ = 0;
  uint64_t last_request_ = 0;
  bool taking_over_ = true;
  bool tombstones_owed_ = false;  // the journal could not be written
  // The journal was lost: which owners missed removals is learned from their generations.
  bool owners_may_be_stale_ = false;
  struct Candidate {
    std::string name;
    uint64_t generation = 0;
  };
  std::map<ClientId, Candidate> candidates_;
  Nanos takeover_until_;
  std::vector<std::pair<ConnectionId, Message>> after_takeover_;

  std::unordered_map<ConnectionId, ClientPtr> by_connection_;
  std::map<ClientId, ClientPtr> clients_;
  std::vector<std::unique_ptr<Segment>> segments_;  // by number; numbers are not reused

  ObjectTable table_;
  Eviction eviction_;
  struct SoftPin {
    Nanos until;
    ObjectTable::Id id;
    Version version;
    bool operator>(const SoftPin& other) const { return until > other.until; }
  };
  std::priority_queue<SoftPin, std::vector<SoftPin>, std::greater<>> soft_pins_;
  std::unordered_map<Version, Attempt> attempts_;  // by token
  using Due = std::pair<Nanos, Version>;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> attempts_due_;
  // By key: the attempt that is being recorded, and those that wait for it.
  std::unordered_map<std::string, std::deque<Version>> recording_;
  std::deque<PutWaiting> puts_waiting_;
  std::vector<MountWaiting> mounts_waiting_;
  bool space_freed_ = false;
  uint32_t draining_ = 1;            // segments that the last tick found to be, at least 1
  std::set<SegmentNumber> pressed_;  // segments in which space was given out since the last step

  struct Hold {
    Nanos until;
    Replica replica;
    uint64_t size;
    bool operator>(const Hold& other) const { return until > other.until; }
  };
  std::priority_queue<Hold, std::vector<Hold>, std::greater<>> holds_;
  std::vector<RemovalPtr> waiting_for_generation_;
  std::unordered_map<std::string, std::vector<RemovalPtr>> dropping_;  // by key: what owners have not confirmed
  ObjectTable::Id last_committed_ = ObjectTable::kNone;
  Version last_committed_token_ = 0;
  bool sweeping_ = false;
  ObjectTable::Id sweep_at_ = 0;
  Counters counters_;
};

}  // namespace tidewire::store
