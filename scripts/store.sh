#!/usr/bin/env bash
# Sets up, builds, starts a master and two clients of the store, puts and gets between them, and shows `tidewire status`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
scripts/build.sh
PYTHONPATH=python .venv/bin/python -m demo.store
