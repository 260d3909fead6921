// SPDX-License-Identifier: Apache-2.0
#include "capi/handles.h"

namespace tidewire::capi {
namespace {
std::atomic<Tables*> current{nullptr};
thread_local std::string thread_error;

void forget_in_child() { current.store(nullptr); }
const int registered = (at_fork_in_child(forget_in_child), 0);
}  // namespace

Tables& tables() {
  (void)registered;
  Tables* found = current.load(std::memory_order_acquire);
  if (found) return *found;
  Tables* fresh = new Tables;
  if (current.compare_exchange_strong(found, fresh)) return *fresh;
  delete fresh;
  return *found;
}

tw_code report(const Status& status) {
  if (status.ok()) return TW_OK;
  thread_error = status.message();
  return static_cast<tw_code>(status.code());
}

const std::string& last_error() { return thread_error; }

Status copy_text(const std::string& text, char* out, size_t size, size_t* needed) {
  if (needed) *needed = text.size() + 1;
  if (!out || size < text.size() + 1)
    return Status::error(Code::kInvalidArgument, "a buffer of {} bytes is too small: {} are needed", out ? size : 0, text.size() + 1);
  std::memcpy(out, text.c_str(), text.size() + 1);
  return {};
}

}  // namespace tidewire::capi
