// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_pair.h"

#include <fmt/format.h>

namespace tidewire::cli::bench {

Pair::Pair(const Options& options, uint64_t bytes) {
  if (options.targets.empty()) target_ = std::make_unique<TargetProcess>(options, bytes);
  name_ = target_ ? target_->address() : options.targets.front();
  engine_ = std::make_unique<Engine>(options, !options.local.empty() ? options.local : target_ ? "127.0.0.1" : route_source(name_));
  buffer_ = std::make_unique<Buffer>(*engine_, options.memory, bytes);
  peer_ = engine_->open(name_);
  uint64_t length = 0;
  check(tw_peer_first_region(engine_->handle(), peer_, &remote_, &length), ("the buffer of " + name_).c_str());
  if (length < bytes) {
    throw BenchError(fmt::format("{} offers a buffer of {} bytes, this needs {}: start it with --bytes {}", name_, length, bytes, bytes));
  }
}

}  // namespace tidewire::cli::bench
