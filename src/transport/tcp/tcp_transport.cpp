// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/tcp_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/log.h"
#include "base/processors.h"
#include "transport/tcp/initiator_lane.h"
#include "transport/tcp/rail_pairs.h"

namespace tidewire::transport::tcp {
namespace {

size_t thread_count(const Settings& settings) {
  if (settings.io_threads > 0) return static_cast<size_t>(settings.io_threads);
  // Two even on two processors: while one of them copies for the kernel, the other feeds the next lane.
  return std::min(processors(), std::clamp(processors() / 2, 2u, 4u));
}

}  // namespace

TcpTransport::TcpTransport(RegionTable& regions, const Settings& settings, Events& events, Dial dial,
                           std::vector<RailRecord> rails)
    : regions_(regions),
      settings_(settings),
      events_(events),
      dial_(std::move(dial)),
      rails_(std::move(rails)),
      targets_(regions) {}

TcpTransport::~TcpTransport() {
  stop();
}

Result<std::shared_ptr<IoThread>> TcpTransport::next_thread() {
  std::lock_guard lock(threads_mutex_);
  if (stopped_) return Status(Code::kClosed, "the engine is shutting down");
  const size_t index = next_++ % thread_count(settings_);
  while (threads_.size() <= index) {
    auto started = IoThread::start(static_cast<int>(threads_.size()));
    if (!started.ok()) {
      if (threads_.empty()) return started.status();
      return threads_[index % threads_.size()];
    }
    threads_.push_back(std::move(*started));
  }
  return threads_[index];
}

void TcpTransport::accept(UniqueFd socket, InstanceId initiator, std::string initiator_name, uint64_t channel,
                          uint32_t rail) {
  auto io = next_thread();
  if (!io.ok()) {
    log::warn("tcp_accept_failed", "data connection dropped peer={} why={}", initiator_name, io.status().message());
    return;
  }
  tune_socket(socket.get(), settings_, true);
  targets_.accept({initiator, std::move(initiator_name), channel, rail}, std::move(socket), std::move(*io));
}

bool TcpTransport::reaches(const PeerRecord& peer) const {
  return std::any_of(peer.rails.begin(), peer.rails.end(),
                     [](const RailRecord& rail) { return rail.transport == "tcp"; });
}

std::vector<std::pair<uint32_t, uint32_t>> TcpTransport::pair_rails(const PeerRecord& peer) const {
  return tcp::pair_rails(rails_, peer.rails);
}

uint32_t TcpTransport::lanes_per_pair() const {
  if (settings_.lanes_per_rail > 0) return static_cast<uint32_t>(settings_.lanes_per_rail);
  // Several rails are several lanes already.
  if (processors() == 1 || (processors() == 2 && rails_.size() > 1)) return 1;
  return processors() <= 8 ? 2 : 4;
}

void TcpTransport::open(ChannelId channel, const PeerRecord& peer, uint32_t local_rail, uint32_t remote_rail,
                        Nanos deadline) {
  auto io = next_thread();
  if (!io.ok()) {
    // Without any thread there is none to report from but this one.
    events_.on_channel_down(channel, io.status(), {});
    return;
  }
  const bool known = local_rail < rails_.size() && remote_rail < peer.rails.size();
  const std::string remote = known ? peer.rails[remote_rail].address : peer.name;
  auto lane = std::make_shared<InitiatorLane>(channel, remote, settings_, events_, *io, [this](ChannelId gone) {
    std::unique_lock lock(lanes_mutex_);
    lanes_.erase(gone);
  });
  {
    std::unique_lock lock(lanes_mutex_);
    lanes_[channel] = lane;
  }
  lane->start(deadline);
  if (!known) {
    lane->close(Status::error(Code::kInvalidArgument, "no rail {} here or no rail {} of {}", local_rail, remote_rail,
                              peer.name));
    return;
  }
  const auto local = parse_rail_address(rails_[local_rail].address);
  // The lane outlives its end when the answer comes late: the callback holds what it needs and nothing of the
  // transport.
  dial_(local ? local->host : std::string(), remote, peer.instance, channel, deadline,
        [lane](Status status, UniqueFd socket, InstanceId seen) {
          lane->connected(std::move(status), std::move(socket), seen);
        });
}

std::shared_ptr<InitiatorLane> TcpTransport::find(ChannelId channel) const {
  std::shared_lock lock(lanes_mutex_);
  const auto found = lanes_.find(channel);
  return found == lanes_.end() ? nullptr : found->second;
}

void TcpTransport::post(ChannelId channel, SlicePtr slice) {
  if (const auto lane = find(channel)) {
    lane->post(std::move(slice));
  } else {
    events_.on_slice_done(channel, slice, Status(Code::kUnreachable, "the lane is not up"));
  }
}

void TcpTransport::close(ChannelId channel, const Status& why) {
  if (const auto lane = find(channel)) lane->close(why);
}

void TcpTransport::revoke(ChannelId via, ChannelId victim) {
  if (const auto lane = find(via)) lane->revoke(victim);
}

bool TcpTransport::drive(ChannelId channel) {
  const auto lane = find(channel);
  return lane != nullptr && lane->drive();
}

bool TcpTransport::silence(const InstanceId& initiator, Nanos) {
  targets_.cut(initiator);  // waits for one placement at most
  return true;
}

void TcpTransport::stop() {
  std::vector<std::shared_ptr<IoThread>> threads;
  {
    std::lock_guard lock(threads_mutex_);
    stopped_ = true;
    threads = threads_;
  }
  targets_.stop();
  // A lane ends on its thread once no role of it is held: after a system call at most. An open() that was under way may
  // add one meanwhile.
  for (;;) {
    std::vector<std::shared_ptr<InitiatorLane>> lanes;
    {
      std::shared_lock lock(lanes_mutex_);
      for (const auto& [channel, lane] : lanes_) lanes.push_back(lane);
    }
    if (lanes.empty()) break;
    for (const auto& lane : lanes) lane->close(Status(Code::kClosed, "the engine is shutting down"));
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  targets_.await_end();
  for (const auto& thread : threads) thread->stop();
}

std::string TcpTransport::describe() const {
  std::vector<std::shared_ptr<InitiatorLane>> lanes;
  {
    std::shared_lock lock(lanes_mutex_);
    for (const auto& [channel, lane] : lanes_) lanes.push_back(lane);
  }
  std::string initiators;
  for (const auto& lane : lanes) initiators += (initiators.empty() ? "" : ", ") + lane->describe();
  size_t threads;
  {
    std::lock_guard lock(threads_mutex_);
    threads = threads_.size();
  }
  return fmt::format(R"({{"transport": "tcp", "io_threads": {}, "lanes": [{}], "accepted": [{}]}})", threads,
                     initiators, targets_.describe());
}

}  // namespace tidewire::transport::tcp
