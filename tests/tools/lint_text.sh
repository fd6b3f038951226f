#!/usr/bin/env bash
# Format, shell and Python of the files of the repository, and what no file may say.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"

git ls-files --cached --others --exclude-standard '*.cc' '*.h' '*.cu' '*.cuh' | xargs clang-format-14 --dry-run --Werror
git ls-files --cached --others --exclude-standard '*.sh' .ci/run tests/gpu/run | xargs shellcheck
python3 -m compileall -q tests deploy
# A channel that is made elsewhere goes through the proxies of the environment, for one.
if git grep -nE 'CreateCustomChannel|CreateChannel *\(|InsecureChannelCredentials' -- '*.cc' '*.h' ':!proto/member_channel.cc'; then
  echo "lint: channels to members of a job are made by MakeMemberChannel (proto/member_channel.h)" >&2
  exit 1
fi
# The machine may set its wall clock back at any time. It is read where it is told or stored, or compared with what
# others wrote (when a token expires); time-outs and periods are counted by the monotonic clock.
if git grep -nE 'absl::Now\(|system_clock::now|(Wait|Await|LockWhen)WithDeadline' -- '*.cc' '*.h' ':!*_test.cc' ':!tests/' ':!*/testing/*' \
  ':!proto/deadline.cc' ':!operator/kube/wall_clock.h' ':!operator/kube/file_credentials.cc' ':!operator/kube/leader_election.cc' ':!cli/clock.h' \
  ':!trainer/service/wall_time.h'; then
  echo "lint: use DeadlineIn (proto/deadline.h), MonotonicNow or a clock that does not go back (kube::WallClock, cli::Clock)" >&2
  exit 1
fi
echo "lint: the text is clean"
