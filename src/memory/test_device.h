// SPDX-License-Identifier: Apache-2.0
//
// The test device: memory that the processor may not touch ("testdev:0"). Its addresses are protected pages; the bytes
// live in a second mapping that only its own copy functions know. It proves that no path assumes host memory.
#pragma once

#include "memory/memory_kind.h"

namespace tidewire {

const MemoryKind& test_device();
// Zeroed; page aligned. kNoMemory when the system has none.
Result<uint64_t> test_device_allocate(uint64_t length);
// kNotFound when `address` was not returned by test_device_allocate or is already freed.
Status test_device_free(uint64_t address);

}  // namespace tidewire
