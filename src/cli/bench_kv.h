// SPDX-License-Identifier: Apache-2.0
//
// What `bench kv` and its replay of a trace share: the two caches, one for each rank, and the runners that move requests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/bench_geometry.h"
#include "cli/bench_line.h"

namespace tidewire::cli::bench {

struct KvOptions {
  Options common;
  Geometry geometry;
  std::vector<uint64_t> page_sizes = {1, 16, 64};
  std::vector<uint64_t> lengths = {128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
  double fragmented = 0;
  double gap = 0;  // seconds of idleness before each request
  unsigned rounds = 1;
  unsigned ranks = 1;
  unsigned concurrency = 1;
  std::string trace;
  std::string trace_speed = "max";
  std::string trace_bytes = "new";
  uint64_t trace_limit = 0;
  uint64_t cache_tokens = 0;  // 0 = as many as the longest prompt
};

// One rank: an engine of its own with a cache, and its part of a target's cache.
struct Rank {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Buffer> buffer;
  tw_peer_t peer = 0;
  Cache local, remote;
};

class Ranks {
 public:
  // Starts a target when none is named, then the engines. `tokens`: what each cache must hold.
  Ranks(const KvOptions& options, uint64_t tokens);

  const std::vector<Rank>& all() const { return ranks_; }
  const TargetProcess* target() const { return target_.get(); }
  const LineRate& line() const { return line_; }
  uint64_t tokens() const { return tokens_; }
  // Processor seconds of this process and of the target, if that is ours.
  double cpu_seconds() const { return own_cpu_seconds() + (target_ ? target_->cpu_seconds() : 0); }

 private:
  std::unique_ptr<TargetProcess> target_;
  LineRate line_;
  std::vector<Rank> ranks_;
  uint64_t tokens_ = 0;
};

// Moves a request's pieces on one rank and waits.
void move(const Rank& rank, const Pieces& pieces);

// bench_trace.cpp: replays options.trace and reports.
void replay_trace(const KvOptions& options);

}  // namespace tidewire::cli::bench
