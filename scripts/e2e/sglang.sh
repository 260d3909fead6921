#!/usr/bin/env bash
# SGLang's own Mooncake classes, unchanged, on Tidewire: its manager, senders, receivers and bootstrap server in prefill and decode
# processes with KV in CPU memory. Bytes are compared once SGLang says Success.
#
#   scripts/e2e/sglang.sh                        everything, some three minutes on two processors once it is set up
#   scripts/e2e/sglang.sh --only-restarts        500 requests while the decode instance is killed and started again, nothing else
#   scripts/e2e/sglang.sh --requests N           another number than 500; 0 leaves the restarts out
#   scripts/e2e/sglang.sh --directory DIR        set up in DIR instead of build/e2e/sglang (some 3 GB)
#   scripts/e2e/sglang.sh --wheels DIR           Tidewire's wheels from DIR instead of built ones
#   scripts/e2e/sglang.sh --json FILE            also write the figures
#
# One line for each check; exit status 0 when all passed. Needs Python 3.11 to 3.13 (PYTHON=...), 6 GB of memory, and torch 2.13.0: a
# build for the CPU is enough and much smaller than the one that comes unasked (pip's PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

sglang=sglang==0.5.23
directory=build/e2e/sglang
wheels=""
arguments=()
while (($#)); do
  case "$1" in
    --directory) directory="${2:?--directory needs a folder}"; shift 2 ;;
    --wheels) wheels="${2:?--wheels needs a folder}"; shift 2 ;;
    --only-restarts) arguments+=("$1"); shift ;;
    --requests | --json) arguments+=("$1" "${2:?$1 needs a value}"); shift 2 ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "sglang.sh: unknown argument '$1' (see --help)" >&2; exit 2 ;;
  esac
done
mkdir -p "$directory"
directory=$(realpath "$directory")
python="$directory/venv/bin/python"
requirements=scripts/e2e/sglang-requirements.txt

# Its warnings (what SGLang asks for and is left out, say) go to a file, and come out only when it fails.
pip_install() {
  "$python" -m pip --quiet --disable-pip-version-check install "$@" 2> "$directory/pip.log" || { cat "$directory/pip.log" >&2; exit 1; }
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.11 python3.12 python3.13}; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2> /dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "sglang.sh: $sglang needs Python 3.11 to 3.13; name one with PYTHON=..." >&2
  exit 1
}

install_sglang() {
  local stamp
  stamp="$directory/venv/.stamp-$( (cat "$requirements"; echo "$sglang") | sha256sum | cut -c1-16)"
  [[ -e "$stamp" ]] && return
  echo "sglang.sh: installing $sglang into $directory/venv (some minutes)" >&2
  rm -rf "$directory/venv"
  "$(find_python)" -m venv "$directory/venv"
  pip_install --no-deps "$sglang"
  pip_install -r "$requirements"
  touch "$stamp"
}

install_sglang
if [[ -z "$wheels" ]]; then
  wheels="$directory/wheels"
  scripts/setup.sh
  scripts/build.sh release tidewire_shared tidewire_program > "$directory/build.log" || { cat "$directory/build.log" >&2; exit 1; }
  scripts/wheel.sh --out "$wheels" > /dev/null
fi
rm -rf "$directory/tidewire"
pip_install --no-deps --target "$directory/tidewire" "$wheels"/tidewire-*.whl "$wheels"/tidewire_mooncake-*.whl

PYTHONPATH=scripts/e2e PYTHONDONTWRITEBYTECODE=1 exec "$python" scripts/e2e/sglang_run.py --directory "$directory" "${arguments[@]}"
