// SPDX-License-Identifier: Apache-2.0
//
// Device memory for `tidewire bench --memory cuda`, from the libcuda.so.1 of the linker's path.
#pragma once

#include <cstdint>

namespace tidewire::cli::bench {

// `length` bytes on device 0; throws BenchError that says what is missing. Kept to the end of the process.
void* allocate_cuda(uint64_t length);

}  // namespace tidewire::cli::bench
