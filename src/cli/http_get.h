// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace tidewire::cli {

// GET of a page from a master's HTTP server ("host:port"), with the cluster secret when there is one. The body;
// kProtocol when the answer is another than 200, with its text.
Result<std::string> http_get(const std::string& server, const std::string& target, const std::string& secret,
                             Nanos timeout);

}  // namespace tidewire::cli
