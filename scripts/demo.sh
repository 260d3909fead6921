#!/usr/bin/env bash
# Sets up, builds and runs the demonstration: prefill in one process, decode in another, the same tokens as in one.
#
#   scripts/demo.sh                      both models
#   scripts/demo.sh --model tiny|gemma   one of them
#   scripts/demo.sh ... -- ARGUMENTS     ARGUMENTS go to `python -m demo.run`, e.g. -- --protocol tcp --lengths 128,4096
#
# Tables are printed, plots saved as build/demo/demo-MODEL.png. Exits with 1 when a token differs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

models=(tiny gemma)
while (($#)); do
  case "$1" in
    --model) models=("${2:?--model needs tiny or gemma}"); shift 2 ;;
    --) shift; break ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "demo.sh: unknown argument '$1' (see --help)" >&2; exit 2 ;;
  esac
done

scripts/setup.sh --with demo
scripts/build.sh

for model in "${models[@]}"; do
  PYTHONPATH=python .venv/bin/python -m demo.run --model "$model" "$@"
done
