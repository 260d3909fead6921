// SPDX-License-Identifier: Apache-2.0
//
// Peers, batches and notifications.
#include "base/log.h"
#include "engine/engine.h"

namespace tidewire::engine {
namespace {

// Channel ids carry their peer's number (from 1) in the upper half.
transport::ChannelId first_channel_of(size_t peer_index) { return (static_cast<uint64_t>(peer_index) + 1) << 32 | 1; }

// Blocks for an answer that comes by callback; the caller's deadline bounds the wait on the control plane's side.
template <typename T>
class Answer {
 public:
  void set(T value) {
    std::lock_guard lock(mutex_);
    value_.emplace(std::move(value));
    set_.notify_all();
  }
  T wait() {
    std::unique_lock lock(mutex_);
    set_.wait(lock, [this] { return value_.has_value(); });
    return std::move(*value_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable set_;
  std::optional<T> value_;
};

// An end that would overflow the address space.
bool wraps(uint64_t address, uint64_t length) { return length > 0 && address > UINT64_MAX - length; }

Status check_range(const Transfer& transfer) {
  if (wraps(transfer.local, transfer.length))
    return Status::error(Code::kInvalidArgument, "local range {:#x}+{} wraps around the address space", transfer.local, transfer.length);
  if (wraps(transfer.remote, transfer.length))
    return Status::error(Code::kInvalidArgument, "remote range {:#x}+{} wraps around the address space", transfer.remote, transfer.length);
  return {};
}

void refuse(Job& job, Transfer& transfer, const Status& why) {
  transfer.code.store(static_cast<uint8_t>(why.code()), std::memory_order_relaxed);
  if (job.error.ok()) job.error = why;
}

}  // namespace

TransportTraits Engine::traits_of(transport::Transport& transport) {
  TransportTraits traits;
  traits.name = std::string(transport.name());
  traits.pairs = [&transport](const PeerRecord& record) {
    return transport.reaches(record) ? transport.pair_rails(record) : std::vector<std::pair<uint32_t, uint32_t>>{};
  };
  traits.lanes_per_pair = transport.lanes_per_pair();
  traits.needs_revocation = transport.needs_revocation();
  traits.slice_pieces = static_cast<uint64_t>(settings_.slice_pieces);
  if (transport.needs_revocation()) {
    traits.slice_bytes = static_cast<uint64_t>(settings_.slice_bytes);
    traits.window_bytes = static_cast<uint64_t>(settings_.lane_window_bytes);
  } else {
    // Copies on this host are cut by the transport itself and need no window.
    traits.slice_bytes = 64 << 20;
    traits.window_bytes = 256 << 20;
    traits.slice_pieces = 65'536;
  }
  struct RailSeries {
    Counter* bytes[2];
    Counter* slices[2];
  };
  auto series = std::make_shared<std::vector<RailSeries>>();
  for (const RailRecord& rail : transport.rails()) {
    RailSeries one;
    for (const int opcode : {TW_READ, TW_WRITE}) {
      const Metrics::Labels labels{{"transport", rail.transport}, {"rail", rail.name}, {"direction", opcode == TW_READ ? "read" : "write"}};
      one.bytes[opcode] = &metrics_.counter("tidewire_bytes_total", "Bytes moved by transfers of this engine", labels);
      one.slices[opcode] = &metrics_.counter("tidewire_slices_total", "Operations posted and completed", labels);
    }
    series->push_back(one);
  }
  traits.on_slice = [series](uint32_t rail, transport::Opcode opcode, uint64_t bytes, Nanos) {
    if (rail >= series->size()) return;
    (*series)[rail].bytes[static_cast<int>(opcode)]->add(bytes);
    (*series)[rail].slices[static_cast<int>(opcode)]->add();
  };
  return traits;
}

Result<PeerPtr> Engine::peer(const std::string& name) {
  TW_RETURN_IF_ERROR(check_open());
  {
    std::shared_lock lock(peers_mutex_);
    const auto found = peers_by_name_.find(name);
    if (found != peers_by_name_.end()) return found->second;
  }
  if (names_are_addresses_) {
    TW_ASSIGN_OR_RETURN(const control::HostPort parsed, control::parse_address(name));
    if (!parsed.has_port || parsed.port == 0)
      return Status::error(Code::kInvalidArgument, "bad address '{}': a peer needs host:port", name);
    if (control::is_wildcard(parsed.host))
      return Status::error(Code::kInvalidArgument, "bad address '{}': a wildcard is no peer; name one address of it", name);
  }
  SessionOptions options;
  options.peer_name = name;
  options.connect_timeout = settings_.connect_timeout;
  options.probe_interval = settings_.probe_interval;
  std::vector<TransportTraits> traits;
  for (const auto& transport : transports_) traits.push_back(traits_of(*transport));
  std::unique_lock lock(peers_mutex_);
  PeerPtr& peer = peers_by_name_[name];
  if (!peer) {
    peer = std::make_shared<Peer>(static_cast<Peer::Host&>(*this), name, std::move(options), std::move(traits), first_channel_of(peers_.size()));
    peers_.push_back(peer);
  }
  return peer;
}

Result<PeerPtr> Engine::open(const std::string& name) {
  TW_ASSIGN_OR_RETURN(PeerPtr peer, this->peer(name));
  // Resolution of a name and the fetch may each take a connect timeout.
  TW_RETURN_IF_ERROR(peer->contact(monotonic_now() + 3 * settings_.connect_timeout));
  return peer;
}

PeerPtr Engine::peer_of(transport::ChannelId channel) const {
  std::shared_lock lock(peers_mutex_);
  const size_t index = (channel >> 32) - 1;
  return index < peers_.size() ? peers_[index] : nullptr;
}

std::vector<PeerPtr> Engine::all_peers() const {
  std::shared_lock lock(peers_mutex_);
  return peers_;
}

void Engine::TransportEvents::on_channel_up(transport::ChannelId channel) {
  if (const PeerPtr peer = engine_.peer_of(channel)) peer->channel_up(channel);
}

void Engine::TransportEvents::on_channel_down(transport::ChannelId channel, const Status& why, const InstanceId& seen) {
  if (const PeerPtr peer = engine_.peer_of(channel)) peer->channel_down(channel, why, seen);
}

void Engine::TransportEvents::on_slice_done(transport::ChannelId channel, const transport::SlicePtr& slice, const Status& status) {
  if (const PeerPtr peer = engine_.peer_of(channel)) peer->slice_done(channel, std::static_pointer_cast<JobSlice>(slice), status);
}

void Engine::TransportEvents::on_revoked(transport::ChannelId victim) {
  if (const PeerPtr peer = engine_.peer_of(victim)) peer->revoked(victim);
}

void Engine::on_peer_closed(const std::string&, const InstanceId& instance, const Status&) {
  for (const PeerPtr& peer : all_peers()) peer->peer_closed(instance);
}

void Engine::resolver_loop() {
  std::unique_lock lock(resolver_mutex_);
  while (true) {
    resolver_wake_.wait(lock, [this] { return resolver_stop_ || !resolver_tasks_.empty(); });
    if (resolver_stop_) return;
    auto task = std::move(resolver_tasks_.front());
    resolver_tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

void Engine::fetch_record(const PeerPtr& peer, Nanos deadline, std::function<void(Result<PeerRecord>)> done) {
  if (names_are_addresses_) return node_->fetch_record(peer->name(), deadline, std::move(done));
  std::lock_guard lock(resolver_mutex_);
  if (resolver_stop_) return;
  resolver_tasks_.push_back([this, peer, done = std::move(done)] {
    Result<std::string> address = metadata_->resolve(peer->name());
    if (!address.ok()) return done(address.status());
    peer->set_address(*address);
    node_->fetch_record(*address, monotonic_now() + settings_.connect_timeout, done);
  });
  resolver_wake_.notify_one();
}

Status Engine::probe(const std::string& name, Nanos timeout) {
  TW_ASSIGN_OR_RETURN(const PeerPtr peer, this->peer(name));
  if (!names_are_addresses_) {
    TW_ASSIGN_OR_RETURN(std::string address, metadata_->resolve(name));
    peer->set_address(std::move(address));
  }
  auto answer = std::make_shared<Answer<Status>>();
  node_->probe(peer->address(), monotonic_now() + (timeout > 0 ? timeout : settings_.connect_timeout),
               [answer](Status status) { answer->set(std::move(status)); });
  const Status status = answer->wait();
  if (status.ok()) peer->found_alive();
  return status;
}

bool Engine::silence(const InstanceId& initiator, Nanos timeout) {
  const Nanos deadline = monotonic_now() + timeout;
  bool silent = true;
  for (const auto& transport : transports_) silent = transport->silence(initiator, deadline) && silent;
  return silent;
}

Result<control::FirstRegion> Engine::first_region(const PeerPtr& peer) {
  TW_RETURN_IF_ERROR(check_open());
  auto answer = std::make_shared<Answer<Result<control::FirstRegion>>>();
  node_->fetch_first_region(peer->address(), monotonic_now() + settings_.connect_timeout,
                            [answer](Result<control::FirstRegion> region) { answer->set(std::move(region)); });
  return answer->wait();
}

Nanos Engine::deadline_of(const SubmitOptions& options, Nanos now, uint64_t bytes) const {
  const uint64_t span = options.deadline > 0 ? static_cast<uint64_t>(options.deadline)
                                             : static_cast<uint64_t>(settings_.transfer_timeout) + std::min<uint64_t>(bytes, INT64_MAX / 4);
  return span > static_cast<uint64_t>(kNever - now) ? kNever : now + static_cast<Nanos>(span);
}

Status Engine::check_notification(size_t length) const {
  if (length > control::kMaxNotificationBytes)
    return Status::error(Code::kInvalidArgument, "notification of {} bytes: at most {} are allowed", length, control::kMaxNotificationBytes);
  return {};
}

BatchPtr Engine::start_batch(std::vector<Batch::Part> parts, std::vector<std::pair<uint32_t, uint32_t>> index, uint64_t count, Nanos now,
                             const SubmitOptions& options, const PeerPtr& notify_peer) {
  Nanos notify_deadline = now + settings_.transfer_timeout;
  if (!parts.empty()) notify_deadline = parts[0].job->deadline;
  Batch::AfterData after = [engine = weak_from_this(), notify_peer, notify_deadline, options](const BatchPtr& batch) {
    const std::shared_ptr<Engine> self = engine.lock();
    if (self) self->account(*batch);
    if (!options.notify || !self || !batch->data_completed()) return batch->finish({});
    // An instance that came since does not have the data: it must not be told of them.
    InstanceId holder{};
    for (const Batch::Part& part : batch->parts())
      if (part.peer == notify_peer) holder = part.job->instance;
    self->node_->notify(
        notify_peer->address(), options.notify_name, options.notify_message, notify_deadline,
        [batch](Status status) { batch->finish(status.ok() ? status : status.with_context("notification")); }, holder);
  };
  const auto batch = std::make_shared<Batch>(std::move(parts), std::move(index), count, now, after);
  for (const Batch::Part& part : batch->parts()) part.job->owner = batch;
  if (batch->parts().empty()) {
    after(batch);
  } else {
    for (const Batch::Part& part : batch->parts()) part.peer->submit(part.job);
  }
  return batch;
}

void Engine::account(Batch& batch) {
  const Nanos elapsed = monotonic_now() - batch.submitted();
  batch_seconds_->observe(elapsed);
  const tw_batch_status status = batch.status();
  transfers_completed_->add(status.completed);
  transfers_failed_->add(status.failed);
  for (const Batch::Part& part : batch.parts()) {
    const Job& job = *part.job;
    if (!job.error.ok()) {
      const std::string line = fmt::format("code={} peer={} bytes={} elapsed_ms={} text=\"{}\"", code_name(job.error.code()), part.peer->name(),
                                           job.bytes, elapsed / kMillisecond, job.error.message());
      log::warn("transfer_failed", "transfer_failed {}", line);
      std::lock_guard lock(errors_mutex_);
      last_errors_.push_back(line);
      if (last_errors_.size() > 32) last_errors_.pop_front();
    } else if (settings_.slow_transfer > 0 && elapsed > settings_.slow_transfer) {
      log::warn("slow_transfer", "slow_transfer peer={} bytes={} transfers={} elapsed_ms={} queued_ms={} moving_ms={} retried_slices={}",
                part.peer->name(), job.bytes, job.count, elapsed / kMillisecond,
                (job.first_post ? job.first_post - job.submitted : elapsed) / kMillisecond,
                (job.first_post ? monotonic_now() - job.first_post : 0) / kMillisecond, job.retried_slices);
    }
  }
}

Result<BatchPtr> Engine::submit_lists(const PeerPtr& peer, transport::Opcode opcode, const uint64_t* local, const uint64_t* remote,
                                      const uint64_t* lengths, uint64_t count, const SubmitOptions& options) {
  TW_RETURN_IF_ERROR(check_open());
  TW_RETURN_IF_ERROR(check_notification(options.notify_message.size()));
  const Nanos now = monotonic_now();
  if (count == 0) return start_batch({}, {}, 0, now, options, peer);
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < count; ++i) bytes += std::min<uint64_t>(lengths[i], UINT64_MAX / 2 - std::min(bytes, UINT64_MAX / 2));
  const auto job = std::make_shared<Job>(opcode, count, now, deadline_of(options, now, bytes));
  job->bytes = bytes;
  for (uint64_t i = 0; i < count; ++i) {
    Transfer& transfer = job->transfers[i];
    transfer.local = local[i];
    transfer.remote = remote[i];
    transfer.length = lengths[i];
    const Status status = check_range(transfer);
    if (!status.ok()) refuse(*job, transfer, status);
  }
  return start_batch({{job, peer}}, {}, count, now, options, peer);
}

Result<BatchPtr> Engine::submit(const std::vector<TransferSpec>& specs, const SubmitOptions& options) {
  TW_RETURN_IF_ERROR(check_open());
  TW_RETURN_IF_ERROR(check_notification(options.notify_message.size()));
  if (options.notify && (specs.empty() || !specs[0].peer))
    return Status(Code::kInvalidArgument, "a notification needs a first transfer with a valid peer: it goes to that peer");
  const Nanos now = monotonic_now();
  if (specs.empty()) return start_batch({}, {}, 0, now, options, nullptr);
  uint64_t bytes = 0;
  std::map<std::pair<Peer*, transport::Opcode>, std::pair<uint32_t, uint32_t>> groups;  // → (part, transfers)
  for (const TransferSpec& spec : specs) {
    bytes += std::min<uint64_t>(spec.length, UINT64_MAX / 2 - std::min(bytes, UINT64_MAX / 2));
    auto [found, fresh] = groups.try_emplace({spec.peer.get(), spec.opcode}, static_cast<uint32_t>(groups.size()), 0);
    ++found->second.second;
  }
  const Nanos deadline = deadline_of(options, now, bytes);
  std::vector<Batch::Part> parts(groups.size());
  for (const auto& [key, group] : groups) parts[group.first].job = std::make_shared<Job>(key.second, group.second, now, deadline);
  std::vector<uint32_t> filled(groups.size());
  std::vector<std::pair<uint32_t, uint32_t>> index;
  for (const TransferSpec& spec : specs) {
    const uint32_t part = groups[{spec.peer.get(), spec.opcode}].first;
    Job& job = *parts[part].job;
    parts[part].peer = spec.peer ? spec.peer : no_peer_;
    index.emplace_back(part, filled[part]);
    Transfer& transfer = job.transfers[filled[part]++];
    transfer.local = spec.local;
    transfer.remote = spec.remote;
    transfer.length = spec.length;
    job.bytes += spec.length;
    const Status status = !spec.bad.ok() ? spec.bad : check_range(transfer);
    if (!status.ok()) refuse(job, transfer, status);
  }
  return start_batch(std::move(parts), std::move(index), specs.size(), now, options, specs[0].peer);
}

Status Engine::notify(const PeerPtr& peer, const std::string& name, const std::string& message, Nanos timeout) {
  TW_RETURN_IF_ERROR(check_open());
  TW_RETURN_IF_ERROR(check_notification(message.size()));
  auto answer = std::make_shared<Answer<Status>>();
  node_->notify(peer->address(), name, message, monotonic_now() + (timeout > 0 ? timeout : settings_.transfer_timeout),
                [answer](Status status) { answer->set(std::move(status)); });
  return answer->wait();
}

Status Engine::on_notification(control::Notification notification) {
  std::lock_guard lock(inbox_mutex_);
  inbox_.push_back(std::move(notification));
  inbox_filled_.notify_all();
  return {};
}

std::vector<control::Notification> Engine::take_notifications() {
  std::lock_guard lock(inbox_mutex_);
  std::vector<control::Notification> taken(std::make_move_iterator(inbox_.begin()), std::make_move_iterator(inbox_.end()));
  inbox_.clear();
  return taken;
}

bool Engine::wait_notifications(Nanos until) {
  std::unique_lock lock(inbox_mutex_);
  while (inbox_.empty() && !closed_.load()) {
    const Nanos left = until - monotonic_now();
    if (left <= 0) return false;
    inbox_filled_.wait_for(lock, std::chrono::nanoseconds(std::min(left, kSecond)));
  }
  return !inbox_.empty();
}

}  // namespace tidewire::engine
