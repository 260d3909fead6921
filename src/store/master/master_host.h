// SPDX-License-Identifier: Apache-2.0
//
// MasterHost: a master as a process has it: the state machine (master.h), its port (rpc/link.h), its journal, and the
// clock that drives it. Everything of the master runs on the port's loop thread; the functions here may be called from
// any other thread and wait for it, for a bounded time.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "store/master/master.h"
#include "store/rpc/link.h"

namespace tidewire::store {

struct MasterHostOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;       // 0 = automatic
  std::string advertised;  // "host:port" as clients know it; empty = host and port
  std::string secret;      // cluster secret; empty = none
  std::string journal;     // folder; empty = none
  MasterOptions master;    // lease, write_lease, client_ttl and the like; heartbeat and grant are made to fit them
};

// What pages and status show.
struct MasterSnapshot {
  uint64_t term = 0;
  bool taking_over = false;
  uint64_t objects = 0;
  Nanos up = 0;  // since the start
  std::vector<Master::ClientView> clients;
  std::vector<Master::SegmentView> segments;
  Master::Counters counters;
};

class MasterHost final : private MasterServer::Handler, private MasterIo {
 public:
  static constexpr Nanos kAskTimeout = 5 * kSecond;

  // Listens, reads the journal, proposes a term and serves. kAddressInUse names the port, or who has the journal.
  static Result<std::unique_ptr<MasterHost>> start(MasterHostOptions options);
  ~MasterHost() override;
  void stop();

  const std::string& address() const { return server_->advertised(); }
  // Random at each start.
  const InstanceId& id() const { return id_; }

  // kTimeout when the loop does not get to it in time, kClosed after stop().
  Result<MasterSnapshot> snapshot(Nanos timeout = kAskTimeout);
  // The first `limit` keys, in no order.
  Result<std::vector<std::string>> keys(size_t limit, Nanos timeout = kAskTimeout);
  // Where objects are, without a lease.
  Result<std::vector<GetPlace>> look(std::vector<std::string> keys, Nanos timeout = kAskTimeout);
  // Asks as a client would, over no connection. kTimeout does not mean that it was not carried out.
  Result<Body> ask(Body request, Nanos timeout = kAskTimeout);
  // snapshot() as JSON: see admin/pages.h.
  Result<std::string> status_json();

 private:
  struct Closed {
    ConnectionId connection;
  };
  using Event = std::variant<std::pair<ConnectionId, Message>, Closed>;

  explicit MasterHost(MasterHostOptions options);
  Status begin();

  void on_message(ConnectionId connection, Message message) override;
  void on_closed(ConnectionId connection, const Status& why) override;
  void send(ConnectionId connection, Message message) override;

  // Loop thread only.
  void take(Event event);
  void tick();
  void tick_at(Nanos when);
  void begin_ask(uint64_t request, Body body, std::function<void(Body)> done);
  void end_ask(uint64_t request);

  template <typename T>
  Result<T> on_loop(Nanos timeout, std::function<T()> make);

  const MasterHostOptions options_;
  const InstanceId id_;
  const Nanos started_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<Master> master_;
  std::unique_ptr<MasterServer> server_;

  // Of the loop thread.
  bool inside_ = false;  // in the state machine, which is not re-entered
  std::deque<Event> events_;
  Nanos next_tick_ = kNever;
  uint64_t tick_number_ = 0;  // the one timer that counts; others have been overtaken
  // This host's own client, that ask() speaks for. It is attached while it waits for an answer.
  const ClientId own_client_;
  std::map<uint64_t, std::function<void(Body)>> asked_;
  std::atomic<uint64_t> last_ask_{0};
};

}  // namespace tidewire::store
