// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"

namespace tidewire::cli {

// A master's status JSON (tw_master_status_json) as tables. With `before`, its JSON of `seconds` earlier, also rates;
// otherwise they are means since the start. The JSON comes from another process: whatever is missing or of another type
// counts as 0 or "-". kProtocol when it is no JSON object.
Result<std::string> master_text(const std::string& now, const std::string& before, double seconds);

}  // namespace tidewire::cli
