// SPDX-License-Identifier: Apache-2.0
//
// tidewire.h: transfers in the order of a CUDA stream.
#include <map>
#include <mutex>

#include "base/log.h"
#include "capi/handles.h"
#include "memory/cuda_stream.h"

using namespace tidewire;
using namespace tidewire::capi;

namespace {

// What went wrong on a stream after the call that queued it had returned: told by the next call for that stream.
struct StreamFailures {
  std::mutex mutex;
  std::map<uint64_t, Status> by_stream;
};
StreamFailures& failures() {
  static auto* const all = new StreamFailures;
  return *all;
}

Status take_failure(uint64_t stream) {
  std::lock_guard lock(failures().mutex);
  auto found = failures().by_stream.find(stream);
  if (found == failures().by_stream.end()) return {};
  Status status = found->second.with_context(fmt::format(
      "an earlier transfer on stream {:#x} failed, so that what followed on it worked with old bytes", stream));
  failures().by_stream.erase(found);
  return status;
}

}  // namespace

extern "C" tw_code tw_transfer_in_stream(tw_engine_t handle, tw_peer_t peer_handle, tw_opcode opcode,
                                         const uint64_t* local, const uint64_t* remote, const uint64_t* lengths,
                                         size_t count, uint64_t stream) {
  return guarded([&]() -> Status {
    if (count > 0 && (!local || !remote || !lengths))
      return Status(Code::kInvalidArgument, "an address or length array is NULL with a count");
    if (opcode != TW_READ && opcode != TW_WRITE)
      return Status::error(Code::kInvalidArgument, "opcode {} is neither TW_READ nor TW_WRITE",
                           static_cast<int>(opcode));
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(lookup(tables().engines, handle, "engine", &entry));
    std::shared_ptr<PeerHandle> peer;
    TW_RETURN_IF_ERROR(lookup(tables().peers, peer_handle, "peer", &peer));
    if (peer->engine != entry->engine)
      return Status::error(Code::kInvalidArgument, "peer handle {:#x} belongs to another engine", peer_handle);
    TW_RETURN_IF_ERROR(take_failure(stream));
    struct Lists {
      std::vector<uint64_t> local, remote, lengths;
    };
    auto lists =
        std::make_shared<Lists>(Lists{{local, local + count}, {remote, remote + count}, {lengths, lengths + count}});
    return cuda::run_in_stream(stream, [=] {
      Status status;
      auto batch = entry->engine->submit_lists(peer->peer, static_cast<transport::Opcode>(opcode), lists->local.data(),
                                               lists->remote.data(), lists->lengths.data(), count, {});
      if (!batch.ok()) {
        status = batch.status();
      } else {
        (*batch)->wait(kNever, false);  // bounded by the transfer's deadline
        if ((*batch)->status().code != TW_OK) status = (*batch)->error();
      }
      if (status.ok()) return;
      log::error("stream_transfer", "a transfer on CUDA stream {:#x} failed: {}", stream, status.to_string());
      std::lock_guard lock(failures().mutex);
      failures().by_stream.emplace(stream, status);
    });
  });
}
