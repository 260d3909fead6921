// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tidewire::transport::shm {

// The kernel's boot id: equal for all processes and containers of one running kernel. Empty when the system doesn't
// tell; then nothing is on the same host.
const std::string& host_id();

}  // namespace tidewire::transport::shm
