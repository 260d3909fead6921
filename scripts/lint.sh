#!/usr/bin/env bash
# Style and layering. Exits non-zero when something is to be changed.
#
#   scripts/lint.sh          clang-format (check only) and layering
#   scripts/lint.sh --fix    let clang-format rewrite the files
#   scripts/lint.sh --tidy   also clang-tidy (slow; needs a configured build folder)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fix=0 tidy=0
for argument in "$@"; do
  case "$argument" in
    --fix) fix=1 ;;
    --tidy) tidy=1 ;;
    *) echo "lint.sh: unknown argument '$argument'" >&2; exit 2 ;;
  esac
done

failed=0
# include/tidewire/tidewire.h is laid out by hand, as a manual.
mapfile -t sources < <(git ls-files --cached --others --exclude-standard -- 'src/*.h' 'src/*.cpp' 'tests/*.h' 'tests/*.cpp' \
  'bench/*.h' 'bench/*.cpp')
if ((${#sources[@]})); then
  if ((fix)); then
    clang-format -i "${sources[@]}"
  else
    clang-format --dry-run --Werror "${sources[@]}" || failed=1
  fi
fi
python3 scripts/check_layers.py || failed=1
if ((tidy)); then
  [[ -f build/compile_commands.json ]] || { echo "lint.sh: run scripts/build.sh first" >&2; exit 2; }
  mapfile -t units < <(printf '%s\n' "${sources[@]}" | grep '^src/.*\.cpp$')
  clang-tidy -p build --quiet "${units[@]}" || failed=1
fi
exit "$failed"
