// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/target.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "transport/shm/target_peer.h"

namespace tidewire::transport::shm {
namespace {

constexpr Nanos kHandshakeTime = 5 * kSecond;
constexpr Nanos kAcceptPause = 100 * kMillisecond;  // when the process is out of descriptors
constexpr size_t kMaxStrangers = 256;
constexpr size_t kMaxPeers = 4096;

}  // namespace

Result<std::unique_ptr<Target>> Target::start(Loop& loop, RegionTable& regions, const LocalIdentity& identity,
                                              const std::string& socket_name) {
  std::unique_ptr<Target> target(new Target(loop, regions, identity));
  random_bytes(target->probe_, sizeof target->probe_);
  TW_ASSIGN_OR_RETURN(target->state_, StatePage::create("tidewire-state", true));
  TW_ASSIGN_OR_RETURN(UniqueFd socket, listen_local(socket_name));
  TW_ASSIGN_OR_RETURN(target->listener_, Watch::create(loop, std::move(socket)));
  target->listen_again_ = std::make_unique<Timer>(loop);
  loop.post([raw = target.get()] { raw->listener_->on_readable([raw] { return raw->accept_all(); }); });
  return target;
}

Target::~Target() {
  disconnect();
}

void Target::disconnect() {
  for (const auto& peer : peers_) {
    if (peer->references != nullptr) peer->references->gone = true;
  }
  peers_.clear();
  listen_again_.reset();
  listener_.reset();
  peer_count_ = 0;
}

Status Target::region_added(Region& region) {
  if (region.slot >= kSlots) return {};  // never open: peers use another transport for it
  {
    std::lock_guard lock(state_mutex_);
    TW_RETURN_IF_ERROR(state_->ensure(region.slot));
  }
  uint32_t used = slots_used_.load();
  while (used <= region.slot && !slots_used_.compare_exchange_weak(used, region.slot + 1)) {
  }
  const bool open = !stopped_.load() && region.permission != Permission::kNone;
  (*state_)[region.slot].store(state_word(region.epoch, region.permission, open), std::memory_order_seq_cst);
  return {};
}

void Target::region_removing(Region& region, Nanos deadline) {
  if (region.slot >= kSlots) return;
  (*state_)[region.slot].store(state_word(region.epoch, region.permission, false), std::memory_order_seq_cst);
  wait_for_references(region.slot, region.slot, deadline,
                      fmt::format("region [{:#x}, {:#x})", region.address, region.end()));
  if (region.backing.memfd < 0) return;
  // Peers unmap the file, so that freeing it frees its memory.
  if (const uint64_t inode = file_inode(region.backing.memfd); inode != 0)
    loop_.post([this, inode] { forget_file(inode); });
}

// Waits until the peer, if it lives, counts no copy in the slots; false at the deadline.
bool Target::wait_for_copies(const PeerReferences& peer, uint32_t first, uint32_t last, Nanos deadline) {
  Nanos pause = 2 * kMicrosecond;
  for (uint32_t slot = first; slot <= last;) {
    if (peer.gone.load() || (*peer.page)[slot].load(std::memory_order_seq_cst) == 0) {
      ++slot;
      continue;
    }
    if (monotonic_now() >= deadline) return false;
    const timespec time{0, pause};
    nanosleep(&time, nullptr);
    pause = std::min(pause * 2, kMillisecond);
  }
  return true;
}

// The same for all peers; those that don't end in time are cut off.
bool Target::wait_for_references(uint32_t first, uint32_t last, Nanos deadline, const std::string& what) {
  std::vector<std::shared_ptr<PeerReferences>> peers;
  {
    std::lock_guard lock(references_mutex_);
    peers = references_;
  }
  bool all_gone = true;
  for (const auto& peer : peers) {
    if (wait_for_copies(*peer, first, last, deadline)) continue;
    all_gone = false;
    log::error("shm_stuck_copy",
               "process {} (instance {}) still copies in {} after the drain time; it is cut off, but if it is stopped rather than slow, up to 1 MiB "
               "can still be written there when it goes on; continue or end it before reusing the memory",
               peer->pid, peer->instance, what);
    loop_.post([this, references = peer] {
      if (auto live = references->peer.lock()) drop(live, Status(Code::kTimeout, "it held a region beyond the drain time"));
    });
  }
  return all_gone;
}

bool Target::silence(const InstanceId& initiator, Nanos deadline) {
  const uint32_t used = slots_used_.load();
  if (used == 0) return true;
  std::vector<std::shared_ptr<PeerReferences>> peers;
  {
    std::lock_guard lock(references_mutex_);
    peers = references_;
  }
  return std::all_of(peers.begin(), peers.end(), [&, name = to_string(initiator)](const auto& peer) {
    return (initiator != InstanceId{} && peer->instance != name) || wait_for_copies(*peer, 0, used - 1, deadline);
  });
}

void Target::stop(Nanos deadline) {
  if (stopped_.exchange(true)) return;
  const uint32_t used = slots_used_.load();
  for (uint32_t slot = 0; slot < used; ++slot) (*state_)[slot].fetch_and(~uint64_t{1}, std::memory_order_seq_cst);
  if (used > 0) wait_for_references(0, used - 1, deadline, "a region");
}

Target::Figures Target::figures() const {
  return {peer_count_.load(), lookups_.load(), refused_.load()};
}

bool Target::accept_all() {
  while (true) {
    UniqueFd socket(accept4(listener_->fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) return true;
      // The connection stays in the queue; without a pause the loop would spin on it.
      log::warn("shm_accept", "accepting a same-host peer: {}; trying again in 0.1 s",
                errno_status(errno, "accept").message());
      listen_again_->at(monotonic_now() + kAcceptPause,
                        [this] { listener_->on_readable([this] { return accept_all(); }); });
      return false;
    }
    serve(std::move(socket));
  }
}

void Target::serve(UniqueFd socket) {
  auto credentials = peer_credentials(socket.get());
  if (!credentials.ok() || !trusted(*credentials)) {
    ++refused_;
    log::warn(
        "shm_stranger",
        "refused a same-host connection from process {} of user {}: only user {} and root may copy in this memory",
        credentials.ok() ? credentials->pid : 0, credentials.ok() ? credentials->uid : 0, geteuid());
    return;
  }
  if (stopped_.load() || strangers_ >= kMaxStrangers || peers_.size() >= kMaxPeers) {
    ++refused_;
    log::warn("shm_full", "refused a same-host connection: {} peers, {} of them unproven", peers_.size(), strangers_);
    return;
  }
  auto watch = Watch::create(loop_, std::move(socket));
  if (!watch.ok()) return;
  auto peer = std::make_shared<Peer>(loop_);
  peer->pid = credentials->pid;
  peer->socket = std::move(watch).value();
  peers_.insert(peer);
  ++strangers_;
  peer_count_ = peers_.size();
  peer->timer.at(monotonic_now() + kHandshakeTime, [this, weak = std::weak_ptr(peer)] {
    if (auto live = weak.lock(); live && live->phase != Peer::Phase::kUp)
      drop(live, Status(Code::kTimeout, "its handshake took longer than 5 s"));
  });
  peer->socket->on_readable([this, weak = std::weak_ptr(peer)] {
    auto live = weak.lock();
    return live != nullptr && on_packets(live);
  });
}

bool Target::on_packets(const std::shared_ptr<Peer>& peer) {
  // A few at a time, so that one peer can't keep the others waiting.
  for (int i = 0; i < 16; ++i) {
    Received received;
    Status status = receive_packet(peer->socket->fd(), false, &received);
    if (status.ok() && received.bytes.empty()) return true;
    if (status.ok()) status = on_packet(*peer, received.bytes);
    if (!status.ok()) {
      drop(peer, status);
      return false;
    }
  }
  return true;
}

Status Target::on_packet(Peer& peer, const std::vector<uint8_t>& bytes) {
  switch (peer.phase) {
    case Peer::Phase::kHello: {
      Hello hello;
      if (!parse(bytes, &hello)) break;
      return on_hello(peer, hello);
    }
    case Peer::Phase::kProof: {
      Proof proof;
      if (!parse(bytes, &proof)) break;
      return on_proof(peer, proof);
    }
    case Peer::Phase::kUp: {
      Lookup lookup;
      if (!parse(bytes, &lookup) || lookup.header.count == 0) break;
      // All regions are closed for good: the end that follows soon is the answer. It does not come now, because this peer may still be copying.
      if (stopped_.load()) return {};
      return on_lookup(peer, lookup);
    }
  }
  const Status status =
      Status::error(Code::kProtocol, "unexpected packet of {} bytes, type {}; this side speaks version {}",
                    bytes.size(), static_cast<unsigned>(packet_type(bytes)), kVersion);
  if (peer.phase != Peer::Phase::kUp) refuse(peer, status);
  return status;
}

void Target::drop(const std::shared_ptr<Peer>& peer, const Status& why) {
  if (peers_.erase(peer) == 0) return;
  peer_count_ = peers_.size();
  if (peer->phase != Peer::Phase::kUp) {
    --strangers_;
    ++refused_;
    log::warn("shm_refused", "same-host connection of process {} ended before it was set up: {}", peer->pid,
              why.to_string());
  } else if (why.code() != Code::kPeerGone) {
    log::warn("shm_dropped", "same-host peer process {} dropped: {}", peer->pid, why.to_string());
  }
  peer->timer.cancel();
  peer->death.reset();
  peer->socket.reset();
  if (peer->references != nullptr) {
    peer->references->gone = true;
    std::lock_guard lock(references_mutex_);
    std::erase(references_, peer->references);
  }
}

}  // namespace tidewire::transport::shm
