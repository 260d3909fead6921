// SPDX-License-Identifier: Apache-2.0
//
// PeerRecord: what an engine publishes about itself. One fetch tells all that is needed to reach it; regions are looked up by the transports
// that need them, and checked by the target on every operation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/instance_id.h"

namespace tidewire {

struct RailRecord {
  std::string transport;  // "tcp"
  std::string name;       // "eth0"
  std::string address;    // tcp: "10.0.0.1:4000" or "[v6]:4000"
  uint64_t bits_per_second = 0;
};

struct PeerRecord {
  uint32_t protocol_version = 0;
  uint64_t features = 0;
  InstanceId instance{};
  std::string name;           // advertised "host:port"
  std::string host_id;        // boot id of the kernel: equal ids are candidates for the same-host path
  std::string same_host_socket;  // abstract Unix socket of the shm transport, empty when it has none
  uint32_t process_id = 0;    // in the peer's own PID namespace: for messages only, never trusted
  std::vector<RailRecord> rails;
};

}  // namespace tidewire
