// SPDX-License-Identifier: Apache-2.0
//
// Getting pages for a pool allocation before anybody touches it, so that missing memory is an error and never a signal.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace tidewire {

// Bytes that can still be had: the least of the system's available memory and what is left to this process's cgroups.
uint64_t available_memory();
// kNoMemory when `length` bytes are more than that; `what` starts the text.
Status check_available_memory(uint64_t length, const char* what);

// Makes all pages of a shared mapping of `memfd` present, zeroed, with several threads where it is large. kNoMemory,
// kNoResources.
Status populate(uint64_t address, uint64_t length, int memfd);

}  // namespace tidewire
