// SPDX-License-Identifier: Apache-2.0
//
// An engine's status JSON (tw_engine_status_json) as tables. The JSON comes from another process: whatever is missing
// or of another type is shown as "-".
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/status.h"

namespace tidewire::cli {

// kProtocol when the text is no JSON object.
Result<std::string> status_text(const std::string& json);

// Processes that have engines, from the text of /proc/net/unix; ascending, each once.
std::vector<pid_t> engine_processes(const std::string& proc_net_unix);

}  // namespace tidewire::cli
