// SPDX-License-Identifier: Apache-2.0
#include "engine/protocol.h"

#include <fmt/ranges.h>

namespace tidewire::engine {

Result<Protocol> choose_protocol(const std::string& protocol, const Settings& settings, const std::vector<std::string>& devices) {
  Protocol choice;
  if (protocol.empty() || protocol == "auto" || protocol == "tcp") {
    choice.tcp = true;
    choice.shm = settings.same_host;
    return choice;
  }
  if (protocol == "shm") {
    if (!settings.same_host)
      return Status(Code::kInvalidArgument, "protocol shm with same_host=false: nothing is left; set same_host=true or use tcp");
    choice.shm = true;
    return choice;
  }
  if (protocol == "rdma") {
    if (settings.force_tcp || devices.empty()) {
      choice.tcp = true;
      choice.shm = settings.same_host;
      choice.fell_back = true;
      choice.note = fmt::format("protocol rdma was asked for, TCP is used: {}",
                                settings.force_tcp ? "force_tcp (MC_FORCE_TCP) is set" : "this machine has no InfiniBand-class device");
      return choice;
    }
    return Status::error(Code::kUnsupported, "protocol rdma: this version has no verbs transport for the devices {}; set "
                         "MOONCAKE_PROTOCOL=efa or MOONCAKE_PROTOCOL=tcp (or MC_FORCE_TCP=1)", fmt::join(devices, ", "));
  }
  if (protocol == "efa" || protocol.rfind("fabric:", 0) == 0)
    return Status::error(Code::kUnsupported, "protocol {}: this version has no libfabric transport; use tcp", protocol);
  return Status::error(Code::kInvalidArgument, "unknown protocol '{}': use auto, tcp, shm, rdma, efa or fabric:<provider>", protocol);
}

}  // namespace tidewire::engine
