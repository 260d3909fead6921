// SPDX-License-Identifier: Apache-2.0
//
// What the C interface keeps for the process: the handle tables, and the calling thread's last error. The tables are made on first use and never
// destroyed, so that threads that outlive main() and objects that die at exit find them whole.
#pragma once

#include <cstring>
#include <memory>
#include <string>

#include "base/handle_table.h"
#include "engine/engine.h"

namespace tidewire::store {
class Client;
}

namespace tidewire::capi {

struct PeerHandle {
  std::shared_ptr<engine::Engine> engine;
  engine::PeerPtr peer;
};

struct BatchHandle {
  std::shared_ptr<engine::Engine> engine;
  engine::BatchPtr batch;
};

struct EngineEntry {
  std::shared_ptr<engine::Engine> engine;
  std::mutex mutex;
  std::map<std::string, std::pair<tw_peer_t, uint32_t>> peers;  // by name: handle and how often it was opened
};

struct StoreEntry {
  std::shared_ptr<store::Client> client;
};

// Memory that a caller of tw_store_get holds.
struct BufferEntry {
  std::shared_ptr<void> keep;
};

struct MasterEntry;  // master_entry.h

struct Tables {
  HandleTable<EngineEntry> engines{1};
  HandleTable<PeerHandle> peers{2};
  HandleTable<BatchHandle> batches{3};
  HandleTable<StoreEntry> stores{4};
  HandleTable<MasterEntry> masters{5};
  HandleTable<BufferEntry> buffers{6};
};
// A forked child starts with empty tables: those of its parent may be locked by threads that it does not have.
Tables& tables();

// Sets the thread's last error and returns the code.
tw_code report(const Status& status);
const std::string& last_error();

// Finds a handle's object, or reports kForked or kNotFound. `kind` names it in the text.
template <typename T>
Status lookup(HandleTable<T>& table, uint64_t handle, const char* kind, std::shared_ptr<T>* out) {
  if (table.from_parent(handle))
    return Status::error(Code::kForked, "{} handle {:#x} belongs to the parent process: create an engine in this process", kind, handle);
  *out = table.get(handle);
  if (!*out) return Status::error(Code::kNotFound, "{} handle {:#x} is stale or was never given out", kind, handle);
  return {};
}

// Copies a text with its NUL into a caller's buffer; kInvalidArgument names the size that is needed.
Status copy_text(const std::string& text, char* out, size_t size, size_t* needed);

// Runs a call and turns what it throws into kNoMemory or kInternal: no exception crosses the boundary.
template <typename Call>
tw_code guarded(Call&& call) {
  try {
    return report(call());
  } catch (const std::bad_alloc&) {
    return report(Status(Code::kNoMemory, "out of memory"));
  } catch (const std::exception& error) {
    return report(Status(Code::kInternal, error.what()));
  } catch (...) {
    return report(Status(Code::kInternal, "unknown exception"));
  }
}

}  // namespace tidewire::capi
