#!/usr/bin/env bash
# Installs what building and testing needs and a fresh Debian does not have. Does nothing where all is there.
#
#   setup-test.sh          everything
#   setup-test.sh build    only what compiling needs
#
# Called by make, which says where the Python environments go.
set -euo pipefail
cd "$(dirname "$0")/.."

rust=1.95
nextest=0.9.143

say() { printf 'setup: %s\n' "$*" >&2; }
stop() { say "$*"; exit 1; }

# Installs Debian packages as root or by sudo without a password; otherwise says which.
debian() {
  local as=()
  if ! command -v apt-get >/dev/null; then stop "please install what Debian calls: $*"; fi
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || stop "please run: sudo apt-get install $*"
    as=(sudo -n)
  fi
  say "apt-get install $*"
  "${as[@]}" apt-get -q update >&2
  "${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "$@" >&2
}

need_rust() {
  command -v cargo >/dev/null && command -v rustc >/dev/null \
    || stop "cargo is missing. Install Rust $rust or newer with rustup (profile default, or add rustfmt and clippy), then try again."
  local have
  have=$(rustc --version | cut -d' ' -f2)
  [ "$(printf '%s\n%s\n' "$rust" "$have" | sort -V | head -n 1)" = "$rust" ] \
    || stop "Rust is $have, and $rust or newer is needed: rustup update stable"
}

need_c_compiler() {
  # The TLS library and SQLite are compiled from C.
  printf 'int main(void){return 0;}' | cc -x c -o /dev/null - 2>/dev/null || debian build-essential
}

need_lints() {
  cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 \
    || rustup component add rustfmt clippy >&2 \
    || stop "rustfmt or clippy is missing: rustup component add rustfmt clippy"
}

need_runner() {
  cargo nextest --version >/dev/null 2>&1 && return
  say "installing cargo-nextest $nextest (some minutes, once)"
  cargo install cargo-nextest --locked --version "$nextest" >&2 \
    || say "could not install cargo-nextest; going on with cargo test"
}

need_faketime() {
  # One test sets the clock of a server back.
  command -v faketime >/dev/null || debian faketime
}

fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

python() {
  local p
  for p in python3.11 python3; do
    if fits "$p"; then echo "$p"; return; fi
  done
  return 1
}

need_python() {
  python >/dev/null || debian python3
  python >/dev/null || stop "Python 3.11 to 3.13 is needed, best 3.11"
  # Debian ships the module and leaves out what it needs to work.
  "$(python)" -c 'import ensurepip, venv' 2>/dev/null || debian python3-venv
}

# An environment with exactly the pinned files. The mark comes last, so a half-made one is made anew.
need_environment() {
  local dir=${1%/bin/python} pins=$2
  [ -e "$dir/.complete" ] && return
  mkdir -p "${dir%/*}"
  (
    flock 9
    if [ -e "$dir/.complete" ]; then exit; fi
    say "installing $pins"
    rm -rf "$dir"
    "$(python)" -m venv "$dir"
    "$dir/bin/python" -m pip install -q --disable-pip-version-check --only-binary :all: --require-hashes -r "$pins" >&2
    touch "$dir/.complete"
  ) 9>"$dir.lock"
}

need_rust
need_c_compiler
[ "${1:-all}" = build ] && exit
need_lints
need_runner
need_faketime
need_python
need_environment "${EXEAT_INTEROP_PYTHON:?run this through make}" interop/requirements.txt
need_environment "${EXEAT_A2A_03_PYTHON:?run this through make}" interop/requirements-a2a-03.txt
need_environment "${EXEAT_LANGGRAPH_PYTHON:?run this through make}" interop/requirements-langgraph.txt
