// SPDX-License-Identifier: Apache-2.0
//
// Recognises pointers to CUDA device memory through a libcuda that the process has loaded already; never loads one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tidewire {

// "cuda:0" when `address` is device memory (or managed memory) of that device; nullopt for host memory, pinned or not,
// and when the process has no libcuda. Does not touch the bytes. Any thread.
std::optional<std::string> cuda_location(uint64_t address);

}  // namespace tidewire
