// SPDX-License-Identifier: Apache-2.0
#include "base/instance_id.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cstdlib>

namespace tidewire {

std::string to_string(const InstanceId& id) {
  std::string text;
  for (uint8_t byte : id) text += fmt::format("{:02x}", byte);
  return text;
}

InstanceId make_instance_id() {
  InstanceId id;
  // 16 bytes never block or fall short once the system's source is initialised (getrandom(2)).
  if (getrandom(id.data(), id.size(), 0) != static_cast<ssize_t>(id.size())) std::abort();
  return id;
}

}  // namespace tidewire
