// SPDX-License-Identifier: Apache-2.0
//
// One function for each `tidewire bench` subcommand, each in a file of its own.
#pragma once

#include "cli/bench_common.h"
#include "cli/bench_process.h"

namespace tidewire::cli::bench {

void add_target(CLI::App* bench);  // bench_target.cpp: the waiting side
void add_kv(CLI::App* bench);      // bench_kv.cpp: the KV transfers of a model
void add_bulk(CLI::App* bench);    // bench_bulk.cpp: large transfers, several outstanding
void add_small(CLI::App* bench);   // bench_small.cpp: latency and scattered lists
void add_idle(CLI::App* bench);    // bench_idle.cpp: processor use while nothing moves
void add_peers(CLI::App* bench);   // bench_peers.cpp: thousands of peer records
void add_init(CLI::App* bench);    // bench_init.cpp: how fast a store's pool is ready

}  // namespace tidewire::cli::bench
