// SPDX-License-Identifier: Apache-2.0
//
// The subcommands of the program `tidewire`. Each add_* function registers one; its callback runs the command and
// leaves through CLI::RuntimeError with the exit code when that is not 0. Results go to stdout, messages for people to
// stderr.
#pragma once

#include <CLI/CLI.hpp>

namespace tidewire::cli {

void add_serve(CLI::App& app);
void add_master(CLI::App& app);
void add_topology(CLI::App& app);
void add_doctor(CLI::App& app);
void add_status(CLI::App& app);

// Writes "tidewire: text" to stderr and leaves with the exit code.
[[noreturn]] void fail(const std::string& text, int exit_code = 1);

}  // namespace tidewire::cli
