// SPDX-License-Identifier: Apache-2.0
//
// store.h: clients of the store.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "capi/handles.h"
#include "store/client/client.h"
#include "tidewire/store.h"

using namespace tidewire;
using namespace tidewire::capi;
namespace ts = tidewire::store;

namespace {

Status find_store(tw_store_t handle, std::shared_ptr<ts::Client>* out) {
  std::shared_ptr<StoreEntry> entry;
  TW_RETURN_IF_ERROR(lookup(tables().stores, handle, "store", &entry));
  *out = entry->client;
  return {};
}

Status need(const void* pointer, const char* name) {
  if (!pointer) return Status::error(Code::kInvalidArgument, "{} is NULL", name);
  return {};
}

uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }
std::string text_or(const char* text, const char* fallback) { return text ? text : fallback; }

Status read_keys(const tw_store_keys* keys, std::vector<std::string>* out) {
  TW_RETURN_IF_ERROR(need(keys, "keys"));
  if (keys->count > 0) {
    TW_RETURN_IF_ERROR(need(keys->bytes, "keys.bytes"));
    TW_RETURN_IF_ERROR(need(keys->lengths, "keys.lengths"));
  }
  const char* at = keys->bytes;
  out->reserve(keys->count);
  for (size_t i = 0; i < keys->count; ++i) {
    if (keys->lengths[i] > 1 << 20) return Status::error(Code::kInvalidArgument, "key {} has {} bytes; at most {} are allowed", i, keys->lengths[i], ts::kMaxKeyBytes);
    out->emplace_back(at, keys->lengths[i]);
    at += keys->lengths[i];
  }
  return {};
}

Status read_options(const tw_store_put_options* options, size_t keys, ts::PutOptions* out, bool* upsert, std::vector<std::string>* groups) {
  *upsert = false;
  if (!options) return {};
  if (options->struct_size != sizeof(tw_store_put_options))
    return Status::error(Code::kInvalidArgument, "tw_store_put_options.struct_size is {}, this library has {}: set it to sizeof", options->struct_size,
                         sizeof(tw_store_put_options));
  if (options->replicas > ts::kMaxReplicas)
    return Status::error(Code::kInvalidArgument, "{} replicas; at most {} are allowed", options->replicas, ts::kMaxReplicas);
  if (options->soft_pin < 0 || options->soft_pin > 2) return Status::error(Code::kInvalidArgument, "soft_pin is {}; 0, 1 or 2 are allowed", options->soft_pin);
  *upsert = options->upsert != 0;
  out->replicas = std::max(options->replicas, 1u);
  out->soft_pin = static_cast<ts::PinAction>(options->soft_pin);
  out->soft_pin_ttl = static_cast<Nanos>(std::min<uint64_t>(options->soft_pin_ttl_ns, INT64_MAX / 4));
  out->hard_pin = options->hard_pin != 0;
  out->prefer_same_host = options->prefer_same_host != 0;
  out->data_type = options->data_type;
  for (const char* const* name = options->preferred_segments; name && *name; ++name) out->preferred_segments.emplace_back(*name);
  if (!options->groups) return {};
  TW_RETURN_IF_ERROR(read_keys(options->groups, groups));
  if (groups->size() != keys) return Status::error(Code::kInvalidArgument, "{} group ids for {} keys; give one for each", groups->size(), keys);
  return {};
}

// The parts of each key. Without offsets they follow one another from 0.
Status read_parts(size_t keys, const uint32_t* counts, const uint64_t* addresses, const uint64_t* lengths, const uint64_t* offsets,
                  std::vector<std::vector<ts::Part>>* out) {
  if (keys > 0) {
    TW_RETURN_IF_ERROR(need(addresses, "addresses"));
    TW_RETURN_IF_ERROR(need(lengths, "lengths"));
  }
  out->resize(keys);
  size_t at = 0;
  for (size_t i = 0; i < keys; ++i) {
    uint64_t offset = 0;
    for (uint32_t n = counts ? counts[i] : 1; n > 0; --n, ++at) {
      if (lengths[at] > 0 && addresses[at] > UINT64_MAX - lengths[at])
        return Status::error(Code::kInvalidArgument, "part {} of {} bytes at {:#x} wraps around the address space", at, lengths[at], addresses[at]);
      if (lengths[at] > 0 && addresses[at] == 0) return Status::error(Code::kInvalidArgument, "part {} of {} bytes has the address 0", at, lengths[at]);
      (*out)[i].push_back({addresses[at], lengths[at], offsets ? offsets[at] : offset});
      offset += lengths[at];
    }
  }
  return {};
}

void give(const std::vector<int64_t>& from, int64_t* results) { std::copy(from.begin(), from.end(), results); }

// A call that takes keys and gives a result for each.
template <typename Call>
tw_code with_keys(tw_store_t handle, const tw_store_keys* keys, int64_t* results, Call&& call) {
  return guarded([&]() -> Status {
    std::shared_ptr<ts::Client> client;
    TW_RETURN_IF_ERROR(find_store(handle, &client));
    std::vector<std::string> names;
    TW_RETURN_IF_ERROR(read_keys(keys, &names));
    if (!names.empty()) TW_RETURN_IF_ERROR(need(results, "results"));
    Result<std::vector<int64_t>> given = call(*client, std::move(names));
    TW_RETURN_IF_ERROR(given.status());
    give(*given, results);
    return {};
  });
}

Result<std::vector<int64_t>> get_or_write(ts::Client& client, std::vector<std::string> names, const uint32_t* counts, const uint64_t* addresses,
                                          const uint64_t* lengths, const uint64_t* offsets, bool write) {
  std::vector<std::vector<ts::Part>> parts;
  TW_RETURN_IF_ERROR(read_parts(names.size(), counts, addresses, lengths, offsets, &parts));
  std::vector<ts::Client::GetItem> items(names.size());
  for (size_t i = 0; i < names.size(); ++i) items[i] = {std::move(names[i]), std::move(parts[i]), offsets == nullptr};
  return write ? client.write_session(std::move(items)) : client.get(std::move(items));
}

// Releases a buffer of the store when the caller is done with it, also after the store is closed.
struct BufferEntryReleaser {
  std::shared_ptr<ts::Client> client;
  uint64_t address;
  ~BufferEntryReleaser() { (void)client->release(address); }
};

}  // namespace

extern "C" {

const char* tw_store_code_name(int64_t code) { return ts::code_name(static_cast<ts::Code>(std::clamp<int64_t>(code, INT32_MIN, 0))); }

tw_code tw_store_create(const tw_store_options* options, tw_store_t* out) {
  return guarded([&]() -> Status {
    TW_RETURN_IF_ERROR(need(out, "out"));
    ts::ClientOptions wanted;
    auto entry = std::make_shared<StoreEntry>();
    if (options) {
      if (options->struct_size != sizeof(tw_store_options))
        return Status::error(Code::kInvalidArgument, "tw_store_options.struct_size is {}, this library has {}: set it to sizeof", options->struct_size,
                             sizeof(tw_store_options));
      wanted.local_name = text_or(options->local_name, "127.0.0.1");
      wanted.metadata = text_or(options->metadata, "P2PHANDSHAKE");
      wanted.protocol = text_or(options->protocol, "auto");
      wanted.devices = text_or(options->devices, "");
      wanted.master = text_or(options->master, "127.0.0.1:50051");
      wanted.segment_bytes = options->segment_bytes;
      if (options->local_buffer_bytes > 0) wanted.local_buffer_bytes = options->local_buffer_bytes;
      for (const char* const* one = options->settings; one && *one; ++one) wanted.settings.push_back(*one);
      if (options->engine != 0) {
        std::shared_ptr<EngineEntry> engine;
        TW_RETURN_IF_ERROR(lookup(tables().engines, options->engine, "engine", &engine));
        wanted.engine = engine->engine;
      }
    }
    TW_ASSIGN_OR_RETURN(entry->client, ts::Client::create(std::move(wanted)));
    *out = tables().stores.insert(std::move(entry));
    return {};
  });
}

tw_code tw_store_destroy(tw_store_t handle) {
  return guarded([&]() -> Status {
    std::shared_ptr<ts::Client> client;
    TW_RETURN_IF_ERROR(find_store(handle, &client));
    if (!tables().stores.remove(handle)) return Status::error(Code::kNotFound, "store handle {:#x} was destroyed by another thread", handle);
    client->close();
    return {};
  });
}

tw_code tw_store_name(tw_store_t handle, char* out, size_t size) {
  return guarded([&]() -> Status {
    std::shared_ptr<ts::Client> client;
    TW_RETURN_IF_ERROR(find_store(handle, &client));
    return copy_text(client->name(), out, size, nullptr);
  });
}

int tw_store_health(tw_store_t handle) {
  std::shared_ptr<ts::Client> client;
  if (!find_store(handle, &client).ok() || client->closed()) return 2;
  return client->in_contact() ? 0 : 1;
}

tw_code tw_store_status_json(tw_store_t handle, char* out, size_t size, size_t* needed) {
  return guarded([&]() -> Status {
    std::shared_ptr<ts::Client> client;
    TW_RETURN_IF_ERROR(find_store(handle, &client));
    return copy_text(client->status_json(), out, size, needed);
  });
}

tw_code tw_store_register(tw_store_t handle, void* address, uint64_t length) {
  return guarded([&]() -> Status {
    std::shared_ptr<ts::Client> client;
    TW_RETURN_IF_ERROR(find_store(handle, &client));
    return client->register_memory(address_of(address), length);
  });
}

tw_code tw_store_unregister(tw_store_t handle, void* address) {
  return guarded([&]() -> Status {
    std::shared_ptr<ts::Client> client;
    TW_RETURN_IF_ERROR(find_store(handle, &client));
    return client->unregister_memory(address_of(address));
  });
}

tw_code tw_store_mount(tw_store_t handle, void* address, uint64_t length, const char* location, uint32_t* ordinal) {
  return guarded([&]() -> Status {
    std::shared_ptr<ts::Client> client;
    TW_RETURN_IF_ERROR(find_store(handle, &client));
    TW_RETURN_IF_ERROR(need(ordinal, "ordinal"));
    TW_ASSIGN_OR_RETURN(*ordinal, client->mount(address_of(address), length, text_or(location, "*")));
    return {};
  });
}

tw_code tw_store_unmount(tw_store_t handle, uint32_t ordinal) {
  return guarded([&]() -> Status {
    std::shared_ptr<ts::Client> client;
    TW_RETURN_IF_ERROR(find_store(handle, &client));
    return client->unmount(ordinal);
  });
}

void* tw_store_allocate(tw_store_t handle, uint64_t length) {
  std::shared_ptr<ts::Client> client;
  if (!find_store(handle, &client).ok()) return nullptr;
  return reinterpret_cast<void*>(client->allocate(length));
}

tw_code tw_store_free(tw_store_t handle, void* address) {
  return guarded([&]() -> Status {
    std::shared_ptr<ts::Client> client;
    TW_RETURN_IF_ERROR(find_store(handle, &client));
    return client->release(address_of(address));
  });
}

tw_code tw_store_put(tw_store_t handle, const tw_store_keys* keys, const uint32_t* counts, const uint64_t* addresses, const uint64_t* lengths,
                     const tw_store_put_options* options, int64_t* results) {
  return with_keys(handle, keys, results, [&](ts::Client& client, std::vector<std::string> names) -> Result<std::vector<int64_t>> {
    ts::PutOptions wanted;
    bool upsert = false;
    std::vector<std::string> groups;
    std::vector<std::vector<ts::Part>> parts;
    TW_RETURN_IF_ERROR(read_options(options, names.size(), &wanted, &upsert, &groups));
    TW_RETURN_IF_ERROR(read_parts(names.size(), counts, addresses, lengths, nullptr, &parts));
    std::vector<ts::Client::PutItem> items(names.size());
    for (size_t i = 0; i < names.size(); ++i)
      items[i] = {std::move(names[i]), std::move(parts[i]), groups.empty() ? std::string() : std::move(groups[i])};
    return client.put(std::move(items), wanted, upsert);
  });
}

tw_code tw_store_get_into(tw_store_t handle, const tw_store_keys* keys, const uint32_t* counts, const uint64_t* addresses, const uint64_t* lengths,
                          const uint64_t* offsets, int64_t* results) {
  return with_keys(handle, keys, results, [&](ts::Client& client, std::vector<std::string> names) {
    return get_or_write(client, std::move(names), counts, addresses, lengths, offsets, false);
  });
}

tw_code tw_store_get(tw_store_t handle, const tw_store_keys* keys, tw_store_buffer* out) {
  return guarded([&]() -> Status {
    std::shared_ptr<ts::Client> client;
    TW_RETURN_IF_ERROR(find_store(handle, &client));
    std::vector<std::string> names;
    TW_RETURN_IF_ERROR(read_keys(keys, &names));
    if (!names.empty()) TW_RETURN_IF_ERROR(need(out, "out"));
    const std::vector<ts::Client::Buffer> buffers = client->get_buffers(names);
    for (size_t i = 0; i < buffers.size(); ++i) {
      out[i] = {reinterpret_cast<const void*>(buffers[i].address), buffers[i].size, buffers[i].result, 0};
      if (buffers[i].address == 0) continue;
      auto entry = std::make_shared<BufferEntry>();
      entry->keep = std::make_shared<BufferEntryReleaser>(client, buffers[i].address);
      out[i].handle = tables().buffers.insert(std::move(entry));
    }
    return {};
  });
}

void tw_store_buffer_release(uint64_t handle) { (void)tables().buffers.remove(handle); }

tw_code tw_store_exists(tw_store_t handle, const tw_store_keys* keys, int64_t* results) {
  return with_keys(handle, keys, results, [](ts::Client& client, std::vector<std::string> names) -> Result<std::vector<int64_t>> { return client.exists(names); });
}

tw_code tw_store_sizes(tw_store_t handle, const tw_store_keys* keys, int64_t* results) {
  return with_keys(handle, keys, results, [](ts::Client& client, std::vector<std::string> names) -> Result<std::vector<int64_t>> { return client.sizes(names); });
}

tw_code tw_store_remove(tw_store_t handle, const tw_store_keys* keys, int force, int64_t* results) {
  return with_keys(handle, keys, results,
                   [force](ts::Client& client, std::vector<std::string> names) -> Result<std::vector<int64_t>> { return client.remove(names, force != 0); });
}

tw_code tw_store_remove_matching(tw_store_t handle, const char* pattern, int force, int64_t* count) {
  return guarded([&]() -> Status {
    std::shared_ptr<ts::Client> client;
    TW_RETURN_IF_ERROR(find_store(handle, &client));
    TW_RETURN_IF_ERROR(need(count, "count"));
    *count = client->remove_matching(text_or(pattern, ""), force != 0);
    return {};
  });
}

tw_code tw_store_replicas_json(tw_store_t handle, const tw_store_keys* keys, char* out, size_t size, size_t* needed) {
  return guarded([&]() -> Status {
    std::shared_ptr<ts::Client> client;
    TW_RETURN_IF_ERROR(find_store(handle, &client));
    std::vector<std::string> names;
    TW_RETURN_IF_ERROR(read_keys(keys, &names));
    nlohmann::json all = nlohmann::json::array();
    for (const ts::GetPlace& object : client->places(names)) {
      nlohmann::json replicas = nlohmann::json::array();
      for (const ts::Place& place : object.places)
        replicas.push_back({{"size", object.size}, {"address", place.address}, {"endpoint", place.endpoint}, {"status", "COMPLETE"}});
      all.push_back(std::move(replicas));
    }
    return copy_text(all.dump(), out, size, needed);
  });
}

tw_code tw_store_get_session_start(tw_store_t handle, const tw_store_keys* keys, int64_t* results) {
  return with_keys(handle, keys, results,
                   [](ts::Client& client, std::vector<std::string> names) -> Result<std::vector<int64_t>> { return client.start_get_session(names); });
}

tw_code tw_store_get_session_end(tw_store_t handle, const tw_store_keys* keys, int64_t* results) {
  return with_keys(handle, keys, results,
                   [](ts::Client& client, std::vector<std::string> names) -> Result<std::vector<int64_t>> { return client.end_get_session(names); });
}

tw_code tw_store_put_session_start(tw_store_t handle, const tw_store_keys* keys, const uint64_t* sizes, const tw_store_put_options* options,
                                   int64_t* results) {
  return with_keys(handle, keys, results, [&](ts::Client& client, std::vector<std::string> names) -> Result<std::vector<int64_t>> {
    if (!names.empty()) TW_RETURN_IF_ERROR(need(sizes, "sizes"));
    ts::PutOptions wanted;
    bool upsert = false;
    std::vector<std::string> groups;
    TW_RETURN_IF_ERROR(read_options(options, names.size(), &wanted, &upsert, &groups));
    return client.start_put_session(names, std::vector<uint64_t>(sizes, sizes + names.size()), wanted, upsert);
  });
}

tw_code tw_store_put_session_write(tw_store_t handle, const tw_store_keys* keys, const uint32_t* counts, const uint64_t* addresses,
                                   const uint64_t* lengths, const uint64_t* offsets, int64_t* results) {
  return with_keys(handle, keys, results, [&](ts::Client& client, std::vector<std::string> names) -> Result<std::vector<int64_t>> {
    TW_RETURN_IF_ERROR(need(offsets, "offsets"));
    return get_or_write(client, std::move(names), counts, addresses, lengths, offsets, true);
  });
}

tw_code tw_store_put_session_end(tw_store_t handle, const tw_store_keys* keys, int commit, int64_t* results) {
  return with_keys(handle, keys, results, [commit](ts::Client& client, std::vector<std::string> names) -> Result<std::vector<int64_t>> {
    return client.end_put_session(names, commit != 0);
  });
}

}  // extern "C"
