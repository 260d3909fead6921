// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <tidewire/tidewire.h>

#include <cstdio>

#include "cli/commands.h"
#ifdef TIDEWIRE_HAVE_BENCH
#include "cli/bench.h"
#endif

namespace tidewire::cli {

void fail(const std::string& text, int exit_code) {
  std::fflush(stdout);
  fmt::print(stderr, "tidewire: {}\n", text);
  throw CLI::RuntimeError(exit_code);
}

}  // namespace tidewire::cli

int main(int argc, char** argv) {
  CLI::App app("Tidewire moves KV cache between processes, machines and kinds of memory.", "tidewire");
  app.set_version_flag("--version", tw_version());
  app.require_subcommand(1);
  tidewire::cli::add_serve(app);
  tidewire::cli::add_master(app);
  tidewire::cli::add_topology(app);
  tidewire::cli::add_doctor(app);
  tidewire::cli::add_status(app);
#ifdef TIDEWIRE_HAVE_BENCH
  tidewire::cli::add_bench(app);
#endif
  try {
    app.parse(argc, argv);
  } catch (const CLI::Error& error) {
    return app.exit(error);
  }
  return 0;
}
