#!/usr/bin/env bash
# Long runs, apart from the tests: more simulated schedules, more rounds of each fault, the fuzzers, and the sanitizers over all schedules.
#
#   scripts/soak.sh            everything, about an hour on two cores
#   scripts/soak.sh sim|faults|store|fuzz|tsan …   only these
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

parts=("$@")
((${#parts[@]})) || parts=(sim faults store fuzz tsan)
scripts/setup.sh
scripts/build.sh release

for part in "${parts[@]}"; do
  echo "=== $part"
  case "$part" in
    sim)
      TIDEWIRE_SIM_SCHEDULES=200000 build/tests/tidewire_sim_test
      TIDEWIRE_SIM_SCHEDULES=200000 build/tests/tidewire_store_sim_test
      ;;
    store) # Real masters and clients against the model; TIDEWIRE_STORE_ROUNDS=2000 takes about two hours.
      TIDEWIRE_STORE_ROUNDS="${TIDEWIRE_STORE_ROUNDS:-300}" .venv/bin/python -m pytest -q -s -p no:cacheprovider \
        tests/fault/test_store_model.py
      ;;
    faults) TIDEWIRE_FAULT_ROUNDS=50 .venv/bin/python -m pytest -q -p no:cacheprovider -o timeout=3600 tests/fault ;;
    fuzz)
      CC=clang CXX=clang++ cmake -S . -B build-fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        -DTIDEWIRE_SANITIZE=address,undefined
      cmake --build build-fuzz --target control_fuzz store_codec_fuzz tcp_fuzz
      mkdir -p build-fuzz/corpus-control build-fuzz/corpus-store build-fuzz/corpus-tcp
      build-fuzz/bin/control_fuzz -max_total_time=600 build-fuzz/corpus-control tests/fuzz/control_corpus
      build-fuzz/bin/store_codec_fuzz -max_total_time=600 build-fuzz/corpus-store
      build-fuzz/bin/tcp_fuzz -max_total_time=600 build-fuzz/corpus-tcp
      ;;
    tsan)
      scripts/build.sh tsan sanitized_tests
      for _ in 1 2 3 4 5; do
        (cd build-tsan && TIDEWIRE_SIM_SCHEDULES=10000 setarch -R ctest --output-on-failure -L '^(unit|sim|conformance)$')
      done
      ;;
    *) echo "soak.sh: unknown part '$part' (sim, faults, store, fuzz, tsan)" >&2; exit 2 ;;
  esac
done
