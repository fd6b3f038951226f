#!/usr/bin/env bash
# Format, shell and clang-tidy checks over the files of the repository. Usage: lint.sh BUILD_DIRECTORY
set -euo pipefail
build=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"

git ls-files --cached --others --exclude-standard '*.cc' '*.h' | xargs clang-format-14 --dry-run --Werror
git ls-files --cached --others --exclude-standard '*.sh' .ci/run | xargs shellcheck
python3 -m compileall -q tests deploy

# Generated protobuf headers must be there for clang-tidy to parse what includes them.
cmake --build "$build" --target downpour_grpc >/dev/null
# A file is checked again only when it, how it is compiled, a header of ours, or the checks changed.
cache="${XDG_CACHE_HOME:-$HOME/.cache}/downpour-clang-tidy"
mkdir -p "$cache"
headers=$({ cat .clang-tidy; git ls-files --cached --others --exclude-standard '*.h' '*.proto' | xargs cat; } | sha256sum)
check() {
  local file=$1 compiled=$2 key
  key=$({ printf '%s' "$headers $compiled"; cat "$file"; } | sha256sum | cut -c1-40)
  [ -e "$cache/$key" ] && return 0
  if clang-tidy-14 -p "$build" --quiet "$file" 2>"$cache/$key.err"; then
    touch "$cache/$key"
    rm -f "$cache/$key.err"
  else
    grep -v 'warnings generated' "$cache/$key.err" >&2
    rm -f "$cache/$key.err"
    return 1
  fi
}
export -f check
export cache headers build
python3 - "$build" <<'PY' | xargs -P 2 -L 1 bash -c 'check "$@"' check
# Those of our files that are compiled, and a hash of how.
import hashlib, json, os, subprocess, sys
# Tests are held by the compiler's warnings alone: clang-tidy over GoogleTest's macros costs more than it finds.
tracked = {name for name in subprocess.check_output(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.cc"], text=True).split()
           if not name.endswith("_test.cc") and not name.startswith("tests/") and "/testing/" not in name}
root = os.getcwd()
for entry in json.load(open(os.path.join(sys.argv[1], "compile_commands.json"))):
    path = os.path.relpath(entry["file"], root)
    if path in tracked:
        command = entry["command"].replace(root, ".")  # that of another checkout is the same
        print(path, hashlib.sha256(command.encode()).hexdigest())
PY
echo "lint: clean"
