#!/usr/bin/env bash
# Builds the programs of the test cluster, and the S3 server of the tests of checkpoints, from their pinned Go modules
# (the folders beside this file) into $DOWNPOUR_E2E_CACHE, by default ~/.cache/downpour-e2e/bin. What is there already,
# from the same pins, is kept.
# Usage: build.sh [NAME...], names as in `targets` below; without names, all of them.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
bin=${DOWNPOUR_E2E_CACHE:-$HOME/.cache/downpour-e2e/bin}

# MODULE_FOLDER: the version of Go that builds it, and the sum of golang.org/toolchain@v0.0.1-goVERSION.linux-amd64, as
# go.sum would hold it. What needs a newer one than Kubernetes has its own: all are built again when theirs changes.
go_of() {
  case "$1" in
    versitygw) echo 1.25.14 h1:XriDgll2yv4W2YeUo2X/WuUuy+iGJkXGH0CQloMBEXo= ;;
    *) echo 1.24.13 h1:5sgfUhn9QCgVl4UYj32GrIYFHI3bi2UX55tNfupXwxc= ;;
  esac
}

# What makes a built program stale beside its go.mod and go.sum.
flags_version=1

# NAME MODULE_FOLDER PACKAGE VERSION
targets() {
  cat <<'END'
etcd etcd go.etcd.io/etcd/server/v3 v3.6.8
kube-apiserver kubernetes k8s.io/kubernetes/cmd/kube-apiserver v1.34.4
kube-controller-manager kubernetes k8s.io/kubernetes/cmd/kube-controller-manager v1.34.4
kube-scheduler kubernetes k8s.io/kubernetes/cmd/kube-scheduler v1.34.4
kubelet kubernetes k8s.io/kubernetes/cmd/kubelet v1.34.4
kube-proxy kubernetes k8s.io/kubernetes/cmd/kube-proxy v1.34.4
kubectl kubernetes k8s.io/kubernetes/cmd/kubectl v1.34.4
coredns coredns . v1.12.4
kwok kwok sigs.k8s.io/kwok/cmd/kwok v0.7.0
helm helm helm.sh/helm/v3/cmd/helm v3.19.2
kubeconform kubeconform github.com/yannh/kubeconform/cmd/kubeconform v0.7.0
versitygw versitygw github.com/versity/versitygw/cmd/versitygw v1.8.0
END
}

say() { printf 'cluster build: %s\n' "$*" >&2; }

# One run at a time for each cache folder: two checkouts may share it.
mkdir -p "$bin/.stamps"
exec 9>"$bin/.lock"
flock -w 3600 9 || { say "waited an hour for another build to leave $bin/.lock"; exit 1; }

stamp_of() { # MODULE_FOLDER PACKAGE
  local go_version
  read -r go_version _ < <(go_of "$1")
  {
    cat "$here/$1"/go.*
    find "$here/$1" -name '*.go' -exec cat {} +
    echo "$2 $go_version $flags_version"
  } | sha256sum | cut -c1-64
}

is_current() { # NAME MODULE_FOLDER PACKAGE
  [ -x "$bin/$1" ] && [ "$(cat "$bin/.stamps/$1" 2>/dev/null)" = "$(stamp_of "$2" "$3")" ]
}

# The pinned Go, fetched as a module by whatever Go there is: Debian's 1.19 can do that, and no more.
pinned_go() { # VERSION SUM
  local go_version=$1 go_sum=$2 answer directory sum
  answer=$(cd / && GOFLAGS='' GOTOOLCHAIN=local GO111MODULE=on \
    go mod download -json "golang.org/toolchain@v0.0.1-go$go_version.linux-amd64") || {
    say "cannot fetch Go $go_version: $answer"
    exit 1
  }
  directory=$(sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p' <<<"$answer")
  sum=$(sed -n 's/^\t"Sum": "\(.*\)",\{0,1\}$/\1/p' <<<"$answer")
  [ "$sum" = "$go_sum" ] || { say "Go $go_version has the sum '$sum', expected $go_sum"; exit 1; }
  # A module has no executable files.
  find "$directory/bin" "$directory/pkg/tool" -type f ! -perm -u+x -exec chmod u+w {} + -exec chmod a+x {} +
  printf '%s\n' "$directory/bin/go"
}

# All of one module at once: one program is linked, on one core, while the next is compiled.
build_module() { # MODULE_FOLDER VERSION NAME=PACKAGE...
  local folder=$1 version=$2 started=$SECONDS ldflags="-s -w" minor=${2#v*.} one out
  shift 2
  if [ "$folder" = kubernetes ]; then
    minor=${minor%%.*}
    ldflags+=" -X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1"
    ldflags+=" -X k8s.io/component-base/version.gitMinor=$minor"
  fi
  say "building $folder $version: ${*%%=*}"
  out=$bin/.new/
  rm -rf "$out"
  mkdir "$out"
  # The name that Go gives to the only program of a module may be another one.
  [ $# -gt 1 ] || out+=${1%%=*}
  (cd "$here/$folder" && GOFLAGS=-mod=readonly GOTOOLCHAIN=local GOWORK=off CGO_ENABLED=0 \
    "$go" build -trimpath -buildvcs=false -ldflags "$ldflags" -o "$out" "${@#*=}")
  for one in "$@"; do
    mv "$bin/.new/${one%%=*}" "$bin/${one%%=*}"
    stamp_of "$folder" "${one#*=}" >"$bin/.stamps/${one%%=*}"
  done
  say "built $folder in $((SECONDS - started)) s"
}

wanted() { # NAME
  [ "${#names[@]}" -eq 0 ] && return 0
  local name
  for name in "${names[@]}"; do [ "$name" = "$1" ] && return 0; done
  return 1
}

names=("$@")
known=$(targets | cut -d' ' -f1)
for name in "${names[@]}"; do
  grep -qx -- "$name" <<<"$known" || { say "no program '$name'; there are: $(xargs <<<"$known")"; exit 2; }
done

go=
go_pin=
for folder in $(targets | cut -d' ' -f2 | uniq); do
  missing=() version=
  while read -r name of package its_version; do
    if [ "$of" != "$folder" ] || ! wanted "$name" || is_current "$name" "$folder" "$package"; then continue; fi
    missing+=("$name=$package") version=$its_version
  done < <(targets)
  [ "${#missing[@]}" -eq 0 ] && continue
  [ -n "$go" ] || say "missing programs are built into $bin; on two cores Kubernetes takes about 7 minutes"
  if [ "$go_pin" != "$(go_of "$folder")" ]; then
    go_pin=$(go_of "$folder")
    # shellcheck disable=SC2086  # a version and a sum
    go=$(pinned_go $go_pin)
  fi
  build_module "$folder" "$version" "${missing[@]}"
done
