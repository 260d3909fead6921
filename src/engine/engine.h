// SPDX-License-Identifier: Apache-2.0
//
// Engine: one per process or several. It owns the regions, the transports, the place on the control plane, the peers and the inbox of notifications, and ties them
// together; what is decided about a peer is the Session's. Thread-safe. Created and held by shared_ptr; close() ends it, the last reference frees it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/http_exposition.h"
#include "base/metrics.h"
#include "base/settings.h"
#include "base/status_socket.h"
#include "control/node.h"
#include "engine/batch.h"
#include "engine/peer.h"
#include "engine/protocol.h"
#include "memory/pool.h"
#include "metadata/metadata.h"
#include "transport/shm/host_id.h"
#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_transport.h"

namespace tidewire::engine {

struct EngineOptions {
  std::string local_name = "127.0.0.1";
  std::string metadata = "P2PHANDSHAKE";
  std::string protocol = "auto";
  std::string devices;
  std::vector<std::string> settings;
};

struct SubmitOptions {
  Nanos deadline = 0;  // from now; 0 = transfer.timeout plus 1 ns per byte
  bool notify = false;
  std::string notify_name;
  std::string notify_message;
};

class Engine : public std::enable_shared_from_this<Engine>, private control::Handler, private Peer::Host {
 public:
  static Result<std::shared_ptr<Engine>> create(const EngineOptions& options);
  ~Engine() override;
  void close();

  const InstanceId& instance() const { return instance_; }
  // Equal for the engines of one host (its boot).
  const std::string& host_id() const { return transport::shm::host_id(); }
  std::string address() const { return node_->advertised_address(); }
  uint16_t port() const { return node_->port(); }
  const Settings& settings() const { return settings_; }
  uint32_t made_in_fork_generation() const { return fork_generation_; }

  Status register_memory(uint64_t address, uint64_t length, const std::string& location, Permission permission);
  Status register_many(const std::vector<RegionTable::Range>& ranges, const std::string& location, Permission permission);
  Status unregister_memory(uint64_t address);
  Status unregister_many(const std::vector<uint64_t>& addresses);
  Result<uint64_t> allocate(uint64_t length, const std::string& location);
  Status free(uint64_t address);
  // Address space for memory that comes piece by piece: grow() makes `length` bytes from `address` (a multiple of 2 MiB) on registered memory as of allocate(), and
  // free() of each piece's address gives it back. The address space itself is given back with the engine.
  Result<uint64_t> reserve(uint64_t length);
  Status grow(uint64_t address, uint64_t length, const std::string& location);
  // Whether registered memory covers the range.
  bool covers(uint64_t address, uint64_t length);
  // Between process memory and registered memory of any kind; to_registered: process → registered.
  Status copy(uint64_t registered, void* memory, uint64_t length, bool to_registered);

  // Gets into contact (bounded by the connect timeout) and returns the peer.
  Result<PeerPtr> open(const std::string& name);
  // The peer without contact: its first transfer makes it.
  Result<PeerPtr> peer(const std::string& name);
  Status probe(const std::string& name, Nanos timeout);
  // As a target: returns once nothing that this initiator (zero: any) sent before can be placed in local memory any more; false when that could not be had in time.
  bool silence(const InstanceId& initiator, Nanos timeout);
  Result<control::FirstRegion> first_region(const PeerPtr& peer);

  Result<BatchPtr> submit(const std::vector<TransferSpec>& transfers, const SubmitOptions& options);
  // One peer, one direction, `count` transfers given by get(i) → (local, remote, length).
  Result<BatchPtr> submit_lists(const PeerPtr& peer, transport::Opcode opcode, const uint64_t* local, const uint64_t* remote,
                                const uint64_t* lengths, uint64_t count, const SubmitOptions& options);

  Status notify(const PeerPtr& peer, const std::string& name, const std::string& message, Nanos timeout);
  std::vector<control::Notification> take_notifications();
  bool wait_notifications(Nanos until);

  std::string status_json();

 private:
  // Routes the events of one transport to the peers of its channels.
  class TransportEvents : public transport::Events {
   public:
    explicit TransportEvents(Engine& engine) : engine_(engine) {}
    void on_channel_up(transport::ChannelId channel) override;
    void on_channel_down(transport::ChannelId channel, const Status& why, const InstanceId& seen) override;
    void on_slice_done(transport::ChannelId channel, const transport::SlicePtr& slice, const Status& status) override;
    void on_revoked(transport::ChannelId victim) override;

   private:
    Engine& engine_;
  };

  explicit Engine(Settings settings);
  Status start(const EngineOptions& options);
  TransportTraits traits_of(transport::Transport& transport);
  PeerPtr peer_of(transport::ChannelId channel) const;
  std::vector<PeerPtr> all_peers() const;
  Nanos deadline_of(const SubmitOptions& options, Nanos now, uint64_t bytes) const;
  BatchPtr start_batch(std::vector<Batch::Part> parts, std::vector<std::pair<uint32_t, uint32_t>> index, uint64_t count, Nanos now,
                       const SubmitOptions& options, const PeerPtr& notify_peer);
  void account(Batch& batch);
  Status check_open() const;
  Status check_notification(size_t length) const;

  // control::Handler
  PeerRecord local_record() override;
  Result<control::FirstRegion> first_region() override;
  Status on_notification(control::Notification notification) override;
  void on_data_connection(UniqueFd socket, control::DataHello hello) override;
  void on_peer_closed(const std::string& address, const InstanceId& instance, const Status& why) override;

  // Peer::Host
  transport::Transport& transport(uint32_t index) override { return *transports_[index]; }
  RegionTable& regions() override { return regions_; }
  void fetch_record(const PeerPtr& peer, Nanos deadline, std::function<void(Result<PeerRecord>)> done) override;
  void run_at(Nanos when, std::function<void()> task) override { node_->run_at(when, std::move(task)); }

  const Settings settings_;
  const uint32_t fork_generation_;
  const InstanceId instance_;
  std::string local_name_;
  std::string secret_;
  std::atomic<bool> closed_{false};
  std::mutex close_mutex_;

  Metrics metrics_;
  HttpExposition metrics_server_;
  std::unique_ptr<StatusSocket> status_socket_;
  RegionTable regions_;
  Pool pool_;
  std::unique_ptr<metadata::Metadata> metadata_;
  bool names_are_addresses_ = true;
  TransportEvents events_{*this};
  std::unique_ptr<control::Node> node_;
  std::vector<std::unique_ptr<transport::Transport>> transports_;  // preferred first
  transport::tcp::TcpTransport* tcp_ = nullptr;
  transport::shm::ShmTransport* shm_ = nullptr;
  PeerRecord record_;

  mutable std::shared_mutex peers_mutex_;
  std::map<std::string, PeerPtr> peers_by_name_;
  std::vector<PeerPtr> peers_;
  PeerPtr no_peer_;  // carries transfers whose peer is invalid

  std::mutex inbox_mutex_;
  std::condition_variable inbox_filled_;
  std::deque<control::Notification> inbox_;

  // Resolves names of metadata services, whose clients block, off the control thread.
  std::mutex resolver_mutex_;
  std::condition_variable resolver_wake_;
  std::deque<std::function<void()>> resolver_tasks_;
  bool resolver_stop_ = false;
  std::thread resolver_;
  void resolver_loop();

  Counter* transfers_completed_;
  Counter* transfers_failed_;
  Histogram* batch_seconds_;
  std::mutex errors_mutex_;
  std::deque<std::string> last_errors_;
};

}  // namespace tidewire::engine
