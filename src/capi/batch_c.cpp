// SPDX-License-Identifier: Apache-2.0
//
// tidewire.h: transfers.
#include "capi/handles.h"

using namespace tidewire;
using namespace tidewire::capi;

namespace {

Status find_batch(tw_batch_t handle, std::shared_ptr<BatchHandle>* out) { return lookup(tables().batches, handle, "batch", out); }

Result<engine::SubmitOptions> options_of(const tw_submit_options* options) {
  engine::SubmitOptions wanted;
  if (!options) return wanted;
  if (options->struct_size != sizeof(tw_submit_options))
    return Status::error(Code::kInvalidArgument, "tw_submit_options.struct_size is {}, this library has {}: set it to sizeof",
                         options->struct_size, sizeof(tw_submit_options));
  wanted.deadline = options->deadline_ns > INT64_MAX / 2 ? INT64_MAX / 2 : static_cast<Nanos>(options->deadline_ns);
  if (options->notify_name) {
    if (options->notify_length > 0 && !options->notify_message) return Status(Code::kInvalidArgument, "notify_message is NULL with a length");
    if (options->notify_length > control::kMaxNotificationBytes)
      return Status::error(Code::kInvalidArgument, "notification of {} bytes: at most {} are allowed", options->notify_length,
                           control::kMaxNotificationBytes);
    wanted.notify = true;
    wanted.notify_name = options->notify_name;
    wanted.notify_message.assign(static_cast<const char*>(options->notify_message), options->notify_length);
  }
  return wanted;
}

tw_batch_t hand_out(const std::shared_ptr<EngineEntry>& entry, engine::BatchPtr batch) {
  return tables().batches.insert(std::make_shared<BatchHandle>(BatchHandle{entry->engine, std::move(batch)}));
}

}  // namespace

extern "C" {

tw_code tw_submit(tw_engine_t handle, const tw_transfer* transfers, size_t count, const tw_submit_options* options, tw_batch_t* out) {
  return guarded([&]() -> Status {
    if (!out) return Status(Code::kInvalidArgument, "out is NULL");
    if (count > 0 && !transfers) return Status(Code::kInvalidArgument, "transfers is NULL with a count");
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(lookup(tables().engines, handle, "engine", &entry));
    TW_ASSIGN_OR_RETURN(const engine::SubmitOptions wanted, options_of(options));
    std::vector<engine::TransferSpec> specs;
    specs.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      const tw_transfer& transfer = transfers[i];
      engine::TransferSpec spec{transport::Opcode::kWrite, reinterpret_cast<uint64_t>(transfer.local), transfer.remote, transfer.length, nullptr, {}};
      if (transfer.opcode == TW_READ) {
        spec.opcode = transport::Opcode::kRead;
      } else if (transfer.opcode != TW_WRITE) {
        spec.bad = Status::error(Code::kInvalidArgument, "transfer {}: opcode {} is neither TW_READ nor TW_WRITE", i, transfer.opcode);
      }
      std::shared_ptr<PeerHandle> peer;
      const Status found = lookup(tables().peers, transfer.peer, "peer", &peer);
      if (found.ok() && peer->engine == entry->engine) {
        spec.peer = peer->peer;
      } else if (spec.bad.ok()) {
        spec.bad = Status::error(Code::kInvalidArgument, "transfer {}: {}", i, found.ok() ? "its peer belongs to another engine" : found.message());
      }
      specs.push_back(std::move(spec));
    }
    TW_ASSIGN_OR_RETURN(engine::BatchPtr batch, entry->engine->submit(specs, wanted));
    *out = hand_out(entry, std::move(batch));
    return {};
  });
}

tw_code tw_submit_lists(tw_engine_t handle, tw_peer_t peer_handle, tw_opcode opcode, const uint64_t* local, const uint64_t* remote,
                        const uint64_t* lengths, size_t count, const tw_submit_options* options, tw_batch_t* out) {
  return guarded([&]() -> Status {
    if (!out) return Status(Code::kInvalidArgument, "out is NULL");
    if (count > 0 && (!local || !remote || !lengths)) return Status(Code::kInvalidArgument, "an address or length array is NULL with a count");
    if (opcode != TW_READ && opcode != TW_WRITE)
      return Status::error(Code::kInvalidArgument, "opcode {} is neither TW_READ nor TW_WRITE", static_cast<int>(opcode));
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(lookup(tables().engines, handle, "engine", &entry));
    std::shared_ptr<PeerHandle> peer;
    TW_RETURN_IF_ERROR(lookup(tables().peers, peer_handle, "peer", &peer));
    if (peer->engine != entry->engine) return Status::error(Code::kInvalidArgument, "peer handle {:#x} belongs to another engine", peer_handle);
    TW_ASSIGN_OR_RETURN(const engine::SubmitOptions wanted, options_of(options));
    TW_ASSIGN_OR_RETURN(engine::BatchPtr batch, entry->engine->submit_lists(peer->peer, static_cast<transport::Opcode>(opcode), local, remote,
                                                                            lengths, count, wanted));
    *out = hand_out(entry, std::move(batch));
    return {};
  });
}

tw_code tw_batch_wait(tw_batch_t handle, uint64_t timeout_ns, tw_batch_status* status) {
  std::shared_ptr<BatchHandle> found;
  return guarded([&]() -> Status {
    TW_RETURN_IF_ERROR(find_batch(handle, &found));
    const Nanos now = monotonic_now();
    const Nanos until = timeout_ns > static_cast<uint64_t>(kNever - now) ? kNever : now + static_cast<Nanos>(timeout_ns);
    const bool done = found->batch->wait(until, found->engine->settings().busy_poll);
    const tw_batch_status now_status = found->batch->status();
    if (status) *status = now_status;
    if (!done) return Status(Code::kBusy, "the batch is not terminal yet");
    if (now_status.code == TW_OK) return {};
    return Status(static_cast<Code>(now_status.code),
                  fmt::format("{} of {} transfers failed; the first: {}", now_status.failed, now_status.transfers, found->batch->error().message()));
  });
}

tw_code tw_batch_poll(tw_batch_t handle, tw_batch_status* status) {
  return guarded([&]() -> Status {
    if (!status) return Status(Code::kInvalidArgument, "status is NULL");
    std::shared_ptr<BatchHandle> found;
    TW_RETURN_IF_ERROR(find_batch(handle, &found));
    *status = found->batch->status();
    return {};
  });
}

tw_code tw_batch_transfer_status(tw_batch_t handle, size_t index, tw_transfer_status* status) {
  return guarded([&]() -> Status {
    if (!status) return Status(Code::kInvalidArgument, "status is NULL");
    std::shared_ptr<BatchHandle> found;
    TW_RETURN_IF_ERROR(find_batch(handle, &found));
    TW_ASSIGN_OR_RETURN(*status, found->batch->transfer_status(index));
    return {};
  });
}

tw_code tw_batch_error(tw_batch_t handle, char* out, size_t size) {
  return guarded([&]() -> Status {
    if (!out || size == 0) return Status(Code::kInvalidArgument, "out is NULL or has no room");
    std::shared_ptr<BatchHandle> found;
    TW_RETURN_IF_ERROR(find_batch(handle, &found));
    const std::string text = found->batch->error().message();
    const size_t length = std::min(text.size(), size - 1);
    std::memcpy(out, text.data(), length);
    out[length] = '\0';
    return {};
  });
}

tw_code tw_batch_cancel(tw_batch_t handle) {
  return guarded([&]() -> Status {
    std::shared_ptr<BatchHandle> found;
    TW_RETURN_IF_ERROR(find_batch(handle, &found));
    found->batch->cancel();
    return {};
  });
}

tw_code tw_batch_fd(tw_batch_t handle, int* out) {
  return guarded([&]() -> Status {
    if (!out) return Status(Code::kInvalidArgument, "out is NULL");
    std::shared_ptr<BatchHandle> found;
    TW_RETURN_IF_ERROR(find_batch(handle, &found));
    TW_ASSIGN_OR_RETURN(*out, found->batch->event_fd());
    return {};
  });
}

tw_code tw_batch_release(tw_batch_t handle) {
  return guarded([&]() -> Status {
    std::shared_ptr<BatchHandle> found;
    TW_RETURN_IF_ERROR(find_batch(handle, &found));
    if (!found->batch->terminal()) return Status(Code::kBusy, "the batch is not terminal yet: wait or cancel first");
    if (!tables().batches.remove(handle)) return Status::error(Code::kNotFound, "batch handle {:#x} was released by another thread", handle);
    return {};
  });
}

}  // extern "C"
