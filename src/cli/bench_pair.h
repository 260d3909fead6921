// SPDX-License-Identifier: Apache-2.0
//
// One initiator and one target with a buffer each: what every bench but `kv` measures on.
#pragma once

#include <memory>

#include "cli/bench_line.h"

namespace tidewire::cli::bench {

class Pair {
 public:
  // Starts a target when none is named. Both buffers hold `bytes`.
  Pair(const Options& options, uint64_t bytes);

  const Engine& engine() const { return *engine_; }
  tw_peer_t peer() const { return peer_; }
  const std::string& target_name() const { return name_; }
  uint64_t local() const { return buffer_->address(); }
  uint64_t remote() const { return remote_; }
  uint64_t bytes() const { return buffer_->length(); }
  const TargetProcess* target() const { return target_.get(); }  // nullptr when --target named one

 private:
  std::unique_ptr<TargetProcess> target_;
  std::string name_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Buffer> buffer_;
  tw_peer_t peer_ = 0;
  uint64_t remote_ = 0;
};

}  // namespace tidewire::cli::bench
