#!/usr/bin/env bash
# Builds a preset and leaves the program at build/bin/tidewire (build-<preset>/bin for the others).
#
#   scripts/build.sh [preset=release] [target...]
#
# TIDEWIRE_JOBS sets the number of parallel compilers (default: the processors).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset="${1:-release}"
(($#)) && shift
# Ubuntu 22.04's default compiler is g++ 11, which lacks parts of C++20 that are used here.
if [[ -z "${CXX:-}" ]] && (($(g++ -dumpversion | cut -d. -f1) < 12)) && command -v g++-12 >/dev/null; then
  export CC=gcc-12 CXX=g++-12
fi

args=(--build --preset "$preset" -j "${TIDEWIRE_JOBS:-$(nproc)}")
(($#)) && args+=(--target "$@")
cmake --preset "$preset"
cmake "${args[@]}"
