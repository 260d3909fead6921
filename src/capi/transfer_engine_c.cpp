// SPDX-License-Identifier: Apache-2.0
//
// transfer_engine_c.h over tidewire.h: everything here goes through the public C interface, so that both have one behaviour.
#include "tidewire/transfer_engine_c.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/settings.h"
#include "capi/handles.h"
#include "control/node.h"
#include "engine/protocol.h"
#include "topology/machine.h"

using namespace tidewire;

namespace {

// Positive codes of submit, status and free calls.
enum PositiveCode { kOk = 0, kInvalidArgument = 1, kTooManyRequests = 2, kNotRegistered = 3, kBatchBusy = 4, kSocket = 102, kMemory = 302 };
// Negative codes of the others.
constexpr int kErrInvalidArgument = -1, kErrNotRegistered = -3, kErrOverlapped = -7, kErrMemory = -302;

int negative(tw_code code) {
  switch (code) {
    case TW_OK: return 0;
    case TW_NOT_FOUND:
    case TW_NOT_REGISTERED: return kErrNotRegistered;
    case TW_OVERLAP: return kErrOverlapped;
    case TW_NO_MEMORY:
    case TW_NO_RESOURCES: return kErrMemory;
    default: return kErrInvalidArgument;
  }
}

int positive(tw_code code) {
  switch (code) {
    case TW_OK: return kOk;
    case TW_NOT_REGISTERED: return kNotRegistered;
    case TW_BUSY: return kBatchBusy;
    case TW_NO_MEMORY:
    case TW_NO_RESOURCES: return kMemory;
    case TW_UNREACHABLE:
    case TW_PEER_GONE: return kSocket;
    default: return kInvalidArgument;
  }
}

struct Batch {
  size_t capacity;
  // One submission each: the engine's batch and its share of the task numbers.
  struct Part {
    tw_batch_t batch;
    size_t first, count;
  };
  std::vector<Part> parts;
  size_t used = 0;
};

struct TransferEngine {
  std::string metadata, name;
  std::mutex mutex;
  tw_engine_t engine = 0;
  std::string protocol;
  std::vector<std::string> segments;                // index = segment id; 0 is this engine itself
  std::map<batch_id_t, std::shared_ptr<Batch>> batches;
  batch_id_t next_batch = 1;
};

// Engines by the pointer that callers hold: what is not in here was never created, or is destroyed.
struct Registry {
  std::mutex mutex;
  std::map<void*, std::shared_ptr<TransferEngine>> engines;
};
Registry& registry() {
  static Registry* const one = new Registry;
  return *one;
}

std::shared_ptr<TransferEngine> find(transfer_engine_t handle) {
  std::lock_guard lock(registry().mutex);
  const auto found = registry().engines.find(handle);
  return found == registry().engines.end() ? nullptr : found->second;
}

void complain(const char* call) { log::error(call, "{} failed: {}", call, tw_last_error()); }

tw_code start(TransferEngine& engine, const std::string& protocol) {
  const tw_engine_options options{sizeof options, engine.name.c_str(), engine.metadata.c_str(), protocol.c_str(), nullptr, nullptr};
  const tw_code code = tw_engine_create(&options, &engine.engine);
  if (code == TW_OK) {
    engine.protocol = protocol;
    char address[512];
    if (tw_engine_address(engine.engine, address, sizeof address) == TW_OK) engine.segments = {address};
  }
  return code;
}

std::shared_ptr<Batch> find_batch(TransferEngine& engine, batch_id_t id) {
  std::lock_guard lock(engine.mutex);
  const auto found = engine.batches.find(id);
  return found == engine.batches.end() ? nullptr : found->second;
}

// The peer handle of a segment: the engine gives the same one for the same name, and asks the peer anew when it lost contact.
tw_code peer_of(TransferEngine& engine, int64_t segment, tw_peer_t* peer) {
  std::string name;
  {
    std::lock_guard lock(engine.mutex);
    if (segment < 0 || static_cast<size_t>(segment) >= engine.segments.size()) return TW_INVALID_ARGUMENT;
    name = engine.segments[static_cast<size_t>(segment)];
  }
  return tw_peer_open(engine.engine, name.c_str(), peer);
}

int submit(transfer_engine_t handle, batch_id_t id, struct transfer_request* entries, size_t count, const notify_msg_t* notify) {
  const auto engine = find(handle);
  if (!engine || (count > 0 && !entries)) return kInvalidArgument;
  const auto batch = find_batch(*engine, id);
  if (!batch) return kInvalidArgument;
  {
    std::lock_guard lock(engine->mutex);
    if (count > batch->capacity - batch->used) return kTooManyRequests;
  }
  if (count == 0 && !notify) return kOk;
  std::vector<tw_transfer> transfers;
  std::map<int32_t, tw_peer_t> peers;
  for (size_t i = 0; i < count; ++i) {
    const transfer_request& entry = entries[i];
    tw_peer_t& peer = peers[entry.target_id];
    if (peer == 0) {
      const tw_code code = peer_of(*engine, entry.target_id, &peer);
      if (code != TW_OK) {
        complain("submitTransfer");
        return positive(code);
      }
    }
    transfers.push_back({entry.opcode, 0, entry.source, peer, entry.target_offset, entry.length});
  }
  tw_submit_options options{sizeof options, 0, nullptr, nullptr, 0};
  if (notify) {
    options.notify_name = notify->name ? notify->name : "";
    options.notify_message = notify->msg ? notify->msg : "";
    options.notify_length = notify->msg ? std::strlen(notify->msg) : 0;
  }
  tw_batch_t submitted = 0;
  const tw_code code = tw_submit(engine->engine, transfers.data(), transfers.size(), &options, &submitted);
  if (code != TW_OK) {
    complain("submitTransfer");
    return positive(code);
  }
  std::lock_guard lock(engine->mutex);
  batch->parts.push_back({submitted, batch->used, count});
  batch->used += count;
  return kOk;
}

}  // namespace

extern "C" {

transfer_engine_t createTransferEngine(const char* metadata, const char* local_server_name, const char* host, uint64_t rpc_port, int) {
  auto engine = std::make_shared<TransferEngine>();
  engine->metadata = metadata ? metadata : "P2PHANDSHAKE";
  const bool p2p = engine->metadata.empty() || engine->metadata == "P2PHANDSHAKE";
  // With P2P the server name is the address; a separate host and port may complete it.
  std::string name = local_server_name ? local_server_name : "";
  if ((name.empty() || !p2p) && host && *host) name = host;
  const auto parsed = control::parse_address(name.empty() ? "127.0.0.1" : name);
  if (parsed.ok() && !parsed->has_port && rpc_port > 0 && rpc_port <= 65535 && host && *host) {
    control::HostPort full = *parsed;
    full.port = static_cast<uint16_t>(rpc_port);
    full.has_port = true;
    name = full.to_string();
  }
  engine->name = name.empty() ? "127.0.0.1" : name;
  if (start(*engine, "auto") != TW_OK) {
    complain("createTransferEngine");
    return nullptr;
  }
  std::lock_guard lock(registry().mutex);
  void* const handle = engine.get();
  registry().engines[handle] = std::move(engine);
  return handle;
}

void destroyTransferEngine(transfer_engine_t handle) {
  std::shared_ptr<TransferEngine> engine;
  {
    std::lock_guard lock(registry().mutex);
    const auto found = registry().engines.find(handle);
    if (found == registry().engines.end()) return;
    engine = std::move(found->second);
    registry().engines.erase(found);
  }
  tw_engine_destroy(engine->engine);
  std::lock_guard lock(engine->mutex);
  for (const auto& [id, batch] : engine->batches)
    for (const Batch::Part& part : batch->parts) tw_batch_release(part.batch);
}

int getLocalIpAndPort(transfer_engine_t handle, char* buffer, size_t length) {
  const auto engine = find(handle);
  if (!engine || !buffer || length == 0) return -1;
  char address[512];
  if (tw_engine_address(engine->engine, address, sizeof address) != TW_OK) return -1;
  const size_t copied = std::min(std::strlen(address), length - 1);
  std::memcpy(buffer, address, copied);
  buffer[copied] = '\0';
  return 0;
}

int discoverTopology(transfer_engine_t handle) { return find(handle) ? 0 : -1; }

transport_t installTransport(transfer_engine_t handle, const char* proto, void**) {
  const auto engine = find(handle);
  if (!engine || !proto) return nullptr;
  const auto settings = Settings::load({});
  std::vector<std::string> devices;
  for (const auto& device : topology::discover().fabrics) devices.push_back(device.name);
  const auto choice = settings.ok() ? engine::choose_protocol(proto, *settings, devices) : Result<engine::Protocol>(settings.status());
  if (!choice.ok()) {
    log::error("installTransport", "installTransport failed: {}", choice.status().message());
    return nullptr;
  }
  if (!choice->note.empty()) log::warn("protocol_fallback", "{}", choice->note);
  // The engine runs what it needs from its creation on: the transport is the engine's own.
  return handle;
}

int uninstallTransport(transfer_engine_t handle, const char*) { return find(handle) ? 0 : -1; }

segment_id_t openSegment(transfer_engine_t handle, const char* segment_name) {
  const auto engine = find(handle);
  if (!engine || !segment_name) return -1;
  const char* const name = segment_name[0] == '/' ? segment_name + 1 : segment_name;
  tw_peer_t peer = 0;
  if (tw_peer_open(engine->engine, name, &peer) != TW_OK) {
    complain("openSegment");
    return -1;
  }
  std::lock_guard lock(engine->mutex);
  const auto found = std::find(engine->segments.begin() + 1, engine->segments.end(), name);
  if (found != engine->segments.end()) return static_cast<segment_id_t>(found - engine->segments.begin());
  engine->segments.push_back(name);
  return static_cast<segment_id_t>(engine->segments.size() - 1);
}

segment_id_t openSegmentNoCache(transfer_engine_t handle, const char* segment_name) {
  const auto engine = find(handle);
  if (!engine || !segment_name) return -1;
  // A probe asks the peer itself, whatever is known of it.
  if (tw_peer_probe(engine->engine, segment_name[0] == '/' ? segment_name + 1 : segment_name, 0) != TW_OK) {
    complain("openSegmentNoCache");
    return -1;
  }
  return openSegment(handle, segment_name);
}

int closeSegment(transfer_engine_t handle, segment_id_t) { return find(handle) ? 0 : -1; }
int removeLocalSegment(transfer_engine_t handle, const char*) { return find(handle) ? 0 : -1; }
int syncSegmentCache(transfer_engine_t handle) { return find(handle) ? 0 : -1; }
int warmupEfaSegment(transfer_engine_t handle, const char*) { return find(handle) ? 0 : -1; }

int registerLocalMemory(transfer_engine_t handle, void* addr, size_t length, const char* location, int remote_accessible) {
  const auto engine = find(handle);
  if (!engine) return kErrInvalidArgument;
  const tw_code code = tw_register(engine->engine, addr, length, location, remote_accessible ? TW_REMOTE_READ_WRITE : TW_REMOTE_NONE);
  if (code != TW_OK) complain("registerLocalMemory");
  return negative(code);
}

int unregisterLocalMemory(transfer_engine_t handle, void* addr) {
  const auto engine = find(handle);
  if (!engine) return kErrInvalidArgument;
  const tw_code code = tw_unregister(engine->engine, addr);
  if (code != TW_OK) complain("unregisterLocalMemory");
  return negative(code);
}

int registerLocalMemoryBatch(transfer_engine_t handle, buffer_entry_t* list, size_t count, const char* location) {
  const auto engine = find(handle);
  if (!engine || (count > 0 && !list)) return kErrInvalidArgument;
  std::vector<tw_range> ranges;
  for (size_t i = 0; i < count; ++i) ranges.push_back({list[i].addr, list[i].length});
  const tw_code code = tw_register_many(engine->engine, ranges.data(), ranges.size(), location, TW_REMOTE_READ_WRITE);
  if (code != TW_OK) complain("registerLocalMemoryBatch");
  return negative(code);
}

int unregisterLocalMemoryBatch(transfer_engine_t handle, void** list, size_t count) {
  const auto engine = find(handle);
  if (!engine || (count > 0 && !list)) return kErrInvalidArgument;
  const tw_code code = tw_unregister_many(engine->engine, list, count);
  if (code != TW_OK) complain("unregisterLocalMemoryBatch");
  return negative(code);
}

batch_id_t allocateBatchID(transfer_engine_t handle, size_t batch_size) {
  const auto engine = find(handle);
  if (!engine) return INVALID_BATCH;
  std::lock_guard lock(engine->mutex);
  const batch_id_t id = engine->next_batch++;
  engine->batches[id] = std::make_shared<Batch>(Batch{batch_size, {}, 0});
  return id;
}

int submitTransfer(transfer_engine_t handle, batch_id_t batch_id, struct transfer_request* entries, size_t count) {
  return submit(handle, batch_id, entries, count, nullptr);
}

int submitTransferWithNotify(transfer_engine_t handle, batch_id_t batch_id, struct transfer_request* entries, size_t count, notify_msg_t notify) {
  return submit(handle, batch_id, entries, count, &notify);
}

int getTransferStatus(transfer_engine_t handle, batch_id_t batch_id, size_t task_id, struct transfer_status* status) {
  const auto engine = find(handle);
  if (!engine || !status) return kInvalidArgument;
  const auto batch = find_batch(*engine, batch_id);
  if (!batch) return kInvalidArgument;
  std::lock_guard lock(engine->mutex);
  for (const Batch::Part& part : batch->parts) {
    if (task_id < part.first || task_id >= part.first + part.count) continue;
    tw_transfer_status found;
    const tw_code code = tw_batch_transfer_status(part.batch, task_id - part.first, &found);
    if (code != TW_OK) return positive(code);
    status->status = found.state;
    status->transferred_bytes = found.transferred_bytes;
    return kOk;
  }
  return kInvalidArgument;
}

int freeBatchID(transfer_engine_t handle, batch_id_t batch_id) {
  const auto engine = find(handle);
  if (!engine) return kInvalidArgument;
  const auto batch = find_batch(*engine, batch_id);
  if (!batch) return kInvalidArgument;
  std::lock_guard lock(engine->mutex);
  for (const Batch::Part& part : batch->parts) {
    tw_batch_status status;
    if (tw_batch_poll(part.batch, &status) == TW_OK && (status.state == TW_STATE_WAITING || status.state == TW_STATE_PENDING)) return kBatchBusy;
  }
  for (const Batch::Part& part : batch->parts) tw_batch_release(part.batch);
  engine->batches.erase(batch_id);
  return kOk;
}

notify_msg_t* getNotifsFromEngine(transfer_engine_t handle, int* size) {
  if (size) *size = 0;
  const auto engine = find(handle);
  if (!engine || !size) return nullptr;
  tw_notification* list = nullptr;
  size_t count = 0;
  if (tw_notifications_take(engine->engine, &list, &count) != TW_OK || count == 0) return nullptr;
  auto* messages = static_cast<notify_msg_t*>(std::calloc(count, sizeof(notify_msg_t)));
  for (size_t i = 0; messages && i < count; ++i) {
    messages[i].name = strdup(list[i].name);
    messages[i].msg = static_cast<char*>(std::malloc(list[i].length + 1));
    if (messages[i].msg) std::memcpy(messages[i].msg, list[i].message, list[i].length + 1);
  }
  tw_notifications_free(list, count);
  if (messages) *size = static_cast<int>(count);
  return messages;
}

int freeNotifsMsgBuf(notify_msg_t* messages, int size) {
  for (int i = 0; messages && i < size; ++i) {
    std::free(messages[i].name);
    std::free(messages[i].msg);
  }
  std::free(messages);
  return 0;
}

int genNotifyInEngine(transfer_engine_t handle, uint64_t target_id, notify_msg_t notify) {
  const auto engine = find(handle);
  if (!engine || !notify.name || !notify.msg) return -1;
  tw_peer_t peer = 0;
  if (peer_of(*engine, static_cast<int64_t>(target_id), &peer) != TW_OK) {
    complain("genNotifyInEngine");
    return -1;
  }
  const tw_code code = tw_notify(engine->engine, peer, notify.name, notify.msg, std::strlen(notify.msg), 0);
  if (code != TW_OK) complain("genNotifyInEngine");
  return negative(code);
}

int getNicLoadStats(transfer_engine_t handle, nic_load_stat_t*, size_t* count) {
  if (!find(handle) || !count) return kInvalidArgument;
  *count = 0;
  return kOk;
}

void enableGracefulShutdown(transfer_engine_t) {
  // Engines always shut down gracefully, and never through signal handlers of their own.
}

int showLinks(transfer_engine_t handle, char* buffer, size_t length, int) {
  const auto engine = find(handle);
  if (!engine || !buffer || length == 0) return -1;
  size_t needed = 0;
  (void)tw_engine_status_json(engine->engine, nullptr, 0, &needed);
  std::vector<char> text(needed + 4096);
  if (tw_engine_status_json(engine->engine, text.data(), text.size(), &needed) != TW_OK) return -1;
  const size_t copied = std::min(std::strlen(text.data()), length - 1);
  std::memcpy(buffer, text.data(), copied);
  buffer[copied] = '\0';
  return 0;
}

}  // extern "C"
