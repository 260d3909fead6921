// SPDX-License-Identifier: Apache-2.0
//
// Setting a channel up and asking for regions. All on the loop's thread.
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "base/log.h"
#include "transport/shm/channel.h"
#include "transport/shm/host_id.h"

namespace tidewire::transport::shm {
namespace {

constexpr Nanos kConnectAgain = 5 * kMillisecond;  // when the target's queue of connections is full

}  // namespace

void Channel::open() {
  context_.loop.post([self = shared_from_this()] {
    if (self->phase_.load() != Phase::kOpening) return;
    self->timer_.at(self->deadline_, [weak = self->weak_from_this()] {
      if (auto live = weak.lock(); live && live->phase_.load() == Phase::kOpening) {
        live->go_down(Status::error(Code::kTimeout, "{} did not answer on local socket '{}' in time",
                                    live->remote_.name, live->socket_name_));
      }
    });
    self->connect();
  });
}

void Channel::connect() {
  auto socket = connect_local(socket_name_);
  if (socket.status().code() == Code::kBusy) {
    retry_.at(monotonic_now() + kConnectAgain, [weak = weak_from_this()] {
      if (auto live = weak.lock(); live && live->phase_.load() == Phase::kOpening) live->connect();
    });
    return;
  }
  if (!socket.ok()) return go_down(socket.status().with_context(remote_.name + " can't be reached over shared memory"));
  auto credentials = peer_credentials(socket->get());
  if (!credentials.ok()) return go_down(credentials.status());
  if (!trusted(*credentials)) {
    return go_down(Status::error(Code::kUnauthenticated,
                                 "local socket '{}' belongs to user {}, not to this user or root", socket_name_,
                                 credentials->uid));
  }
  remote_.pid = credentials->pid;
  auto watch = Watch::create(context_.loop, std::move(socket).value());
  if (!watch.ok()) return go_down(watch.status());
  socket_ = std::move(watch).value();

  facts_.initiator = context_.identity.instance;
  facts_.target = expected_;
  random_bytes(facts_.initiator_nonce, sizeof facts_.initiator_nonce);
  Hello hello{};
  std::copy(facts_.initiator.begin(), facts_.initiator.end(), hello.initiator);
  std::copy(expected_.begin(), expected_.end(), hello.expected);
  std::memcpy(hello.nonce, facts_.initiator_nonce, sizeof hello.nonce);
  std::memcpy(hello.host_id, host_id().data(), std::min(host_id().size(), sizeof hello.host_id));
  if (Status status = send_packet(socket_->fd(), &hello, seal(hello)); !status.ok()) return go_down(status);
  socket_->on_readable([weak = weak_from_this()] {
    auto live = weak.lock();
    return live != nullptr && live->on_packets();
  });
}

bool Channel::on_packets() {
  while (socket_ != nullptr) {
    Received received;
    Status status = receive_packet(socket_->fd(), true, &received);
    if (status.ok() && received.bytes.empty()) return true;
    if (status.ok()) status = on_packet(received);
    if (!status.ok()) {
      if (status.code() == Code::kPeerGone) {
        status = Status::error(Code::kPeerGone, "{} (process {}): {}", remote_.name, remote_.pid, status.message());
      }
      go_down(status);
    }
  }
  return false;
}

Status Channel::on_packet(Received& received) {
  Refused refused;
  if (awaiting_ != Awaiting::kAnswers && parse(received.bytes, &refused)) {
    std::copy_n(refused.target, 16, seen_.begin());
    refused.reason[sizeof refused.reason - 1] = 0;
    const bool known = refused.code > 0 && refused.code <= static_cast<int32_t>(Code::kInternal);
    return Status::error(known ? static_cast<Code>(refused.code) : Code::kProtocol,
                         "{} refused the same-host channel: {}", remote_.name, std::string_view(refused.reason));
  }
  switch (awaiting_) {
    case Awaiting::kChallenge: {
      Challenge challenge;
      if (!parse(received.bytes, &challenge)) break;
      return on_challenge(challenge);
    }
    case Awaiting::kWelcome: {
      Welcome welcome;
      if (!parse(received.bytes, &welcome)) break;
      return on_welcome(welcome, std::move(received.descriptors));
    }
    case Awaiting::kAnswers: {
      Regions answer;
      if (parse(received.bytes, &answer)) return on_regions(answer, std::move(received.descriptors));
      Forget forget;
      if (!parse(received.bytes, &forget)) break;
      for (uint32_t i = 0; i < forget.header.count; ++i) {
        remote_.map.forget_file(forget.file_ids[i]);
        files_.erase(forget.file_ids[i]);
      }
      return {};
    }
  }
  return Status::error(Code::kProtocol,
                       "{} sent an unexpected packet of {} bytes, type {}; this side speaks version {}", remote_.name,
                       received.bytes.size(), static_cast<unsigned>(packet_type(received.bytes)), kVersion);
}

Status Channel::on_challenge(const Challenge& challenge) {
  std::copy_n(challenge.target, 16, seen_.begin());
  if (seen_ != expected_) return Status(Code::kPeerGone, "another instance is at local socket '" + socket_name_ + "'");
  const std::string& secret = context_.identity.secret;
  std::memcpy(facts_.target_nonce, challenge.nonce, sizeof challenge.nonce);
  if (secret.empty() != (challenge.has_secret == 0) || !proof_matches(secret, Role::kTarget, facts_, challenge.proof)) {
    return Status::error(Code::kUnauthenticated, "{} {}; give both engines the same secret.file", remote_.name,
                         secret.empty()              ? "wants a cluster secret and this engine has none"
                         : challenge.has_secret == 0 ? "has no cluster secret and this engine wants one"
                                                     : "has another cluster secret than this engine");
  }
  Proof proof{};
  make_proof(secret, Role::kInitiator, facts_, proof.proof);
  proof.has_secret = secret.empty() ? 0 : 1;
  awaiting_ = Awaiting::kWelcome;
  return send_packet(socket_->fd(), &proof, seal(proof));
}

Status Channel::on_welcome(const Welcome& welcome, std::vector<UniqueFd> descriptors) {
  if (welcome.slots != kSlots || descriptors.size() > 2)
    return Status(Code::kProtocol, remote_.name + " has guard pages of another layout");
  if (descriptors.size() < 2) {
    return Status(Code::kNoResources, "the guard pages of " + remote_.name +
                                          " did not arrive: out of descriptors; raise the limit (ulimit -n)");
  }
  TW_ASSIGN_OR_RETURN(remote_.state, StatePage::open(std::move(descriptors[0]), true));
  TW_ASSIGN_OR_RETURN(remote_.references, ReferencePage::open(std::move(descriptors[1]), false));
  remote_.foreign = prove_foreign(welcome);
  if (!remote_.foreign.ok()) {
    log::warn("shm_foreign", "only pool memory of {} goes through shared memory, the rest through TCP: {}",
              remote_.name, remote_.foreign.message());
  }
  // A forked child may keep the target's socket open beyond its death.
  if (UniqueFd process = watch_process(remote_.pid); process.valid()) {
    if (auto watch = Watch::create(context_.loop, std::move(process)); watch.ok()) {
      death_ = std::move(watch).value();
      death_->on_readable([weak = weak_from_this()] {
        if (auto live = weak.lock()) {
          live->go_down(Status::error(Code::kPeerGone, "{}: process {} ended", live->remote_.name, live->remote_.pid));
        }
        return false;
      });
    }
  }
  timer_.cancel();
  awaiting_ = Awaiting::kAnswers;
  Phase opening = Phase::kOpening;
  if (phase_.compare_exchange_strong(opening, Phase::kUp, std::memory_order_seq_cst))
    context_.events.on_channel_up(id_);
  return {};
}

// OK when reading the target's memory by its process id gives what the target said.
Status Channel::prove_foreign(const Welcome& welcome) const {
  if (remote_.pid <= 0)
    return Status(Code::kUnsupported,
                  "the peer is in a PID namespace that this process can't see; share the PID namespace");
  uint8_t value[sizeof welcome.probe_value] = {};
  const iovec local{value, sizeof value};
  const iovec remote{reinterpret_cast<void*>(welcome.probe_address), sizeof value};
  if (process_vm_readv(remote_.pid, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(sizeof value)) {
    if (std::memcmp(value, welcome.probe_value, sizeof value) == 0) return {};
    return Status::error(Code::kUnsupported,
                         "process {} is another process here than for the peer; share the PID namespace", remote_.pid);
  }
  const int error = errno;
  return Status::error(
      Code::kUnsupported,
      "the kernel refuses access to the memory of process {} ({}); set same_host.allow_ptrace at the peer, "
      "kernel.yama.ptrace_scope=0, or allow process_vm_readv in the container",
      remote_.pid, std::string(strerrorname_np(error) != nullptr ? strerrorname_np(error) : "?"));
}

// Asks for what parked chunks miss. One question at a time: chunks that park meanwhile profit from its answer.
void Channel::ask() {
  std::set<uint64_t> addresses;
  {
    std::lock_guard lock(parked_mutex_);
    ask_posted_ = false;
    if (asking_ || socket_ == nullptr) return;
    for (const auto& parked : parked_) {
      for (uint64_t address : parked.missing) {
        if (addresses.size() < kMaxLookups) addresses.insert(address);
      }
    }
  }
  if (addresses.empty()) return;
  Lookup lookup{};
  lookup.request = ++request_;
  std::copy(addresses.begin(), addresses.end(), lookup.addresses);
  asking_ = true;
  const Status status = send_packet(socket_->fd(), &lookup, seal(lookup, static_cast<uint32_t>(addresses.size())));
  if (!status.ok()) go_down(Status::error(Code::kPeerGone, "{}: {}", remote_.name, status.message()));
}

Result<RemoteRegionPtr> Channel::region_from(const RegionInfo& info, std::vector<UniqueFd>& descriptors) {
  const auto malformed = [&](const char* what) {
    return Status::error(Code::kProtocol, "{} described a region at {:#x} with a bad {}", remote_.name, info.address,
                         what);
  };
  auto region = std::make_shared<RemoteRegion>();
  if (info.length == 0 || info.address + info.length < info.address || info.asked - info.address >= info.length)
    return malformed("range");
  if (info.slot >= kSlots || info.epoch == 0) return malformed("slot");
  region->permission = static_cast<Permission>(info.permission);
  if (region->permission != Permission::kRead && region->permission != Permission::kReadWrite)
    return malformed("permission");
  region->address = info.address;
  region->length = info.length;
  region->slot = info.slot;
  region->state = state_word(info.epoch, region->permission, true);
  region->backing = info.backing;
  region->file_id = info.file_id;
  region->file_offset = info.file_offset;
  switch (info.backing) {
    case Backing::kForeign:
    case Backing::kDevice:
      return RemoteRegionPtr(region);
    case Backing::kFile:
      break;
    default:
      return malformed("backing");
  }
  if (info.descriptor != kNoFile) {
    if (info.descriptor >= descriptors.size() || !descriptors[info.descriptor].valid()) {
      return Status(Code::kUnsupported, "the memory of " + remote_.name +
                                            " could not be received: out of descriptors; raise the limit (ulimit -n)");
    }
    auto mapping =
        Mapping::create(std::move(descriptors[info.descriptor]), region->permission == Permission::kReadWrite);
    if (!mapping.ok()) {
      return mapping.status().code() == Code::kProtocol ? mapping.status()
                                                        : Status(Code::kUnsupported, mapping.status().message());
    }
    files_[info.file_id] = std::move(mapping).value();
  }
  auto file = files_.find(info.file_id);
  if (file == files_.end()) {
    return Status(Code::kUnsupported, "the memory of " + remote_.name +
                                          " could not be mapped earlier; free descriptors or memory and reconnect");
  }
  region->mapping = file->second;
  if (info.file_offset > region->mapping->size() || info.length > region->mapping->size() - info.file_offset)
    return malformed("file range");
  return RemoteRegionPtr(region);
}

Status Channel::on_regions(const Regions& answer, std::vector<UniqueFd> descriptors) {
  if (!asking_ || answer.request != request_)
    return Status(Code::kProtocol, remote_.name + " answered what nobody asked");
  asking_ = false;
  std::map<uint64_t, Status> refused;
  for (uint32_t i = 0; i < answer.header.count; ++i) {
    const RegionInfo& info = answer.regions[i];
    if (info.code != 0) {
      const bool denied = info.code == TW_PERMISSION_DENIED;
      refused[info.asked] =
          denied ? Status::error(Code::kPermissionDenied,
                                 "address {:#x} of {} lies in a region that forbids remote access", info.asked,
                                 remote_.name)
          : info.code == TW_UNSUPPORTED || info.code == TW_NO_MEMORY
              ? Status::error(Code::kUnsupported, "address {:#x} of {} can't be reached over shared memory", info.asked,
                              remote_.name)
              : Status::error(Code::kNotRegistered, "address {:#x} is not registered at {}", info.asked, remote_.name);
      continue;
    }
    auto region = region_from(info, descriptors);
    if (region.ok()) {
      remote_.map.insert(std::move(region).value());
    } else if (region.status().code() == Code::kProtocol) {
      return region.status();
    } else {
      refused[info.asked] = region.status();
    }
  }
  std::vector<Parked> parked;
  {
    std::lock_guard lock(parked_mutex_);
    parked.swap(parked_);
  }
  for (auto& each : parked) {
    const auto bad = std::find_if(each.missing.begin(), each.missing.end(),
                                  [&](uint64_t address) { return refused.contains(address); });
    if (bad != each.missing.end()) {
      if (!enter()) continue;
      finish_chunk(each.work, refused[*bad]);
      leave();
    } else if (!each.work->admitted) {
      if (!enter()) continue;
      readmit(each.work);
      leave();
    } else if (each.work->chunks.size() == 1) {
      run(each.work, each.chunk);  // a small one: at once
    } else {
      if (!context_.queue.push_again(each.work, each.chunk)) copy_here();
    }
  }
  return {};
}

}  // namespace tidewire::transport::shm
