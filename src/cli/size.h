// SPDX-License-Identifier: Apache-2.0
//
// Sizes on the command line: "4096", "64K", "1.5G", "2GiB"; K, M, G, T are powers of 1024.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace tidewire::cli {

// kInvalidArgument names the text.
Result<uint64_t> parse_size(const std::string& text);
// "1.5 GiB", "64 KiB", "12 B".
std::string size_text(uint64_t bytes);

}  // namespace tidewire::cli
