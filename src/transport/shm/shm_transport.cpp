// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/shm_transport.h"

#include <fmt/ranges.h>
#include <sys/prctl.h>

#include <algorithm>

#include "base/log.h"
#include "memory/copy.h"

#ifndef PR_SET_PTRACER
#define PR_SET_PTRACER 0x59616d61
#endif

namespace tidewire::transport::shm {
namespace {

constexpr Nanos kStopDrain = 400 * kMillisecond;

}  // namespace

ShmTransport::ShmTransport(RegionTable& regions, LocalIdentity identity, const Settings& settings, Events& events)
    : regions_(regions),
      identity_(std::move(identity)),
      events_(events),
      enabled_(settings.same_host),
      queue_(settings.copy_threads) {
  status_ = start(settings);
  if (status_.ok()) return;
  socket_name_.clear();
  if (enabled_) log::warn("shm_off", "the same-host path is off, TCP is used instead: {}", status_.message());
}

Status ShmTransport::start(const Settings& settings) {
  // The loop runs even where there is nothing to reach: it reports what becomes of channels.
  TW_ASSIGN_OR_RETURN(loop_, Loop::start());
  if (!enabled_) return Status(Code::kUnsupported, "the setting same_host is off");
  if (host_id().empty()) return Status(Code::kUnsupported, "/proc/sys/kernel/random/boot_id can't be read");
  socket_name_ = "tidewire-shm-" + to_string(identity_.instance);
  TW_ASSIGN_OR_RETURN(target_, Target::start(*loop_, regions_, identity_, socket_name_));
  if (settings.ptracer)
    prctl(PR_SET_PTRACER, ~0UL, 0, 0, 0);  // PR_SET_PTRACER_ANY; without Yama an error that changes nothing
  regions_.set_observer(target_.get());
  return {};
}

ShmTransport::~ShmTransport() {
  stop();
}

std::vector<RailRecord> ShmTransport::rails() const {
  if (socket_name_.empty()) return {};
  return {RailRecord{"shm", "shm", socket_name_, 0}};
}

bool ShmTransport::reaches(const PeerRecord& peer) const {
  return status_.ok() && !peer.same_host_socket.empty() && peer.host_id == host_id();
}

std::vector<std::pair<uint32_t, uint32_t>> ShmTransport::pair_rails(const PeerRecord& peer) const {
  if (!reaches(peer)) return {};
  const auto rail = std::find_if(peer.rails.begin(), peer.rails.end(),
                                 [](const RailRecord& each) { return each.transport == "shm"; });
  return {{0, rail == peer.rails.end() ? 0 : static_cast<uint32_t>(rail - peer.rails.begin())}};
}

void ShmTransport::open(ChannelId id, const PeerRecord& peer, uint32_t, uint32_t, Nanos deadline) {
  if (loop_ == nullptr) {  // without a thread there is nobody else to tell it
    events_.on_channel_down(id, status_, {});
    return;
  }
  Status refused = status_;
  {
    std::lock_guard lock(gone_mutex_);
    if (stopped_) refused = Status(Code::kClosed, "the same-host transport is stopped");
    if (refused.ok()) ++open_;
  }
  if (!refused.ok()) {
    loop_->post([this, id, refused] { events_.on_channel_down(id, refused, {}); });
    return;
  }
  const Channel::Context context{*loop_,
                                 queue_,
                                 events_,
                                 identity_,
                                 [this](ChannelId gone) {
                                   std::unique_lock channels(channels_mutex_);
                                   channels_.erase(gone);
                                 },
                                 [this] {
                                   std::lock_guard lock(gone_mutex_);
                                   --open_;
                                   gone_.notify_all();
                                 }};
  auto channel = std::make_shared<Channel>(context, id, peer, deadline);
  {
    std::unique_lock lock(channels_mutex_);
    channels_[id] = channel;
  }
  channel->open();
  bool stopped;
  {
    std::lock_guard lock(gone_mutex_);
    stopped = stopped_;
  }
  // stop() may have looked for channels before this one was among them.
  if (stopped) channel->close(Status(Code::kClosed, "the engine is shutting down"));
}

std::shared_ptr<Channel> ShmTransport::find(ChannelId id) const {
  std::shared_lock lock(channels_mutex_);
  auto found = channels_.find(id);
  return found == channels_.end() ? nullptr : found->second;
}

void ShmTransport::post(ChannelId id, SlicePtr slice) {
  if (auto channel = find(id)) return channel->post(std::move(slice));
  events_.on_slice_done(id, slice, Status::error(Code::kUnreachable, "there is no same-host channel {}", id));
}

void ShmTransport::close(ChannelId id, const Status& why) {
  if (auto channel = find(id)) channel->close(why);
}

void ShmTransport::revoke(ChannelId, ChannelId victim) {
  if (loop_ != nullptr) loop_->post([this, victim] { events_.on_revoked(victim); });
}

bool ShmTransport::drive(ChannelId id) {
  if (queue_.waiting() == 0) return false;
  auto channel = find(id);
  return channel != nullptr && queue_.run_one(channel.get());
}

void ShmTransport::stop() {
  {
    std::lock_guard lock(gone_mutex_);
    if (std::exchange(stopped_, true)) return;
  }
  std::vector<std::shared_ptr<Channel>> channels;
  {
    std::shared_lock lock(channels_mutex_);
    for (const auto& [id, channel] : channels_) channels.push_back(channel);
  }
  for (const auto& channel : channels) channel->close(Status(Code::kClosed, "the engine is shutting down"));
  channels.clear();
  {
    std::unique_lock lock(gone_mutex_);
    gone_.wait(lock, [&] { return open_ == 0; });
  }
  queue_.stop();
  if (target_ != nullptr) target_->stop(monotonic_now() + kStopDrain);
  if (status_.ok()) regions_.set_observer(nullptr);
  if (loop_ != nullptr) loop_->stop();
  if (target_ != nullptr) target_->disconnect();
}

std::string ShmTransport::describe() const {
  std::vector<std::string> channels;
  {
    std::shared_lock lock(channels_mutex_);
    for (const auto& [id, channel] : channels_) channels.push_back(channel->describe());
  }
  const Target::Figures figures = target_ != nullptr ? target_->figures() : Target::Figures{};
  return fmt::format(
      R"({{"socket": "{}", "copy_threads": {}, "copy_method": "{}", "chunks_waiting": {}, "served_peers": {}, )"
      R"("lookups_answered": {}, "connections_refused": {}, "channels": [{}]}})",
      socket_name_, queue_.threads(), copy_method(), queue_.waiting(), figures.peers, figures.lookups, figures.refused,
      fmt::join(channels, ", "));
}

}  // namespace tidewire::transport::shm
