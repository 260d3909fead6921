#!/usr/bin/env bash
# Sets up, builds and runs all tests; the last line is "N passed, N failed, N skipped". Exits non-zero when anything failed.
#
#   scripts/test.sh            everything: release tests, Python tests, then unit, simulator and conformance tests under
#                              the address, undefined-behaviour and thread sanitizers
#   scripts/test.sh --quick    without the sanitizers
#
# Reports (JUnit) stand in build*/test-results.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

quick=0
for argument in "$@"; do
  case "$argument" in
    --quick) quick=1 ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "test.sh: unknown argument '$argument' (see --help)" >&2; exit 2 ;;
  esac
done

root="$PWD"
results="$root/build/test-results"
failed_stages=()
times=()
launcher=()

# stage NAME COMMAND...: runs it, prints its time, remembers failure.
stage() {
  local name="$1" start="$SECONDS" code=0
  shift
  echo "=== $name"
  "$@" || code=$?
  times+=("$(printf '%6d s  %s%s' "$((SECONDS - start))" "$name" "$( ((code)) && echo '  FAILED')")")
  ((code == 0)) || failed_stages+=("$name")
  return "$code"
}

finish() {
  echo "=== stages"
  printf '%s\n' "${times[@]}"
  # The summary counts a failed stage as a failure of its own where none of its reports shows one.
  python3 scripts/test_summary.py "${summary[@]}" $( ((${#failed_stages[@]})) && printf -- '--failed-stage=%q ' "${failed_stages[@]// /_}")
  exit
}

# ctests BUILD_FOLDER CTEST_ARGUMENTS...
ctests() {
  local folder="$root/$1" name="$2"
  shift 2
  mkdir -p "$folder/test-results"
  (cd "$folder" && "${launcher[@]}" ctest --output-on-failure --no-tests=ignore --output-junit "$folder/test-results/ctest-$name.xml" "$@")
}

python_tests() {
  local folders=() folder code=0
  for folder in tests/unit tests/python tests/conformance/python tests/fault tests/integration bench/tests; do
    [[ -d "$folder" ]] && [[ -n "$(find "$folder" -name 'test_*.py' -print -quit)" ]] && folders+=("$folder")
  done
  ((${#folders[@]})) || { echo "no Python tests"; return 0; }
  HYPOTHESIS_STORAGE_DIRECTORY="$root/build/hypothesis" \
    .venv/bin/python -m pytest -q -ra -p no:cacheprovider --durations=10 --junitxml="$results/pytest.xml" "${folders[@]}" || code=$?
  # 5: nothing collected.
  ((code == 5)) && code=0
  return "$code"
}

# sanitized PRESET: the thread sanitizer of g++ 12 needs a fixed address layout on newer kernels.
sanitized() {
  local preset="$1" folder="build-$1"
  scripts/build.sh "$preset" sanitized_tests || return 1
  export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}"
  # The full number of simulated schedules has run in the release build; sanitizers slow each down tenfold.
  export TIDEWIRE_SIM_SCHEDULES="${TIDEWIRE_SIM_SCHEDULES:-1000}"
  export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
  local suppressions="$root/tests/support/tsan.supp"
  export TSAN_OPTIONS="${TSAN_OPTIONS:-second_deadlock_stack=1$([[ -f "$suppressions" ]] && echo ":suppressions=$suppressions")}"
  launcher=()
  [[ "$preset" == tsan ]] && setarch -R true 2>/dev/null && launcher=(setarch -R)
  ctests "$folder" sanitized -L '^(unit|sim|conformance)$' -j "$(nproc)"
}

summary=("$results")
rm -rf build/test-results build-asan/test-results build-tsan/test-results

stage setup scripts/setup.sh --with demo || finish
stage "build release" scripts/build.sh release || finish
mkdir -p "$results"
stage "unit tests" ctests build unit -L '^unit$' -j "$(nproc)"
# These measure or load the machine: one at a time.
stage "other tests" ctests build other -LE '^unit$'
stage "Python tests" python_tests
if ((!quick)); then
  for preset in asan tsan; do
    summary+=("$root/build-$preset/test-results")
    stage "$preset" sanitized "$preset"
  done
fi
finish
