// SPDX-License-Identifier: Apache-2.0
//
// tidewire.h: engines, memory, peers, notifications, the machine.
#include "base/settings_text.h"
#include "capi/handles.h"
#include "memory/test_device.h"
#include "topology/machine.h"
#include "topology/machine_text.h"

using namespace tidewire;
using namespace tidewire::capi;

namespace {

Status find_engine(tw_engine_t handle, std::shared_ptr<EngineEntry>* out) {
  return lookup(tables().engines, handle, "engine", out);
}

Status find_peer(tw_engine_t engine_handle, tw_peer_t handle, std::shared_ptr<PeerHandle>* out) {
  std::shared_ptr<EngineEntry> entry;
  TW_RETURN_IF_ERROR(find_engine(engine_handle, &entry));
  TW_RETURN_IF_ERROR(lookup(tables().peers, handle, "peer", out));
  if ((*out)->engine != entry->engine)
    return Status::error(Code::kInvalidArgument, "peer handle {:#x} belongs to another engine", handle);
  return {};
}

Status need(const void* pointer, const char* name) {
  if (!pointer) return Status::error(Code::kInvalidArgument, "{} is NULL", name);
  return {};
}

Result<Permission> permission_of(tw_permission permission) {
  switch (permission) {
    case TW_REMOTE_NONE: return Permission::kNone;
    case TW_REMOTE_READ: return Permission::kRead;
    case TW_REMOTE_READ_WRITE: return Permission::kReadWrite;
  }
  return Status::error(Code::kInvalidArgument, "permission {} is none of TW_REMOTE_NONE, _READ, _READ_WRITE", static_cast<int>(permission));
}

uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }
std::string text_or(const char* text, const char* fallback) { return text ? text : fallback; }
Nanos nanos_of(uint64_t nanoseconds) { return nanoseconds > INT64_MAX / 2 ? INT64_MAX / 2 : static_cast<Nanos>(nanoseconds); }

}  // namespace

extern "C" {

const char* tw_code_name(tw_code code) { return code_name(static_cast<Code>(code)); }
const char* tw_last_error(void) { return last_error().c_str(); }
const char* tw_version(void) { return TW_VERSION_STRING; }

tw_code tw_engine_create(const tw_engine_options* options, tw_engine_t* out) {
  return guarded([&]() -> Status {
    TW_RETURN_IF_ERROR(need(out, "out"));
    engine::EngineOptions wanted;
    if (options) {
      if (options->struct_size != sizeof(tw_engine_options))
        return Status::error(Code::kInvalidArgument, "tw_engine_options.struct_size is {}, this library has {}: set it to sizeof",
                             options->struct_size, sizeof(tw_engine_options));
      wanted.local_name = text_or(options->local_name, "127.0.0.1");
      wanted.metadata = text_or(options->metadata, "P2PHANDSHAKE");
      wanted.protocol = text_or(options->protocol, "auto");
      wanted.devices = text_or(options->devices, "");
      for (const char* const* one = options->settings; one && *one; ++one) wanted.settings.push_back(*one);
    }
    auto entry = std::make_shared<EngineEntry>();
    TW_ASSIGN_OR_RETURN(entry->engine, engine::Engine::create(wanted));
    *out = tables().engines.insert(std::move(entry));
    return {};
  });
}

tw_code tw_engine_destroy(tw_engine_t handle) {
  return guarded([&]() -> Status {
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(find_engine(handle, &entry));
    if (!tables().engines.remove(handle)) return Status::error(Code::kNotFound, "engine handle {:#x} was destroyed by another thread", handle);
    entry->engine->close();
    std::lock_guard lock(entry->mutex);
    for (const auto& [name, peer] : entry->peers) tables().peers.remove(peer.first);
    entry->peers.clear();
    return {};
  });
}

tw_code tw_engine_address(tw_engine_t handle, char* out, size_t size) {
  return guarded([&]() -> Status {
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(find_engine(handle, &entry));
    return copy_text(entry->engine->address(), out, size, nullptr);
  });
}

tw_code tw_engine_port(tw_engine_t handle, uint16_t* out) {
  return guarded([&]() -> Status {
    TW_RETURN_IF_ERROR(need(out, "out"));
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(find_engine(handle, &entry));
    *out = entry->engine->port();
    return {};
  });
}

tw_code tw_engine_status_json(tw_engine_t handle, char* out, size_t size, size_t* needed) {
  return guarded([&]() -> Status {
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(find_engine(handle, &entry));
    return copy_text(entry->engine->status_json(), out, size, needed);
  });
}

tw_code tw_register(tw_engine_t handle, void* address, uint64_t length, const char* location, tw_permission permission) {
  return guarded([&]() -> Status {
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(find_engine(handle, &entry));
    TW_ASSIGN_OR_RETURN(const Permission allowed, permission_of(permission));
    return entry->engine->register_memory(address_of(address), length, text_or(location, "*"), allowed);
  });
}

tw_code tw_unregister(tw_engine_t handle, void* address) {
  return guarded([&]() -> Status {
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(find_engine(handle, &entry));
    return entry->engine->unregister_memory(address_of(address));
  });
}

tw_code tw_register_many(tw_engine_t handle, const tw_range* ranges, size_t count, const char* location, tw_permission permission) {
  return guarded([&]() -> Status {
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(find_engine(handle, &entry));
    TW_ASSIGN_OR_RETURN(const Permission allowed, permission_of(permission));
    if (count > 0) TW_RETURN_IF_ERROR(need(ranges, "ranges"));
    std::vector<RegionTable::Range> list;
    for (size_t i = 0; i < count; ++i) list.push_back({address_of(ranges[i].address), ranges[i].length});
    return entry->engine->register_many(list, text_or(location, "*"), allowed);
  });
}

tw_code tw_unregister_many(tw_engine_t handle, void* const* addresses, size_t count) {
  return guarded([&]() -> Status {
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(find_engine(handle, &entry));
    if (count > 0) TW_RETURN_IF_ERROR(need(addresses, "addresses"));
    std::vector<uint64_t> list;
    for (size_t i = 0; i < count; ++i) list.push_back(address_of(addresses[i]));
    return entry->engine->unregister_many(list);
  });
}

tw_code tw_allocate(tw_engine_t handle, uint64_t length, const char* location, void** out) {
  return guarded([&]() -> Status {
    TW_RETURN_IF_ERROR(need(out, "out"));
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(find_engine(handle, &entry));
    TW_ASSIGN_OR_RETURN(const uint64_t address, entry->engine->allocate(length, text_or(location, "*")));
    *out = reinterpret_cast<void*>(address);
    return {};
  });
}

tw_code tw_free(tw_engine_t handle, void* address) {
  return guarded([&]() -> Status {
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(find_engine(handle, &entry));
    return entry->engine->free(address_of(address));
  });
}

tw_code tw_copy_in(tw_engine_t handle, void* destination, const void* source, uint64_t length) {
  return guarded([&]() -> Status {
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(find_engine(handle, &entry));
    if (length > 0) TW_RETURN_IF_ERROR(need(source, "source"));
    return entry->engine->copy(address_of(destination), const_cast<void*>(source), length, true);
  });
}

tw_code tw_copy_out(tw_engine_t handle, void* destination, const void* source, uint64_t length) {
  return guarded([&]() -> Status {
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(find_engine(handle, &entry));
    if (length > 0) TW_RETURN_IF_ERROR(need(destination, "destination"));
    return entry->engine->copy(address_of(source), destination, length, false);
  });
}

tw_code tw_peer_open(tw_engine_t handle, const char* name, tw_peer_t* out) {
  return guarded([&]() -> Status {
    TW_RETURN_IF_ERROR(need(name, "name"));
    TW_RETURN_IF_ERROR(need(out, "out"));
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(find_engine(handle, &entry));
    TW_ASSIGN_OR_RETURN(engine::PeerPtr peer, entry->engine->open(name));
    std::lock_guard lock(entry->mutex);
    auto& [peer_handle, count] = entry->peers[name];
    if (count == 0) peer_handle = tables().peers.insert(std::make_shared<PeerHandle>(PeerHandle{entry->engine, std::move(peer)}));
    ++count;
    *out = peer_handle;
    return {};
  });
}

tw_code tw_peer_close(tw_engine_t handle, tw_peer_t peer) {
  return guarded([&]() -> Status {
    std::shared_ptr<PeerHandle> found;
    TW_RETURN_IF_ERROR(find_peer(handle, peer, &found));
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(find_engine(handle, &entry));
    std::lock_guard lock(entry->mutex);
    const auto known = entry->peers.find(found->peer->name());
    if (known == entry->peers.end() || known->second.first != peer)
      return Status::error(Code::kNotFound, "peer handle {:#x} was closed already", peer);
    if (--known->second.second > 0) return {};
    entry->peers.erase(known);
    tables().peers.remove(peer);
    return {};
  });
}

tw_code tw_peer_probe(tw_engine_t handle, const char* name, uint64_t timeout_ns) {
  return guarded([&]() -> Status {
    TW_RETURN_IF_ERROR(need(name, "name"));
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(find_engine(handle, &entry));
    return entry->engine->probe(name, nanos_of(timeout_ns));
  });
}

tw_code tw_peer_first_region(tw_engine_t handle, tw_peer_t peer, uint64_t* address, uint64_t* length) {
  return guarded([&]() -> Status {
    std::shared_ptr<PeerHandle> found;
    TW_RETURN_IF_ERROR(find_peer(handle, peer, &found));
    TW_ASSIGN_OR_RETURN(const control::FirstRegion region, found->engine->first_region(found->peer));
    if (address) *address = region.address;
    if (length) *length = region.length;
    return {};
  });
}

tw_code tw_notify(tw_engine_t handle, tw_peer_t peer, const char* name, const void* message, size_t length, uint64_t timeout_ns) {
  return guarded([&]() -> Status {
    TW_RETURN_IF_ERROR(need(name, "name"));
    if (length > 0) TW_RETURN_IF_ERROR(need(message, "message"));
    std::shared_ptr<PeerHandle> found;
    TW_RETURN_IF_ERROR(find_peer(handle, peer, &found));
    if (length > control::kMaxNotificationBytes)
      return Status::error(Code::kInvalidArgument, "notification of {} bytes: at most {} are allowed", length, control::kMaxNotificationBytes);
    return found->engine->notify(found->peer, name, std::string(static_cast<const char*>(message), length), nanos_of(timeout_ns));
  });
}

tw_code tw_notifications_take(tw_engine_t handle, tw_notification** list, size_t* count) {
  return guarded([&]() -> Status {
    TW_RETURN_IF_ERROR(need(list, "list"));
    TW_RETURN_IF_ERROR(need(count, "count"));
    *list = nullptr;
    *count = 0;
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(find_engine(handle, &entry));
    const std::vector<control::Notification> taken = entry->engine->take_notifications();
    if (taken.empty()) return {};
    // One block: the entries, then their texts.
    size_t bytes = taken.size() * sizeof(tw_notification);
    for (const control::Notification& one : taken) bytes += one.name.size() + one.message.size() + one.sender.size() + 3;
    char* const block = static_cast<char*>(std::malloc(bytes));
    if (!block) throw std::bad_alloc();
    auto* const entries = reinterpret_cast<tw_notification*>(block);
    char* text = block + taken.size() * sizeof(tw_notification);
    const auto put = [&text](const std::string& value) {
      char* const begin = text;
      std::memcpy(begin, value.data(), value.size());
      begin[value.size()] = '\0';
      text += value.size() + 1;
      return begin;
    };
    for (size_t i = 0; i < taken.size(); ++i)
      entries[i] = {put(taken[i].name), put(taken[i].message), taken[i].message.size(), put(taken[i].sender)};
    *list = entries;
    *count = taken.size();
    return {};
  });
}

void tw_notifications_free(tw_notification* list, size_t) { std::free(list); }

tw_code tw_notifications_wait(tw_engine_t handle, uint64_t timeout_ns) {
  return guarded([&]() -> Status {
    std::shared_ptr<EngineEntry> entry;
    TW_RETURN_IF_ERROR(find_engine(handle, &entry));
    if (entry->engine->wait_notifications(monotonic_now() + nanos_of(timeout_ns))) return {};
    return Status(Code::kTimeout, "no notification came in time");
  });
}

tw_code tw_topology_json(char* out, size_t size, size_t* needed) {
  return guarded([&] { return copy_text(topology::machine_json(topology::discover()), out, size, needed); });
}

tw_code tw_settings_json(char* out, size_t size, size_t* needed) {
  return guarded([&] { return copy_text(settings_json(describe_settings({})), out, size, needed); });
}

tw_code tw_test_device_allocate(uint64_t length, void** out) {
  return guarded([&]() -> Status {
    TW_RETURN_IF_ERROR(need(out, "out"));
    TW_ASSIGN_OR_RETURN(const uint64_t address, test_device_allocate(length));
    *out = reinterpret_cast<void*>(address);
    return {};
  });
}

tw_code tw_test_device_free(void* address) {
  return guarded([&] { return test_device_free(address_of(address)); });
}

}  // extern "C"
