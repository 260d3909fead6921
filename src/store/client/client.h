// SPDX-License-Identifier: Apache-2.0
//
// Client: a process's place in the store. It lends segments, and puts and gets objects directly between its memory and
// the owners' through an engine; the master only says where. All calls may come from any thread and block at most for
// Options::timeout. Results per key are codes, or bytes where the call says so (>= 0).
//
// The rules of its data path:
//  - A write stops before its lease ends (half of the lease before, it is prolonged); a place that was not reached in
//  full is told to the master, which
//    makes its owner see to it that nothing arrives there late.
//  - A read counts only when it ended within its lease, or when the object still is the same version at the same place
//  afterwards. Bytes that came over
//    the network are compared with the object's checksum. What fails is read from another replica, then the master is
//    asked again.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "store/client/membership.h"
#include "store/client/staging.h"
#include "store/rpc/link.h"
#include "store/types.h"

namespace tidewire::store {

struct ClientOptions {
  std::string local_name = "127.0.0.1";
  std::string metadata = "P2PHANDSHAKE";
  std::string protocol = "auto";
  std::string devices;
  std::string master = "127.0.0.1:50051";
  uint64_t segment_bytes = 0;
  uint64_t local_buffer_bytes = 16 << 20;
  std::shared_ptr<engine::Engine> engine;  // null: one of its own
  std::vector<std::string> settings;
};

// A piece of local memory, of an object from `offset` on.
struct Part {
  uint64_t address = 0;
  uint64_t length = 0;
  uint64_t offset = 0;
};

class Client : private Membership::Io, private MasterLink::Events {
 public:
  // Connects and mounts the segment; returns once a put can succeed (when it lends memory) or the master has answered.
  static Result<std::shared_ptr<Client>> create(ClientOptions options);
  ~Client() override;
  void close();

  const std::string& name() const { return name_; }
  bool in_contact() const { return attached_.load(); }
  bool closed() const { return closed_.load(); }
  engine::Engine& engine() { return *engine_; }

  // Memory
  Status register_memory(uint64_t address, uint64_t length);
  Status unregister_memory(uint64_t address);
  Result<uint32_t> mount(uint64_t address, uint64_t length, const std::string& location);  // address 0: allocated here
  Status unmount(uint32_t ordinal);
  uint64_t allocate(uint64_t length) { return staging_.allocate(length); }  // 0: no room
  Status release(uint64_t address);

  // Objects
  struct PutItem {
    std::string key;
    std::vector<Part> parts;  // one after the other
    std::string group;
  };
  std::vector<int64_t> put(std::vector<PutItem> items, const PutOptions& options, bool upsert);
  struct GetItem {
    std::string key;
    std::vector<Part> parts;  // any ranges of the object
    bool whole = true;        // the parts have to hold all of it, -600 otherwise
  };
  // Bytes or code.
  std::vector<int64_t> get(std::vector<GetItem> items);
  // Into memory from allocate(), to be given back by release(); larger objects into memory of their own.
  struct Buffer {
    int64_t result = 0;
    uint64_t address = 0;
    uint64_t size = 0;
  };
  std::vector<Buffer> get_buffers(const std::vector<std::string>& keys);
  std::vector<int64_t> exists(const std::vector<std::string>& keys);
  std::vector<int64_t> sizes(const std::vector<std::string>& keys);
  std::vector<int64_t> remove(const std::vector<std::string>& keys, bool force);
  int64_t remove_matching(const std::string& pattern, bool force);
  std::vector<GetPlace> places(const std::vector<std::string>& keys);

  // Sessions: see include/tidewire/store.h.
  std::vector<int64_t> start_get_session(const std::vector<std::string>& keys);
  std::vector<int64_t> end_get_session(const std::vector<std::string>& keys);
  std::vector<int64_t> start_put_session(const std::vector<std::string>& keys, const std::vector<uint64_t>& sizes,
                                         const PutOptions& options, bool upsert);
  std::vector<int64_t> write_session(std::vector<GetItem> items);
  std::vector<int64_t> end_put_session(const std::vector<std::string>& keys, bool commit);

  std::string status_json();

 private:
  // A segment that this client lends.
  struct Segment {
    uint64_t base = 0;
    uint64_t ready = 0;
    std::vector<uint64_t> allocations;  // empty: memory of the caller
    bool registered_here = false;
  };

  // A put on its way: where its bytes go.
  struct Write {
    size_t item = 0;  // index in the caller's list
    Version token = 0;
    std::vector<Place> places;
    uint32_t written = 0;
    uint64_t checksum = 0;
  };
  // A get on its way.
  struct Read {
    size_t item = 0;
    GetPlace place;
    size_t next_place = 0;
    Nanos lease_until = 0;
  };
  struct PutSession;
  struct GetSession {
    GetPlace place;
    Nanos lease_until = 0;
  };

  // An event that one thread waits for.
  class Told {
   public:
    void set() {
      std::lock_guard lock(mutex_);
      set_ = true;
      changed_.notify_all();
    }
    void wait() {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return set_; });
    }

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool set_ = false;
  };

  explicit Client(ClientOptions options);
  Status start();
  Status lend(uint64_t length, const std::string& location, uint32_t* ordinal);
  void grow(uint32_t ordinal, uint64_t length, const std::string& location);
  void announce(uint32_t ordinal, uint64_t ready);
  bool wait_attached(Nanos until);
  void tick();
  void work();  // the worker's thread

  // Membership::Io and MasterLink::Events, on the link's thread.
  void ask(Body request, std::function<void(const Body*)> done) override;
  void answer(uint64_t request, Body body) override { link_->answer(request, std::move(body)); }
  void quiet(const Quiet& wish, std::function<void()> done) override;
  void on_standing() override;
  void on_up() override;
  void on_down(const Status& why) override;
  void on_request(uint64_t request, Body body) override;

  // The master's answer of this kind, or the code that says why there is none. Repeats what is safe to repeat while
  // there is time.
  template <typename Answer>
  Code call(const Body& request, Nanos deadline, Answer* answer, bool repeat = true);
  // What one question to the master names: enough to keep every rail busy, little enough that a failing client holds up
  // little.
  static constexpr size_t kKeysAtOnce = 1000;
  // A writer stops so much before its lease ends: the engine's revocation of a late transfer takes up to 0.4 s.
  static constexpr Nanos kStopBefore = 500 * kMillisecond;

  // Of a reader's lease, for the way of its last bytes from the engine to here.
  static constexpr Nanos kReadMargin = 20 * kMillisecond;

  Nanos deadline() const { return monotonic_now() + timeout_; }
  template <typename Answer, typename Entry, typename Request>
  std::vector<Entry> about(const std::vector<std::string>& keys, Request request, std::vector<Entry> Answer::*entries,
                           Entry (*failed)(Code), bool repeat);
  // The engine's peer; null with the status.
  engine::PeerPtr peer(const std::string& endpoint);
  // The transfer of a part of an object between usable memory, `from` its start, and one of its places, `offset` into it.
  engine::TransferSpec transfer(transport::Opcode opcode, const Usable& memory, uint64_t from, const Place& place,
                                uint64_t offset, uint64_t length);
  // Sessions and checksums read and write with the processor: device memory is refused by name.
  static bool touchable(const std::string& key, const std::vector<Part>& parts);
  bool own(const Place& place) const { return place.segment.owner == id_; }

  void put_some(const std::vector<PutItem>& items, std::span<const size_t> which, const PutOptions& options,
                bool upsert, std::vector<int64_t>* results);
  Code start_put(const PutStart& start, Nanos until, Nanos* asked, PutStartAnswer* answer);
  // Ends early when the client is closed.
  void pause(Nanos time);
  Code write_all(const std::vector<PutItem>& items, std::vector<Write>& writes, Nanos asked, Nanos lease);
  void get_some(const std::vector<GetItem>& items, std::span<const size_t> which, std::vector<int64_t>* results);
  void read_all(const std::vector<GetItem>& items, std::vector<Read>& reads, std::vector<int64_t>* results,
                std::vector<size_t>* again);
  struct Reading;
  struct ReadBatch;
  struct Stretch;
  bool read_own(const GetItem& item, const Read& read, std::vector<int64_t>* results, std::vector<size_t>* again);
  std::vector<ReadBatch> submit_reads(const std::vector<GetItem>& items, const std::vector<Read>& reads,
                                      std::vector<Reading>& readings);
  static void take(const ReadBatch& batch, const Stretch& stretch, bool by_memory, Reading* reading);
  void finish(const std::vector<GetItem>& items, std::vector<Read>& reads, Reading& reading,
              std::vector<int64_t>* results, std::vector<size_t>* again, std::vector<size_t>* retry);
  static uint64_t sum_of(const Reading& reading);
  void wait_and_renew(std::span<const ReadBatch> batches, const std::vector<GetItem>& items, std::vector<Read>& reads,
                      std::vector<Reading>& readings);
  void renew(std::span<const ReadBatch> batches, Nanos until, const std::vector<GetItem>& items,
             std::vector<Read>& reads, std::vector<Reading>& readings);
  void renew_sessions_soon();  // under sessions_mutex_
  bool copy_in(const std::vector<Part>& parts, uint64_t address, const Nanos* until,
               const std::function<void()>& between);

  const ClientOptions options_;
  std::shared_ptr<engine::Engine> engine_;
  bool own_engine_ = false;
  ClientId id_{};
  std::string name_;
  Nanos timeout_ = 30 * kSecond;
  std::unique_ptr<MasterLink> link_;
  std::unique_ptr<Membership> membership_;  // on the link's thread
  Nanos ticking_at_ = kNever;               // the same
  std::atomic<bool> attached_{false};
  std::atomic<bool> closed_{false};
  std::mutex standing_mutex_;
  std::condition_variable standing_changed_;

  Staging staging_;
  std::mutex segments_mutex_;
  std::map<uint32_t, Segment> segments_;
  std::atomic<int> growing_{0};  // segments that are not complete yet
  uint32_t next_ordinal_ = 0;
  std::shared_mutex own_copies_;  // held while this process copies into its own segments: quiet() waits for it

  std::shared_mutex peers_mutex_;
  std::unordered_map<std::string, engine::PeerPtr> peers_;

  std::mutex sessions_mutex_;
  std::map<std::string, GetSession> get_sessions_;
  std::map<std::string, std::shared_ptr<PutSession>> put_sessions_;
  bool renewing_ = false;
  std::atomic<Nanos> read_lease_{0};  // as last given

  // What blocks, off the link's thread.
  std::mutex work_mutex_;
  std::condition_variable work_wake_;
  std::deque<std::function<void()>> work_queue_;
  bool work_stop_ = false;
  std::thread worker_, grower_;
};

}  // namespace tidewire::store
