// SPDX-License-Identifier: Apache-2.0
//
// Target: this process's side of the copies that peers make in its memory. It proves itself to initiators and checks
// their proof, tells them regions, passes the files of pool memory, and closes regions before they go (guard.h).
//
// Runs on the loop's thread, except for region_added and region_removing, which the region table calls from any thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "memory/region.h"
#include "transport/shm/guard.h"
#include "transport/shm/handshake.h"
#include "transport/shm/local_socket.h"
#include "transport/shm/loop.h"
#include "transport/shm/wire.h"

namespace tidewire::transport::shm {

// Who this engine is.
struct LocalIdentity {
  InstanceId instance{};
  std::string name;    // advertised "host:port", for messages
  std::string secret;  // empty = none
};

class Target : public RegionTable::Observer {
 public:
  // Listens on `socket_name`. `loop` must outlive the target; the target must be destroyed after the loop stopped.
  static Result<std::unique_ptr<Target>> start(Loop& loop, RegionTable& regions, const LocalIdentity& identity,
                                               const std::string& socket_name);
  ~Target() override;

  Status region_added(Region& region) override;
  void region_removing(Region& region, Nanos deadline) override;

  // Waits until no copy of this initiator (zero: of any) is under way. Not on the loop's thread. False at the deadline.
  bool silence(const InstanceId& initiator, Nanos deadline);
  // Closes all regions to peers, waits (bounded) for their copies. No peer is served any more. Not on the loop's
  // thread.
  void stop(Nanos deadline);
  // Closes all sockets: peers hear of the end. Once the loop's thread has ended.
  void disconnect();

  struct Figures {
    size_t peers = 0;
    uint64_t lookups = 0;
    uint64_t refused = 0;  // connections
  };
  Figures figures() const;

 private:
  struct Peer;
  // What removers need of a peer; outlives it.
  struct PeerReferences {
    std::unique_ptr<ReferencePage> page;
    std::atomic<bool> gone{false};
    pid_t pid = 0;
    std::string instance;
    std::weak_ptr<Peer> peer;  // on the loop's thread
  };

  Target(Loop& loop, RegionTable& regions, const LocalIdentity& identity)
      : loop_(loop), regions_(regions), identity_(identity) {}
  bool accept_all();
  void serve(UniqueFd socket);
  bool on_packets(const std::shared_ptr<Peer>& peer);
  Status on_packet(Peer& peer, const std::vector<uint8_t>& bytes);
  Status on_hello(Peer& peer, const Hello& hello);
  Status on_proof(Peer& peer, const Proof& proof);
  Status on_lookup(Peer& peer, const Lookup& lookup);
  void describe_region(Peer& peer, uint64_t asked, RegionInfo* info, std::vector<UniqueFd>* opened,
                       std::vector<int>* files, RangeHold* hold);
  void refuse(Peer& peer, const Status& why);
  void drop(const std::shared_ptr<Peer>& peer, const Status& why);
  void forget_file(uint64_t inode);
  void send_forgets(const std::shared_ptr<Peer>& peer);
  static bool wait_for_copies(const PeerReferences& peer, uint32_t first, uint32_t last, Nanos deadline);
  bool wait_for_references(uint32_t first, uint32_t last, Nanos deadline, const std::string& what);

  Loop& loop_;
  RegionTable& regions_;
  const LocalIdentity identity_;
  std::unique_ptr<StatePage> state_;
  UniqueFd state_for_peers_;  // opened for reading only
  alignas(8) uint8_t probe_[32];

  // On the loop's thread.
  std::unique_ptr<Watch> listener_;
  std::unique_ptr<Timer> listen_again_;
  std::set<std::shared_ptr<Peer>> peers_;
  size_t strangers_ = 0;  // peers whose handshake is not done

  std::mutex state_mutex_;  // StatePage::ensure
  std::mutex references_mutex_;
  std::vector<std::shared_ptr<PeerReferences>> references_;
  std::atomic<uint32_t> slots_used_{0};
  std::atomic<bool> stopped_{false};
  std::atomic<size_t> peer_count_{0};
  std::atomic<uint64_t> lookups_{0};
  std::atomic<uint64_t> refused_{0};
};

}  // namespace tidewire::transport::shm
