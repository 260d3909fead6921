// SPDX-License-Identifier: Apache-2.0
//
// Life: engine, link, membership, segments.
#include "store/client/client.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "base/thread.h"
#include "memory/memory_kind.h"

namespace tidewire::store {
namespace {
// Engines that a store of this process is on: the engine's instance is the client's identity, so that each can have
// one.
std::mutex served_mutex;
std::set<InstanceId>& served() {
  static auto* const instances = new std::set<InstanceId>;
  return *instances;
}
constexpr uint64_t kGrowAlignment = 2 << 20;
constexpr uint64_t kFirstChunk = 64 << 20;  // ready within a few tens of milliseconds, so that puts can start
constexpr uint64_t kChunk = 1 << 30;
constexpr uint64_t kProgressFrom = 10ull << 30;
constexpr Nanos kQuietPatience =
    2 * kSecond;  // one attempt to silence a writer; repeated until it is silent or its process has ended
}  // namespace

Client::Client(ClientOptions options) : options_(std::move(options)) {}

Result<std::shared_ptr<Client>> Client::create(ClientOptions options) {
  std::shared_ptr<Client> client(new Client(std::move(options)));
  const Status status = client->start();
  if (!status.ok()) {
    client->close();
    return status;
  }
  return client;
}

Status Client::start() {
  engine_ = options_.engine;
  if (!engine_) {
    engine::EngineOptions wanted;
    wanted.local_name = options_.local_name;
    wanted.metadata = options_.metadata;
    wanted.protocol = options_.protocol;
    wanted.devices = options_.devices;
    wanted.settings = options_.settings;
    TW_ASSIGN_OR_RETURN(engine_, engine::Engine::create(wanted));
    own_engine_ = true;
  }
  timeout_ = engine_->settings().store_timeout;
  {
    std::lock_guard lock(served_mutex);
    if (!served().insert(engine_->instance()).second)
      return Status::error(tidewire::Code::kBusy,
                           "the engine {} has a store already: give each store an engine of its own",
                           engine_->address());
  }
  id_ = engine_->instance();
  name_ = engine_->address();
  TW_RETURN_IF_ERROR(staging_.start(*engine_, options_.local_buffer_bytes));

  membership_ = std::make_unique<Membership>(id_, name_, engine_->host_id(), static_cast<Membership::Io&>(*this));
  MasterLink::Options link;
  link.master = options_.master;
  link.name = name_;
  link.instance = id_;
  link.connect_timeout = engine_->settings().connect_timeout;
  TW_ASSIGN_OR_RETURN(link.secret, load_secret(engine_->settings().secret_file));
  TW_ASSIGN_OR_RETURN(link_, MasterLink::create(std::move(link), *this));
  TW_RETURN_IF_ERROR(link_->start());
  worker_ = start_thread("tw-store-work", [this] { work(); });

  if (!wait_attached(monotonic_now() + timeout_)) {
    // Why: a call that waits for the connection tells.
    const Result<Body> answer = link_->call_and_wait(Heartbeat{}, monotonic_now() + 10 * kMillisecond);
    return Status::error(
        tidewire::Code::kUnreachable,
        "the store's master {} did not answer within {} ms: {}; start it with `tidewire master` or correct the address",
        options_.master, timeout_ / kMillisecond,
        answer.ok() ? "it does not take this client" : answer.status().message());
  }
  if (options_.segment_bytes == 0) return Status();
  uint32_t ordinal = 0;
  return lend(options_.segment_bytes, "*", &ordinal);
}

Client::~Client() {
  close();
}

void Client::close() {
  if (closed_.exchange(true)) return;
  {
    std::lock_guard lock(work_mutex_);
    work_stop_ = true;
    work_wake_.notify_all();
  }
  if (grower_.joinable()) grower_.join();
  if (worker_.joinable()) worker_.join();
  if (link_ && attached_.load()) {
    std::vector<uint32_t> ordinals;
    {
      std::lock_guard lock(segments_mutex_);
      for (const auto& [ordinal, segment] : segments_) ordinals.push_back(ordinal);
    }
    // The master learns that the replicas are gone; readers go elsewhere at once.
    for (const uint32_t ordinal : ordinals) (void)link_->call_and_wait(Unmount{ordinal}, monotonic_now() + kSecond / 2);
  }
  if (link_) link_->stop();
  if (!engine_) return;
  if (id_ != ClientId{}) {
    std::lock_guard lock(served_mutex);
    served().erase(id_);
  }
  if (own_engine_) {
    engine_->close();
  } else {
    std::lock_guard lock(segments_mutex_);
    for (const auto& [ordinal, segment] : segments_) {
      for (const uint64_t address : segment.allocations) (void)engine_->free(address);
      if (segment.registered_here) (void)engine_->unregister_memory(segment.base);
    }
    staging_.stop();
  }
}

// ---- the link's thread
// -----------------------------------------------------------------------------------------------------------------

void Client::ask(Body request, std::function<void(const Body*)> done) {
  link_->call(std::move(request), monotonic_now() + 10 * kSecond, [this, done = std::move(done)](Result<Body> answer) {
    done(answer.ok() ? &*answer : nullptr);
    tick();
  });
}

void Client::on_up() {
  membership_->on_connected(monotonic_now());
  tick();
}

void Client::on_down(const Status& why) {
  log::warn("store_master_lost", "lost the master {}: {}; trying again", options_.master, why.message());
  membership_->on_disconnected();
}

void Client::on_request(uint64_t request, Body body) {
  membership_->on_request(request, body, monotonic_now());
  tick();
}

void Client::on_standing() {
  std::lock_guard lock(standing_mutex_);
  attached_.store(membership_->attached());
  standing_changed_.notify_all();
}

void Client::tick() {
  const Nanos next = membership_->tick(monotonic_now());
  if (next == kNever || next == ticking_at_) return;
  ticking_at_ = next;
  link_->run_at(next, [this, next] {
    if (ticking_at_ == next) {
      ticking_at_ = kNever;
      tick();
    }
  });
}

void Client::quiet(const Quiet& wish, std::function<void()> done) {
  const ClientId writer = wish.writer;
  std::lock_guard lock(work_mutex_);
  work_queue_.push_back([this, writer, done = std::move(done)] {
    if (writer == id_ || writer == ClientId{}) std::unique_lock wait(own_copies_);
    while (!engine_->silence(writer, kQuietPatience)) {
      std::lock_guard stop(work_mutex_);
      if (work_stop_) return;
    }
    link_->post(done);
  });
  work_wake_.notify_one();
}

void Client::work() {
  std::unique_lock lock(work_mutex_);
  while (true) {
    work_wake_.wait(lock, [this] { return work_stop_ || !work_queue_.empty(); });
    if (work_stop_) return;
    const auto task = std::move(work_queue_.front());
    work_queue_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

void Client::pause(Nanos time) {
  std::unique_lock lock(standing_mutex_);
  standing_changed_.wait_for(lock, std::chrono::nanoseconds(time), [this] { return closed_.load(); });
}

bool Client::wait_attached(Nanos until) {
  std::unique_lock lock(standing_mutex_);
  while (!attached_.load()) {
    const Nanos left = until - monotonic_now();
    if (left <= 0 || closed_.load()) return false;
    standing_changed_.wait_for(lock, std::chrono::nanoseconds(left));
  }
  return true;
}

// ---- segments
// --------------------------------------------------------------------------------------------------------------------------

// The first chunk is lent before this returns, the rest while it is in use.
Status Client::lend(uint64_t length, const std::string& location, uint32_t* ordinal) {
  length = (length + kGrowAlignment - 1) / kGrowAlignment * kGrowAlignment;
  TW_ASSIGN_OR_RETURN(const uint64_t base, engine_->reserve(length));
  {
    std::lock_guard lock(segments_mutex_);
    *ordinal = next_ordinal_++;
    segments_[*ordinal].base = base;
  }
  const uint64_t first = std::min(length, kFirstChunk);
  TW_RETURN_IF_ERROR(engine_->grow(base, first, location));
  announce(*ordinal, first);
  if (first == length) return Status();
  const uint32_t number = *ordinal;
  if (grower_.joinable()) grower_.join();
  ++growing_;
  grower_ = start_thread("tw-store-grow", [this, number, length, location] {
    grow(number, length, location);
    --growing_;
  });
  return Status();
}

void Client::grow(uint32_t ordinal, uint64_t length, const std::string& location) {
  uint64_t base = 0, ready = 0;
  {
    std::lock_guard lock(segments_mutex_);
    base = segments_[ordinal].base;
    ready = segments_[ordinal].ready;
  }
  const Nanos begun = monotonic_now();
  Nanos told = begun;
  while (ready < length && !closed_.load()) {
    const uint64_t chunk = std::min(length - ready, kChunk);
    if (const Status status = engine_->grow(base + ready, chunk, location); !status.ok()) {
      log::error("store_segment", "the segment stays at {} of {} bytes: {}", ready, length, status.message());
      return;
    }
    ready += chunk;
    announce(ordinal, ready);
    const Nanos now = monotonic_now();
    if (length >= kProgressFrom && (now - told > 2 * kSecond || ready == length)) {
      told = now;
      log::warn("store_segment", "segment ready: {:.1f} of {:.1f} GB after {:.1f} s", static_cast<double>(ready) / 1e9,
                static_cast<double>(length) / 1e9, static_cast<double>(now - begun) / 1e9);
    }
  }
}

// Waits until the master knows, so that a put that follows finds room.
void Client::announce(uint32_t ordinal, uint64_t ready) {
  SegmentInfo info;
  {
    std::lock_guard lock(segments_mutex_);
    Segment& segment = segments_[ordinal];
    if (segment.allocations.empty() || segment.ready < ready)
      segment.allocations.push_back(segment.base + segment.ready);
    segment.ready = ready;
    info = {ordinal, name_, segment.base, ready};
  }
  auto told = std::make_shared<Told>();
  link_->post([this, info, told] { membership_->mount(info, monotonic_now(), [told] { told->set(); }); });
  told->wait();
}

Result<uint32_t> Client::mount(uint64_t address, uint64_t length, const std::string& location) {
  if (closed_.load()) return Status(tidewire::Code::kClosed, "the store is closed");
  if (length == 0) return Status(tidewire::Code::kInvalidArgument, "a segment of 0 bytes; give at least 1");
  uint32_t ordinal = 0;
  if (address == 0) {
    TW_RETURN_IF_ERROR(lend(length, location, &ordinal));
    return ordinal;
  }
  TW_RETURN_IF_ERROR(
      engine_->register_memory(address, length, location.empty() ? "*" : location, Permission::kReadWrite));
  {
    std::lock_guard lock(segments_mutex_);
    ordinal = next_ordinal_++;
    Segment& segment = segments_[ordinal];
    segment.base = address;
    segment.registered_here = true;
  }
  announce(ordinal, length);
  return ordinal;
}

Status Client::unmount(uint32_t ordinal) {
  Segment segment;
  {
    std::lock_guard lock(segments_mutex_);
    const auto found = segments_.find(ordinal);
    if (found == segments_.end())
      return Status::error(tidewire::Code::kNotFound, "this client lends no segment {}", ordinal);
    segment = std::move(found->second);
    segments_.erase(found);
  }
  auto told = std::make_shared<Told>();
  link_->post([this, ordinal, told] { membership_->unmount(ordinal, [told] { told->set(); }); });
  told->wait();
  if (segment.registered_here) return engine_->unregister_memory(segment.base);
  for (const uint64_t address : segment.allocations) TW_RETURN_IF_ERROR(engine_->free(address));
  return Status();
}

Status Client::register_memory(uint64_t address, uint64_t length) {
  return engine_->register_memory(address, length, "*", Permission::kReadWrite);
}
Status Client::unregister_memory(uint64_t address) {
  return engine_->unregister_memory(address);
}

Status Client::release(uint64_t address) {
  if (staging_.release(address)) return Status();
  return Status::error(tidewire::Code::kNotFound, "{:#x} was not allocated from this store", address);
}

engine::PeerPtr Client::peer(const std::string& endpoint) {
  {
    std::shared_lock lock(peers_mutex_);
    const auto found = peers_.find(endpoint);
    if (found != peers_.end()) return found->second;
  }
  Result<engine::PeerPtr> peer = engine_->peer(endpoint);
  if (!peer.ok()) return nullptr;
  std::unique_lock lock(peers_mutex_);
  return peers_[endpoint] = *peer;
}

engine::TransferSpec Client::transfer(transport::Opcode opcode, const Usable& memory, uint64_t from, const Place& place,
                                      uint64_t offset, uint64_t length) {
  const engine::PeerPtr owner = peer(place.endpoint);
  Status bad;
  if (!owner) bad = Status::error(tidewire::Code::kUnreachable, "{} is no address of a peer", place.endpoint);
  if (!memory.ok()) bad = Status(tidewire::Code::kNoMemory, "no registered memory to stage a value");
  return {opcode, memory.address() + from, place.address + offset, length, owner, bad};
}

bool Client::touchable(const std::string& key, const std::vector<Part>& parts) {
  for (const Part& part : parts)
    if (!processor_may_touch(part.address, part.length)) {
      log::warn(
          "store_device_memory",
          "{}: {} bytes at {:#x} are device memory, which the store does not take yet; copy them to host memory first",
          key, part.length, part.address);
      return false;
    }
  return true;
}

std::string Client::status_json() {
  nlohmann::ordered_json status = {{"name", name_}, {"master", options_.master}, {"in_contact", in_contact()}};
  std::lock_guard lock(segments_mutex_);
  for (const auto& [ordinal, segment] : segments_)
    status["segments"].push_back({{"ordinal", ordinal}, {"base", segment.base}, {"ready", segment.ready}});
  return status.dump();
}

}  // namespace tidewire::store
