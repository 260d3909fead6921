#!/usr/bin/env bash
# Installs what building and testing Tidewire needs. The one place that names system packages; Python packages stand in
# scripts/requirements.txt and those of groups. Safe to run again: when all is there it takes a fraction of a second and touches nothing.
#
#   scripts/setup.sh                 system packages and .venv
#   scripts/setup.sh --with GROUP    also the Python packages of GROUP/requirements.txt, for example demo (repeatable)
#   scripts/setup.sh --no-system     only .venv (no root, no sudo)
#
# Tried on Debian 12. Ubuntu 24.04 and 22.04 (not tried) have packages of the same names; 22.04 compiles with g++ 11 by default, so
# g++ 12 is installed beside it and scripts/build.sh chooses that.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

groups=()
system=1
while (($#)); do
  case "$1" in
    --with) groups+=("${2:?--with needs a group}"); shift 2 ;;
    --no-system) system=0; shift ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "setup.sh: unknown argument '$1' (see --help)" >&2; exit 2 ;;
  esac
done

packages=(
  # compiler and build
  build-essential cmake ninja-build ccache pkg-config patchelf
  # libraries
  libasio-dev libflatbuffers-dev flatbuffers-compiler libfmt-dev libcli11-dev libxxhash-dev nlohmann-json3-dev libssl-dev
  # headers of fabrics and devices; their libraries are found at run time
  libfabric-dev libibverbs-dev
  # tests, style
  libgtest-dev libgmock-dev libcpp-httplib-dev clang-format clang-tidy
  # a caller of the C interface in Rust: the compiler alone, some 55 MB
  rustc
  python3 python3-venv python3-dev
  # shaped links and references for figures
  iproute2 nftables iperf3
)

release="$(. /etc/os-release 2>/dev/null && echo "${ID:-unknown} ${VERSION_ID:-}")"
case "$release" in
  "debian 12" | "ubuntu 24.04") ;;
  # Without cpp-httplib the tests of the HTTP metadata client are left out.
  "ubuntu 22.04") mapfile -t packages < <(printf '%s\n' "${packages[@]}" g++-12 | grep -v httplib) ;;
  *) echo "setup.sh: $release is not a release that is looked after (Debian 12, Ubuntu 22.04, 24.04); trying its packages" >&2 ;;
esac

installed() { # package
  [[ " $have " == *" $1 "* ]]
}

install_system() {
  have="$(dpkg-query -W -f '${Package}|${db:Status-Status} ' "${packages[@]}" 2>/dev/null | tr ' ' '\n' |
    sed -n 's/|installed$//p' | sort -u | tr '\n' ' ')" || true
  local missing=() package
  for package in "${packages[@]}"; do installed "$package" || missing+=("$package"); done
  ((${#missing[@]})) || return 0

  local sudo=()
  if [[ "$(id -u)" != 0 ]]; then
    command -v sudo >/dev/null || {
      echo "setup.sh: missing: ${missing[*]}; install them as root, or run this script as root or with sudo" >&2
      exit 1
    }
    sudo=(sudo)
  fi
  echo "setup.sh: installing ${missing[*]}"
  "${sudo[@]}" apt-get update -qq
  local unknown=()
  for package in "${missing[@]}"; do
    # Not `… | grep -q`: with pipefail, grep's early end would count as a failure of apt-cache.
    [[ "$(apt-cache policy "$package" 2>/dev/null)" == *"Candidate: "[!\(]* ]] || unknown+=("$package")
  done
  if ((${#unknown[@]})); then
    echo "setup.sh: $release has no package ${unknown[*]}" >&2
    exit 1
  fi
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

install_python() {
  local files=(scripts/requirements.txt) group
  for group in "${groups[@]}"; do
    [[ -f "$group/requirements.txt" ]] || { echo "setup.sh: no $group/requirements.txt" >&2; exit 2; }
    files+=("$group/requirements.txt")
  done
  if [[ ! -x .venv/bin/python ]] || ! .venv/bin/python -c '' 2>/dev/null; then
    rm -rf .venv
    python3 -m venv .venv
  fi
  local file stamp
  for file in "${files[@]}"; do
    stamp=".venv/.stamp-${file%%/*}-$( (cat "$file"; .venv/bin/python -V) | sha256sum | cut -c1-16)"
    [[ -e "$stamp" ]] && continue
    echo "setup.sh: Python packages of $file"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -r "$file"
    rm -f ".venv/.stamp-${file%%/*}-"*
    touch "$stamp"
  done
}

((system)) && install_system
install_python
