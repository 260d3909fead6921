// SPDX-License-Identifier: Apache-2.0
#include "store/client/membership.h"

#include <algorithm>
#include <utility>

namespace tidewire::store {
namespace {
constexpr Nanos kRetry = 50 * kMillisecond;  // after a master that is not ready yet
}  // namespace

Membership::Membership(const ClientId& id, std::string name, std::string host_id, Io& io)
    : id_(id), name_(std::move(name)), host_id_(std::move(host_id)), io_(io) {}

void Membership::set(Standing standing) {
  const bool was = attached();
  standing_ = standing;
  if (was != attached()) io_.on_standing();
}

void Membership::on_connected(Nanos now) {
  now_ = now;
  ++connection_;
  set(Standing::kConnected);
  attach(now);
}

void Membership::on_disconnected() {
  ++connection_;
  due_ = kNever;
  set(Standing::kDisconnected);
}

void Membership::attach(Nanos now) {
  set(Standing::kAttaching);
  due_ = kNever;
  Attach attach;
  attach.client = id_;
  attach.name = name_;
  attach.host_id = host_id_;
  attach.term = inventory_.term();
  attach.master = inventory_.master();
  attach.generation = inventory_.generation();
  attach.entries = inventory_.size();
  for (const auto& [ordinal, segment] : segments_) attach.segments.push_back(segment);
  now_ = now;
  io_.ask(std::move(attach), [this, connection = connection_](const Body* answer) {
    if (connection == connection_) on_attach_answer(answer, now_);
  });
}

void Membership::on_attach_answer(const Body* body, Nanos now) {
  const auto* answer = body == nullptr ? nullptr : std::get_if<AttachAnswer>(body);
  if (answer == nullptr || answer->code != Code::kOk) {
    due_ = now + kRetry;
    return set(Standing::kConnected);
  }
  heartbeat_ = std::max(answer->heartbeat, kMillisecond);
  client_ttl_ = answer->client_ttl;
  due_ = now + heartbeat_;
  switch (answer->inventory) {
    case InventoryWish::kClear:
      inventory_.clear(answer->max_lease, now);
      return attach(now);
    case InventoryWish::kSend:
      set(Standing::kSending);
      return send_chunk({}, now);
    case InventoryWish::kNone:
      return set(Standing::kAttached);
  }
}

// One at a time, so that a large inventory neither fills the connection nor holds up requests.
void Membership::send_chunk(Inventory::Cursor cursor, Nanos now) {
  InventoryChunk chunk = inventory_.next_chunk(&cursor, now);
  const bool last = chunk.last;
  io_.ask(std::move(chunk), [this, cursor, last, connection = connection_](const Body* answer) {
    if (connection != connection_ || standing_ != Standing::kSending) return;
    const auto* code = answer == nullptr ? nullptr : std::get_if<CodeAnswer>(answer);
    if (code == nullptr || code->code != Code::kOk) {
      due_ = now_ + kRetry;
      return set(Standing::kConnected);
    }
    if (last) return set(Standing::kAttached);
    send_chunk(cursor, now_);
  });
}

void Membership::heartbeat(Nanos now) {
  due_ = now + heartbeat_;
  io_.ask(Heartbeat{}, [this, connection = connection_](const Body* body) {
    if (connection != connection_ || body == nullptr) return;
    const auto* answer = std::get_if<HeartbeatAnswer>(body);
    const bool known = answer != nullptr && answer->code == Code::kOk;
    if (!known && standing_ == Standing::kAttached) attach(now_);
  });
}

Nanos Membership::tick(Nanos now) {
  now_ = now;
  if (due_ <= now) {
    if (standing_ == Standing::kConnected) attach(now);
    if (standing_ == Standing::kAttached || standing_ == Standing::kSending) heartbeat(now);
  }
  return due_;
}

void Membership::on_request(uint64_t request, const Body& body, Nanos now) {
  now_ = now;
  if (const auto* grant = std::get_if<Grant>(&body)) {
    io_.answer(request, inventory_.on_grant(*grant, now));
  } else if (const auto* record = std::get_if<Record>(&body)) {
    io_.answer(request, inventory_.on_record(*record));
  } else if (const auto* drop = std::get_if<Drop>(&body)) {
    io_.answer(request, inventory_.on_drop(*drop, now));
  } else if (const auto* wish = std::get_if<Quiet>(&body)) {
    io_.quiet(*wish, [this, request, connection = connection_] {
      if (connection == connection_) io_.answer(request, CodeAnswer{Code::kOk});
    });
  } else {
    io_.answer(request, CodeAnswer{Code::kNotSupported});
  }
}

void Membership::mount(const SegmentInfo& segment, Nanos now, std::function<void()> done) {
  now_ = now;
  segments_[segment.ordinal] = segment;
  // Without a connection it will be told of when attaching; whoever is attaching just now has not told of it.
  if (standing_ == Standing::kDisconnected || standing_ == Standing::kConnected) return done();
  io_.ask(Mount{segment}, [done = std::move(done)](const Body*) { done(); });
}

void Membership::unmount(uint32_t ordinal, std::function<void()> done) {
  segments_.erase(ordinal);
  inventory_.unmount(ordinal);
  if (standing_ == Standing::kDisconnected) return done();
  io_.ask(Unmount{ordinal}, [done = std::move(done)](const Body*) { done(); });
}

}  // namespace tidewire::store
