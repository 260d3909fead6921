// SPDX-License-Identifier: Apache-2.0
//
// Network: directed links between engines, one for each rail, with latency, bandwidth and partitions; Stream: an ordered, reliable byte
// stream over one link, as TCP gives it. What is in a stream when its link is cut waits there and arrives after the heal, however late.
#pragma once

#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "sim/world.h"

namespace tidewire::sim {

class Stream;

class Network {
 public:
  Network(World& world, uint32_t engines, uint32_t rails) : world_(world), engines_(engines), rails_(rails), links_(engines * engines * rails) {
    for (Link& link : links_) link.open_since = world.now() - 3600 * kSecond;
  }

  bool open(uint32_t from, uint32_t to, uint32_t rail) const { return link(from, to, rail).blocks == 0; }
  bool both_ways(uint32_t a, uint32_t b, uint32_t rail) const { return open(a, b, rail) && open(b, a, rail); }
  // Blocks nest: a link is open when as many ended as began.
  void block(uint32_t from, uint32_t to, uint32_t rail);
  void unblock(uint32_t from, uint32_t to, uint32_t rail);
  // Since when the rail has been usable in both directions; kNever when it is not.
  Nanos good_since(uint32_t a, uint32_t b, uint32_t rail) const {
    if (!both_ways(a, b, rail)) return kNever;
    return std::max(link(a, b, rail).open_since, link(b, a, rail).open_since);
  }
  // Since when neither direction has let anything through; kNever when one does.
  Nanos dark_since(uint32_t a, uint32_t b, uint32_t rail) const {
    const Link& there = link(a, b, rail);
    const Link& back = link(b, a, rail);
    Nanos since = kNever;
    if (there.blocks > 0) since = there.blocked_since;
    if (back.blocks > 0) since = std::min(since, back.blocked_since);
    return since;
  }
  Nanos latency() { return base_latency + world_.random.skewed(0, jitter); }
  // When `bytes` sent now have left; the link is busy until then.
  Nanos transmit(uint32_t from, uint32_t to, uint32_t rail, uint64_t bytes) {
    Nanos& busy = link(from, to, rail).busy_until;
    busy = std::max(busy, world_.now()) + static_cast<Nanos>(bytes * static_cast<uint64_t>(kSecond) / bytes_per_second);
    return busy;
  }
  void wait_for(uint32_t from, uint32_t to, uint32_t rail, const std::shared_ptr<Stream>& stream) {
    link(from, to, rail).waiting.push_back(stream);
  }

  // What is in streams refers to them again: forgets it, at the end of a run.
  void clear();

  uint32_t engines() const { return engines_; }
  uint32_t rails() const { return rails_; }
  World& world() { return world_; }

  Nanos base_latency = 50 * kMicrosecond;
  Nanos jitter = 200 * kMicrosecond;
  uint64_t bytes_per_second = 100 << 20;

 private:
  friend class Stream;
  struct Link {
    int blocks = 0;
    Nanos open_since = 0, blocked_since = 0;
    Nanos busy_until = 0;
    std::vector<std::weak_ptr<Stream>> waiting;
  };
  Link& link(uint32_t from, uint32_t to, uint32_t rail) { return links_[(from * engines_ + to) * rails_ + rail]; }
  const Link& link(uint32_t from, uint32_t to, uint32_t rail) const { return links_[(from * engines_ + to) * rails_ + rail]; }

  World& world_;
  const uint32_t engines_, rails_;
  std::vector<Link> links_;
  std::set<Stream*> streams_;
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(Network& network, uint32_t from, uint32_t to, uint32_t rail) : network_(network), from_(from), to_(to), rail_(rail) {
    network_.streams_.insert(this);
  }
  ~Stream() { network_.streams_.erase(this); }

  // `arrive` runs at the other end, after everything sent before.
  void send(uint64_t bytes, std::function<void()> arrive) {
    queue_.push_back({network_.transmit(from_, to_, rail_, bytes) + network_.latency(), std::move(arrive)});
    if (!scheduled_) schedule();
  }
  size_t pending() const { return queue_.size(); }
  // All but the first `count` messages vanish.
  void keep(size_t count) {
    while (queue_.size() > count) queue_.pop_back();
  }
  void delay(Nanos by) {
    for (Message& message : queue_) message.ready += by;
  }
  // The link opened again: retransmission starts after a while.
  void resume() {
    if (!queue_.empty()) queue_.front().ready = std::max(queue_.front().ready, network_.world().now() + network_.world().random.between(0, 200 * kMillisecond));
    schedule();
  }

 private:
  struct Message {
    Nanos ready;
    std::function<void()> arrive;
  };
  void schedule() {
    scheduled_ = !queue_.empty();
    if (!scheduled_) return;
    network_.world().at(queue_.front().ready, [self = shared_from_this()] { self->deliver(); });
  }
  void deliver() {
    if (queue_.empty()) return schedule();
    if (queue_.front().ready > network_.world().now()) return schedule();
    if (!network_.open(from_, to_, rail_)) return network_.wait_for(from_, to_, rail_, shared_from_this());
    const std::function<void()> arrive = std::move(queue_.front().arrive);
    queue_.pop_front();
    schedule();
    arrive();
  }

  Network& network_;
  const uint32_t from_, to_, rail_;
  std::deque<Message> queue_;
  bool scheduled_ = false;
};

inline void Network::clear() {
  std::vector<std::shared_ptr<Stream>> streams;
  for (Stream* stream : streams_)
    if (auto shared = stream->weak_from_this().lock()) streams.push_back(std::move(shared));
  for (const auto& stream : streams) stream->keep(0);
}

inline void Network::block(uint32_t from, uint32_t to, uint32_t rail) {
  Link& link = this->link(from, to, rail);
  if (link.blocks++ == 0) link.blocked_since = world_.now();
}

inline void Network::unblock(uint32_t from, uint32_t to, uint32_t rail) {
  Link& link = this->link(from, to, rail);
  if (--link.blocks > 0) return;
  link.open_since = world_.now();
  for (const std::weak_ptr<Stream>& waiting : std::exchange(link.waiting, {}))
    if (const auto stream = waiting.lock()) stream->resume();
}

}  // namespace tidewire::sim
