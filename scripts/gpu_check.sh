#!/usr/bin/env bash
# Runs the tests of CUDA memory against the real driver of this machine, and measures. Needs an NVIDIA GPU.
#
#   scripts/gpu_check.sh          build, test, measure; the figures end up in build/gpu_check.txt with the card's name
#
# Exits with 1 when something failed, with 2 when there is no GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case "${1:-}" in
  "") ;;
  -h | --help) sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) echo "gpu_check.sh: unknown argument '$1' (see --help)" >&2; exit 2 ;;
esac

if ! card=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null); then
  echo "gpu_check.sh: no NVIDIA GPU here (nvidia-smi says nothing)" >&2
  exit 2
fi
scripts/build.sh
report=build/gpu_check.txt
{ echo "card: $card"; date -u +%F; } | tee "$report"

# The tests of the stand-in skip themselves; what does not depend on it runs.
export TIDEWIRE_TEST_LIBCUDA=libcuda.so.1
build/tests/memory_cuda_test
build/tests/tidewire_conformance_test --gtest_filter='*Cuda*'

measure() {
  echo "== $*" | tee -a "$report"
  build/bin/tidewire bench bulk --sizes 1MiB,16MiB,64MiB --outstanding 4 --walk 1GiB --seconds 3 "$@" 2>&1 | tee -a "$report"
}
for memory in pool cuda; do
  measure --protocol tcp --memory "$memory"
  measure --protocol tcp --memory "$memory" --read
done
build/bench/classification libcuda.so.1 | tee -a "$report"
echo "gpu_check.sh: done; put $report into docs/performance.md"
