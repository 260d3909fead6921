// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace tidewire {

// Random at each start of an engine, a store client or a master; tells a restarted process from the one before.
using InstanceId = std::array<uint8_t, 16>;
// Lower-case hexadecimal, 32 characters.
std::string to_string(const InstanceId& id);
InstanceId make_instance_id();  // from the system's random source

}  // namespace tidewire
