// SPDX-License-Identifier: Apache-2.0
//
// Start, memory, stop. Peers and transfers are in engine_transfers.cpp, what is shown in engine_status.cpp.
#include "engine/engine.h"

#include <netdb.h>

#include "base/fork_guard.h"
#include "base/log.h"
#include "base/log_detail.h"
#include "base/thread.h"
#include "topology/machine.h"
#include "topology/rails.h"

namespace tidewire::engine {
namespace {
constexpr Nanos kCloseTime = kSecond;

// The first numeric address of a host, for the choice of rails; the host itself when it has none (the listener will say so).
std::string numeric_address(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return host;
  char text[NI_MAXHOST];
  const int failed = getnameinfo(list->ai_addr, list->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  freeaddrinfo(list);
  return failed ? host : text;
}

std::string interface_of(const topology::Machine& machine, const std::string& listening) {
  const Result<control::HostPort> address = control::parse_address(listening);
  const topology::Nic* nic = address.ok() ? topology::nic_with_address(machine, address->host) : nullptr;
  return nic ? nic->name : "any";
}
}

Engine::Engine(Settings settings)
    : settings_(std::move(settings)),
      fork_generation_(tidewire::fork_generation()),
      instance_(make_instance_id()),
      transfers_completed_(&metrics_.counter("tidewire_transfers_total", "Transfers that became terminal", {{"result", "completed"}})),
      transfers_failed_(&metrics_.counter("tidewire_transfers_total", "Transfers that became terminal", {{"result", "failed"}})),
      batch_seconds_(&metrics_.histogram("tidewire_batch_seconds", "Time from submission to the terminal state of a batch")) {}

Engine::~Engine() { close(); }

Result<std::shared_ptr<Engine>> Engine::create(const EngineOptions& options) {
  TW_ASSIGN_OR_RETURN(Settings settings, Settings::load(options.settings));
  // Of the whole process: the engine that was made last decides.
  if (const auto level = log::parse_level(settings.log_level)) log::set_level(*level);
  std::shared_ptr<Engine> engine(new Engine(std::move(settings)));
  const Status status = engine->start(options);
  if (!status.ok()) {
    engine->close();
    return status;
  }
  return engine;
}

Status Engine::start(const EngineOptions& options) {
  TW_ASSIGN_OR_RETURN(secret_, load_secret(settings_.secret_file));
  TW_ASSIGN_OR_RETURN(const control::HostPort local, control::parse_address(options.local_name));
  local_name_ = options.local_name;
  const topology::Machine machine = topology::discover();
  std::vector<std::string> infiniband;
  for (const auto& device : machine.fabrics) infiniband.push_back(device.name);
  TW_ASSIGN_OR_RETURN(const Protocol protocol, choose_protocol(options.protocol, settings_, infiniband));
  if (!protocol.note.empty()) {
    log::warn("protocol_fallback", "{}", protocol.note);
    metrics_.counter("tidewire_protocol_fallbacks_total", "Times that an asked-for protocol was replaced").add();
  }
  names_are_addresses_ = options.metadata.empty() || options.metadata == "P2PHANDSHAKE";
  TW_ASSIGN_OR_RETURN(metadata_, metadata::Metadata::connect(options.metadata.empty() ? "P2PHANDSHAKE" : options.metadata,
                                                             settings_.connect_timeout));

  // Device names of RDMA NICs mean nothing to TCP: after a fall-back the advertised address's interface is the rail.
  const std::vector<std::string> devices = protocol.fell_back ? std::vector<std::string>{} : topology::parse_device_list(options.devices);
  control::Options node_options;
  node_options.advertised = options.local_name;
  node_options.instance = instance_;
  node_options.secret = secret_;
  node_options.settings = settings_;
  std::vector<topology::RailAddress> rails;
  if (protocol.tcp && !devices.empty()) {
    TW_ASSIGN_OR_RETURN(rails, topology::choose_rails(machine, numeric_address(local.host), devices));
    for (const topology::RailAddress& rail : rails) node_options.rail_addresses.push_back(rail.address);
  }
  TW_ASSIGN_OR_RETURN(node_, control::Node::start(std::move(node_options), *this));

  if (protocol.shm) {
    auto shm = std::make_unique<transport::shm::ShmTransport>(
        regions_, transport::shm::LocalIdentity{instance_, node_->advertised_address(), secret_}, settings_, events_);
    shm_ = shm.get();
    transports_.push_back(std::move(shm));
  }
  if (protocol.tcp) {
    const std::vector<std::string> listening = node_->rail_addresses();
    std::vector<RailRecord> records;
    if (rails.empty()) {
      records.push_back({"tcp", interface_of(machine, listening[0]), listening[0], 0});
    }
    for (size_t i = 0; i < rails.size(); ++i)
      records.push_back({"tcp", rails[i].nic, listening[i + 1], rails[i].bits_per_second});
    auto dial = [this](const std::string& local_address, const std::string& remote_address, const InstanceId& expected,
                       uint64_t channel, Nanos deadline, std::function<void(Status, UniqueFd, InstanceId)> done) {
      node_->dial_data(local_address, remote_address, expected, channel, deadline,
                       [done = std::move(done)](control::Node::DataConnection connection) {
                         done(std::move(connection.status), std::move(connection.socket), connection.seen);
                       });
    };
    auto tcp = std::make_unique<transport::tcp::TcpTransport>(regions_, settings_, events_, std::move(dial), std::move(records));
    tcp_ = tcp.get();
    transports_.push_back(std::move(tcp));
  }
  record_.protocol_version = control::kProtocolVersion;
  record_.instance = instance_;
  record_.name = node_->advertised_address();
  record_.process_id = static_cast<uint32_t>(getpid());
  if (shm_) {
    record_.host_id = transport::shm::host_id();
    record_.same_host_socket = shm_->socket_name();
  }
  for (const auto& transport : transports_)
    for (RailRecord& rail : transport->rails()) record_.rails.push_back(std::move(rail));
  no_peer_ = std::make_shared<Peer>(static_cast<Peer::Host&>(*this), "(no peer)", SessionOptions{}, std::vector<TransportTraits>{}, 0);
  node_->serve();

  if (!names_are_addresses_) {
    resolver_ = start_thread("tw-resolver", [this] { resolver_loop(); });
    TW_RETURN_IF_ERROR(metadata_->publish(local_name_, node_->advertised_address(), instance_));
  }
  serve_metrics(settings_.metrics, metrics_, &metrics_server_);
  status_socket_ = std::make_unique<StatusSocket>([this] { return status_json(); });
  const Status status = status_socket_->start();
  if (!status.ok()) log::info("status_socket", "code={} text=\"{}\"", code_name(status.code()), status.message());
  return {};
}

void Engine::close() {
  std::lock_guard lock(close_mutex_);
  if (closed_.exchange(true)) return;
  const Nanos until = monotonic_now() + kCloseTime;
  const std::vector<PeerPtr> peers = all_peers();
  for (const PeerPtr& peer : peers) peer->shut_down(Status(Code::kClosed, "the engine is closing"));
  for (const PeerPtr& peer : peers) peer->wait_idle(until);
  if (!names_are_addresses_ && node_) (void)metadata_->withdraw(local_name_, instance_);
  if (status_socket_) status_socket_->stop();
  metrics_server_.stop();
  {
    std::lock_guard resolver_lock(resolver_mutex_);
    resolver_stop_ = true;
  }
  resolver_wake_.notify_all();
  if (resolver_.joinable()) resolver_.join();
  // The transports first: a peer takes a refused control connection for proof that nothing of its writes can be placed here any more.
  for (const auto& transport : transports_) transport->stop();
  if (node_) node_->stop();
  regions_.clear();
  inbox_filled_.notify_all();
}

Status Engine::check_open() const {
  if (closed_.load(std::memory_order_acquire)) return Status(Code::kClosed, "the engine is closed");
  return {};
}

Status Engine::register_memory(uint64_t address, uint64_t length, const std::string& location, Permission permission) {
  TW_RETURN_IF_ERROR(check_open());
  return regions_.add(address, length, location, permission);
}

Status Engine::register_many(const std::vector<RegionTable::Range>& ranges, const std::string& location, Permission permission) {
  TW_RETURN_IF_ERROR(check_open());
  return regions_.add_many(ranges, location, permission);
}

Status Engine::unregister_memory(uint64_t address) {
  TW_RETURN_IF_ERROR(check_open());
  return regions_.remove(address);
}

Status Engine::unregister_many(const std::vector<uint64_t>& addresses) {
  TW_RETURN_IF_ERROR(check_open());
  return regions_.remove_many(addresses);
}

Result<uint64_t> Engine::allocate(uint64_t length, const std::string& location) {
  TW_RETURN_IF_ERROR(check_open());
  TW_ASSIGN_OR_RETURN(const PoolAllocation allocation, pool_.allocate(length, location));
  const Status status =
      regions_.add(allocation.address, allocation.length, allocation.location, Permission::kReadWrite, allocation.backing);
  if (!status.ok()) {
    (void)pool_.free(allocation.address);
    return status;
  }
  return allocation.address;
}

Result<uint64_t> Engine::reserve(uint64_t length) {
  TW_RETURN_IF_ERROR(check_open());
  return pool_.reserve(length);
}

Status Engine::grow(uint64_t address, uint64_t length, const std::string& location) {
  TW_RETURN_IF_ERROR(check_open());
  TW_ASSIGN_OR_RETURN(const PoolAllocation allocation, pool_.allocate(length, location, address));
  const Status status = regions_.add(allocation.address, allocation.length, allocation.location, Permission::kReadWrite, allocation.backing);
  if (!status.ok()) (void)pool_.free(allocation.address);
  return status;
}

bool Engine::covers(uint64_t address, uint64_t length) {
  RangeHold hold;
  return regions_.use(address, length, Access::kLocal, hold).ok();
}

Status Engine::free(uint64_t address) {
  // Also after close: the memory stays usable by its owner until it is freed here or with the engine.
  if (check_open().ok()) TW_RETURN_IF_ERROR(regions_.remove(address));
  return pool_.free(address);
}

Status Engine::copy(uint64_t registered, void* memory, uint64_t length, bool to_registered) {
  TW_RETURN_IF_ERROR(check_open());
  if (length == 0) return {};
  RangeHold hold;
  TW_RETURN_IF_ERROR(regions_.use(registered, length, Access::kLocal, hold));
  Status status;
  uint8_t* bytes = static_cast<uint8_t*>(memory);
  hold.for_each_part(registered, length, [&](Region& region, uint64_t address, uint64_t part) {
    if (!status.ok()) return;
    RegionPin pin(region);
    if (!pin.valid()) {
      status = Status::error(Code::kNotRegistered, "region [{:#x}, +{}) was unregistered during the copy", region.address, region.length);
    } else {
      status = to_registered ? region.kind->copy_from_host(address, bytes, part) : region.kind->copy_to_host(bytes, address, part);
    }
    bytes += part;
  });
  return status;
}

PeerRecord Engine::local_record() {
  return record_;
}

Result<control::FirstRegion> Engine::first_region() {
  const std::shared_ptr<Region> region = regions_.first();
  if (!region) return Status(Code::kNotFound, "the peer has no registered region");
  return control::FirstRegion{region->address, region->length};
}

void Engine::on_data_connection(UniqueFd socket, control::DataHello hello) {
  if (tcp_)
    tcp_->accept(std::move(socket), hello.initiator, hello.initiator_name, hello.channel, hello.rail);
}

}  // namespace tidewire::engine
