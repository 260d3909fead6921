// SPDX-License-Identifier: Apache-2.0
//
// What a protocol name asks for, and whether this machine can do it. Never a silent replacement: what can't be done is refused by name, with one
// documented exception that frameworks rely on ("rdma" without any InfiniBand-class device, or force_tcp, becomes TCP with one loud line).
#pragma once

#include <string>
#include <vector>

#include "base/settings.h"
#include "base/status.h"

namespace tidewire::engine {

struct Protocol {
  bool tcp = false;
  bool shm = false;
  bool fell_back = false;      // "rdma" became TCP
  std::string note;            // what to log, empty when nothing
};

// `protocol` as in tw_engine_options; `infiniband_devices`: names found on this machine.
Result<Protocol> choose_protocol(const std::string& protocol, const Settings& settings, const std::vector<std::string>& infiniband_devices);

}  // namespace tidewire::engine
