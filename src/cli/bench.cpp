// SPDX-License-Identifier: Apache-2.0
#include "cli/bench.h"

#include "cli/bench_commands.h"

namespace tidewire::cli {

void add_bench(CLI::App& app) {
  auto* bench = app.add_subcommand("bench", "Measure transfers on this machine or to a waiting target");
  bench->require_subcommand(1);
  bench::add_kv(bench);
  bench::add_bulk(bench);
  bench::add_small(bench);
  bench::add_idle(bench);
  bench::add_peers(bench);
  bench::add_init(bench);
  bench::add_target(bench);
}

}  // namespace tidewire::cli
