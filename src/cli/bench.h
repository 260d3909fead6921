// SPDX-License-Identifier: Apache-2.0
//
// `tidewire bench …`: measures transfers on this machine, or between two hosts with --target. Each subcommand prints a table and,
// with --json, writes the same figures to a file. It uses the C interface only, as any other program does.
#pragma once

#include <CLI/CLI.hpp>

namespace tidewire::cli {

// Adds the subcommand `bench` and its own subcommands. A failure prints one line to stderr and throws CLI::RuntimeError(1), which
// the program's main turns into its exit status.
void add_bench(CLI::App& app);

}  // namespace tidewire::cli
