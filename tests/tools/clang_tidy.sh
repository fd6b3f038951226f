#!/usr/bin/env bash
# clang-tidy over our files that are compiled, without tests. Usage: clang_tidy.sh BUILD_DIRECTORY
set -euo pipefail
build=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"

# Generated protobuf headers must be there for clang-tidy to parse what includes them.
cmake --build "$build" --target downpour_grpc downpour_tensorboard_proto downpour_tensorflow_example >/dev/null
# A file is checked again only when it, how it is compiled, a header of ours that it includes, or the checks changed.
cache="${XDG_CACHE_HOME:-$HOME/.cache}/downpour-clang-tidy"
mkdir -p "$cache"
check() {
  local file=$1 key=$2
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
export cache build
python3 - "$build" <<'PY' | xargs -P 2 -L 1 bash -c 'check "$@"' check
# Those of our files that are compiled, and a hash of all that the result of a check rests on.
import functools, hashlib, json, os, pathlib, re, subprocess, sys


def ls(*patterns):
    return subprocess.check_output(["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns], text=True).split()


protos = ls("*.proto")


@functools.cache
def includes(path):
    """The files of ours that the file includes, by paths from the root; all protos where it is one made from them."""
    names = re.findall(r'^\s*#\s*include\s*"([^"]+)"', pathlib.Path(path).read_text(), re.MULTILINE)
    generated = protos if any(name.endswith(".pb.h") for name in names) else []
    return [name for name in names if os.path.exists(name)] + generated


def everything(path):
    found, rest = set(), [path]
    while rest:
        file = rest.pop()
        if file not in found:
            found.add(file)
            rest += includes(file)
    return sorted(found)


# Tests are held by the compiler's warnings alone: clang-tidy over GoogleTest's macros costs more than it finds.
tracked = {name for name in ls("*.cc")
           if not name.endswith("_test.cc") and not name.startswith("tests/") and "/testing/" not in name}
root = os.getcwd()
for entry in json.load(open(os.path.join(sys.argv[1], "compile_commands.json"))):
    path = os.path.relpath(entry["file"], root)
    if path in tracked:
        key = hashlib.sha256(entry["command"].replace(root, ".").encode())  # that of another checkout is the same
        for file in [".clang-tidy", *everything(path)]:
            key.update(f"\0{file}\0".encode() + pathlib.Path(file).read_bytes())
        print(path, key.hexdigest()[:40])
PY
echo "lint: clang-tidy finds nothing"
