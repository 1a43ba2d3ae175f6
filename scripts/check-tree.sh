#!/usr/bin/env bash
# What no compiler checks: how long a file may get, and that the tree names no machine and no registry.
set -euo pipefail
cd "$(dirname "$0")/.."

bad=0
complain() { printf '%s\n' "$1" >&2; bad=1; }

# A file answers one question. Tables of cases may take more room.
while IFS= read -r file; do
  case $file in */tests/* | */tests.rs | *_tests.rs | */benches/*) most=1200 ;; *) most=800 ;; esac
  lines=$(wc -l <"$file")
  [ "$lines" -le "$most" ] || complain "$file: $lines lines, at most $most: split it by what it answers"
done < <(git ls-files --cached --others --exclude-standard -- '*.rs' | while IFS= read -r f; do [ -f "$f" ] && echo "$f"; done)

# Found in what is tracked or about to be. The brackets keep this file from finding itself.
forbid() {
  local why=$1 pattern=$2 hits
  hits=$(git grep --untracked -nIE "$pattern" -- . ':!Cargo.lock' || true)
  [ -z "$hits" ] || complain "$hits"$'\n'"^ $why"
}
forbid "a path of one machine" '(^|[^[:alnum:]_.$}/-])/([h]ome|[r]oot|[U]sers|[w]ork|[f]arm|[t]mp)/[[:alnum:]._-]'
forbid "a package registry's host: the clients know where to go" \
  '(static|index)[.]crates[.]io|pypi[.]org|pythonhosted[.]org|registry[.]npmjs|(deb|security)[.]debian[.]org|proxy[.]golang'
forbid "an unresolved merge" '^(<<<<<<[<]|>>>>>>[>]) '

exit "$bad"
