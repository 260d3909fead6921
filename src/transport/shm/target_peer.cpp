// SPDX-License-Identifier: Apache-2.0
//
// The target's answers to one initiator.
#include "transport/shm/target_peer.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "transport/shm/host_id.h"

namespace tidewire::transport::shm {

uint64_t file_inode(int fd) {
  struct stat facts {};
  return fstat(fd, &facts) == 0 ? facts.st_ino : 0;
}

namespace {

// A second descriptor of the file that can't be used for writing.
UniqueFd open_for_reading(int fd) {
  return UniqueFd(::open(fmt::format("/proc/self/fd/{}", fd).c_str(), O_RDONLY | O_CLOEXEC));
}

}  // namespace

void Target::refuse(Peer& peer, const Status& why) {
  Refused refused{};
  refused.code = static_cast<int32_t>(why.code());
  std::copy(identity_.instance.begin(), identity_.instance.end(), refused.target);
  std::strncpy(refused.reason, why.message().c_str(), sizeof refused.reason - 1);
  (void)send_packet(peer.socket->fd(), &refused, seal(refused));
}

Status Target::on_hello(Peer& peer, const Hello& hello) {
  std::copy_n(hello.initiator, 16, peer.facts.initiator.begin());
  peer.facts.target = identity_.instance;
  std::memcpy(peer.facts.initiator_nonce, hello.nonce, sizeof hello.nonce);
  random_bytes(peer.facts.target_nonce, sizeof peer.facts.target_nonce);
  Status status;
  if (!std::equal(identity_.instance.begin(), identity_.instance.end(), hello.expected)) {
    status = Status(Code::kPeerGone, "another instance is here");
  } else if (host_id().compare(0, sizeof hello.host_id, hello.host_id, strnlen(hello.host_id, sizeof hello.host_id)) !=
             0) {
    status = Status(Code::kUnreachable, "the boot ids differ: not the same host");
  }
  if (!status.ok()) {
    refuse(peer, status);
    return status;
  }
  Challenge challenge{};
  std::copy(identity_.instance.begin(), identity_.instance.end(), challenge.target);
  std::memcpy(challenge.nonce, peer.facts.target_nonce, sizeof challenge.nonce);
  make_proof(identity_.secret, Role::kTarget, peer.facts, challenge.proof);
  challenge.has_secret = identity_.secret.empty() ? 0 : 1;
  peer.phase = Peer::Phase::kProof;
  return send_packet(peer.socket->fd(), &challenge, seal(challenge));
}

Status Target::on_proof(Peer& peer, const Proof& proof) {
  if (!proof_matches(identity_.secret, Role::kInitiator, peer.facts, proof.proof)) {
    const Status status(
        Code::kUnauthenticated,
        "the cluster secret of the initiator differs from this engine's; give both the same secret.file");
    refuse(peer, status);
    return status;
  }
  auto page = ReferencePage::create("tidewire-references", false);
  if (page.ok()) {
    if (Status status = (*page)->ensure(std::max(slots_used_.load(), 1u) - 1); !status.ok()) page = status;
  }
  UniqueFd state = open_for_reading(state_->descriptor());
  if (!page.ok() || !state.valid()) {
    const Status status = page.ok() ? errno_status(errno, "opening the guard page for a peer") : page.status();
    refuse(peer, status);
    return status;
  }
  auto references = std::make_shared<PeerReferences>();
  references->page = std::move(page).value();
  references->pid = peer.pid;
  references->instance = to_string(peer.facts.initiator);
  Welcome welcome{};
  welcome.probe_address = reinterpret_cast<uint64_t>(probe_);
  std::memcpy(welcome.probe_value, probe_, sizeof probe_);
  welcome.slots = kSlots;
  const int files[] = {state.get(), references->page->descriptor()};
  {
    // Before the peer can count: a remover that comes later must see it.
    std::lock_guard lock(references_mutex_);
    references_.push_back(references);
  }
  peer.references = references;
  for (const auto& live : peers_) {
    if (live.get() != &peer) continue;
    references->peer = live;
    if (UniqueFd process = watch_process(peer.pid); process.valid()) {
      if (auto watch = Watch::create(loop_, std::move(process)); watch.ok()) {
        peer.death = std::move(watch).value();
        peer.death->on_readable([this, weak = std::weak_ptr(live)] {
          if (auto dead = weak.lock()) drop(dead, Status(Code::kPeerGone, "its process ended"));
          return false;
        });
      }
    }
  }
  peer.timer.cancel();
  --strangers_;
  peer.phase = Peer::Phase::kUp;
  const Status sent = send_packet(peer.socket->fd(), &welcome, seal(welcome), files);
  references->page->close_descriptor();
  return sent;
}

Status Target::on_lookup(Peer& peer, const Lookup& lookup) {
  ++lookups_;
  Regions answer{};
  answer.request = lookup.request;
  std::vector<UniqueFd> opened;  // closed once sent
  std::vector<int> files;
  RangeHold hold;  // keeps the memory's files open until they are sent
  uint32_t count = 0;
  for (uint32_t i = 0; i < lookup.header.count; ++i) {
    const uint64_t asked = lookup.addresses[i];
    const auto covers = [&](const RegionInfo& info) { return info.code == 0 && asked - info.address < info.length; };
    if (std::any_of(answer.regions, answer.regions + count, covers)) continue;
    if (files.size() >= kMaxFiles) break;  // the initiator asks again for what is missing
    describe_region(peer, asked, &answer.regions[count], &opened, &files, &hold);
    ++count;
  }
  return send_packet(peer.socket->fd(), &answer, seal(answer, count), files);
}

void Target::describe_region(Peer& peer, uint64_t asked, RegionInfo* info, std::vector<UniqueFd>* opened,
                             std::vector<int>* files, RangeHold* hold) {
  info->asked = asked;
  info->descriptor = kNoFile;
  Status status = regions_.use(asked, 1, Access::kRemoteRead, *hold);
  const Region* region = status.ok() ? hold->find(asked) : nullptr;
  if (region != nullptr && region->slot >= kSlots) {
    status = Status(Code::kUnsupported, "the peer has more regions than its guard page has slots");
  } else if (region != nullptr) {
    status = peer.references->page->ensure(region->slot);
  }
  if (!status.ok()) {
    info->code = static_cast<int32_t>(status.code());
    return;
  }
  info->address = region->address;
  info->length = region->length;
  info->slot = region->slot;
  info->epoch = region->epoch;
  info->permission = static_cast<uint8_t>(region->permission);
  if (!region->kind->host_accessible()) {
    info->backing = Backing::kDevice;
    return;
  }
  info->backing = Backing::kForeign;
  if (region->backing.memfd < 0) return;
  const uint64_t inode = file_inode(region->backing.memfd);
  if (inode == 0) return;
  const bool writable = region->permission == Permission::kReadWrite;
  auto [file, is_new] = peer.files.try_emplace({inode, writable}, peer.next_file);
  if (is_new) {
    int fd = region->backing.memfd;
    if (!writable) {
      UniqueFd reading = open_for_reading(fd);
      if (!reading.valid()) {  // out of descriptors, or no /proc: still foreign memory
        peer.files.erase(file);
        return;
      }
      fd = reading.get();
      opened->push_back(std::move(reading));
    }
    ++peer.next_file;
    info->descriptor = static_cast<uint16_t>(files->size());
    files->push_back(fd);
  }
  info->backing = Backing::kFile;
  info->file_id = file->second;
  info->file_offset = region->backing.offset;
}

void Target::forget_file(uint64_t inode) {
  for (const auto& peer : peers_) {
    for (bool writable : {false, true}) {
      auto file = peer->files.find({inode, writable});
      if (file == peer->files.end()) continue;
      peer->forgets.push_back(file->second);
      peer->files.erase(file);
    }
    send_forgets(peer);
  }
}

void Target::send_forgets(const std::shared_ptr<Peer>& peer) {
  while (!peer->forgets.empty() && !peer->forgets_waiting) {
    Forget forget{};
    const auto count = static_cast<uint32_t>(std::min<size_t>(peer->forgets.size(), kMaxLookups));
    std::copy_n(peer->forgets.begin(), count, forget.file_ids);
    const Status status = send_packet(peer->socket->fd(), &forget, seal(forget, count));
    if (status.code() == Code::kBusy) {
      peer->forgets_waiting = true;
      peer->socket->when_writable([this, weak = std::weak_ptr(peer)] {
        if (auto live = weak.lock()) {
          live->forgets_waiting = false;
          send_forgets(live);
        }
      });
      return;
    }
    if (!status.ok()) return;  // the end of the connection is heard of elsewhere
    peer->forgets.erase(peer->forgets.begin(), peer->forgets.begin() + count);
  }
}

}  // namespace tidewire::transport::shm
