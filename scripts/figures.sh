#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures a group's figures with their references and says which are reached: ./scripts/figures.sh [group] [--json FILE] [--runs N]
# The goals stand in bench/goals.toml. Shaped links need root. Exit status 0 when every figure is reached.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
[ -d build ] || cmake --preset release
cmake --build build --target tidewire_program tidewire_shared bench_references >&2
exec python3 bench/figures.py "$@"
