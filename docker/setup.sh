#!/usr/bin/env bash
# Installs what is missing to build, test and run Downpour on Debian 12, and says what it installs:
# the Debian packages listed beside it, and from PyPI the CPU part of LibTorch, Apache Arrow and what compiles for
# NVIDIA's GPUs into .deps/ of the checkout.
# `setup.sh e2e` installs what the end-to-end tests need as well (packages-image.txt, packages-e2e.txt).
# Does nothing, fast, when everything is there.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
torch_version=2.11.0
torch_directory="$root/.deps/libtorch-$torch_version"
arrow_version=26.0.1
arrow_directory="$root/.deps/arrow-$arrow_version"
cuda_version=13.0
cuda_directory="$root/.deps/cuda-toolkit-$cuda_version"
cupti_directory="$root/.deps/cupti-$cuda_version"

say() { printf 'setup: %s\n' "$*" >&2; }

lists=("$here/packages-build.txt" "$here/packages-data.txt")
case "${1:-}" in
  "") ;;
  e2e) lists+=("$here/packages-image.txt" "$here/packages-e2e.txt") ;;
  *) say "got '$1', expected nothing or e2e"; exit 2 ;;
esac

listed_packages() { sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "${lists[@]}"; }

install_packages() {
  local missing=() package
  for package in $(listed_packages); do
    if [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
      missing+=("$package")
    fi
  done
  [ "${#missing[@]}" -eq 0 ] && return
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { say "need root (or sudo) to install: ${missing[*]}"; exit 1; }
    sudo=(sudo)
  fi
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  "${sudo[@]}" apt-get -q -y -o Dpkg::Use-Pty=0 update >/dev/null
  # Programs are wanted, not the services that some packages start: not now, and not with the machine.
  local policy=/usr/sbin/policy-rc.d forbidden=
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
    "${sudo[@]}" chmod +x "$policy"
    forbidden=yes
  fi
  local status=0
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 install --no-install-recommends \
    "${missing[@]}" >/dev/null || status=$?
  [ -z "$forbidden" ] || "${sudo[@]}" rm -f "$policy"
  [ "$status" -eq 0 ] || exit "$status"
  if [[ " ${missing[*]} " == *" prometheus "* ]] && command -v systemctl >/dev/null; then
    "${sudo[@]}" systemctl --quiet disable prometheus
  fi
}

# Runs UNPACK with a folder of the wheels of LIST and one for what it takes out of them, which becomes DIRECTORY: as a
# whole, or not at all.
install_wheels() { # LIST DIRECTORY UNPACK
  local work
  work=$(mktemp -d "$root/.deps.XXXXXX")
  # shellcheck disable=SC2064  # the path is fixed now on purpose
  trap "rm -rf '$work'" EXIT
  # The interpreter's own version does not matter: only the C++ libraries of the wheels are used.
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 \
    --implementation cp --abi cp311 --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 \
    --platform manylinux_2_18_x86_64 --platform manylinux2014_x86_64 --require-hashes -r "$1" -d "$work/wheels" >/dev/null
  mkdir -p "$work/tree"
  "$3" "$work/wheels" "$work/tree"
  touch "$work/tree/complete"
  mkdir -p "$root/.deps"
  rm -rf "$2"
  mv "$work/tree" "$2"
  rm -rf "$work"
  trap - EXIT
}

# The wheels' own layout is kept: libtorch_cpu.so finds the CUDA libraries relative to itself.
unpack_libtorch() { # WHEELS TREE
  unzip -q "$1"/torch-*.whl 'torch/include/*' 'torch/lib/libtorch_cpu.so' 'torch/lib/libtorch.so' \
    'torch/lib/libc10.so' 'torch/lib/libgomp.so.1' 'torch/share/cmake/*' 'torch-*.dist-info/*LICENSE*' -d "$2"
  unzip -q "$1"/nvidia_cuda_runtime-*.whl 'nvidia/cu13/lib/libcudart.so.13' -d "$2"
  unzip -q "$1"/nvidia_cuda_cupti-*.whl 'nvidia/cu13/lib/libcupti.so.13' -d "$2"
}

unpack_arrow() { # WHEELS TREE
  unzip -q "$1"/pyarrow-*.whl 'pyarrow/include/*' 'pyarrow/libarrow.so.*' 'pyarrow/libarrow_s3.so.*' \
    'pyarrow/libparquet.so.*' 'pyarrow-*.dist-info/*LICENSE*' 'pyarrow-*.dist-info/*NOTICE*' -d "$2"
}

# The compiler and headers. Programs take the libraries that LibTorch has, or its CUDA part.
unpack_cuda_toolkit() { # WHEELS TREE
  local wheel
  for wheel in "$1"/nvidia_{cuda_nvcc,cuda_crt,nvvm,cuda_cccl,cuda_runtime}-*.whl; do
    unzip -q "$wheel" -d "$2"
  done
  rm -rf "$2"/nvidia/cu13/{.metadata,lib/cmake} "$2"/nvidia/cu13/lib/libcuda*
  unzip -q "$1"/nvidia_nccl_cu13-*.whl 'nvidia/nccl/include/*' '*.dist-info/*icense*' -d "$2"
  # A wheel keeps no run bits.
  chmod +x "$2"/nvidia/cu13/bin/* "$2"/nvidia/cu13/nvvm/bin/*
}

unpack_cupti() { # WHEELS TREE
  unzip -q "$1"/nvidia_cuda_cupti-*.whl 'nvidia/cu13/include/*' '*.dist-info/*icense*' -d "$2"
}

install_libtorch() {
  [ -f "$torch_directory/complete" ] && return
  say "installing LibTorch $torch_version (CPU part, about 540 MB to download) into .deps/"
  install_wheels "$here/libtorch.txt" "$torch_directory" unpack_libtorch
}

install_arrow() {
  [ -f "$arrow_directory/complete" ] && return
  say "installing Apache Arrow $arrow_version (C++ libraries, about 55 MB to download) into .deps/"
  install_wheels "$here/arrow.txt" "$arrow_directory" unpack_arrow
}

install_cuda_toolkit() {
  [ -f "$cuda_directory/complete" ] && return
  say "installing the compiler of CUDA $cuda_version and headers (about 300 MB to download) into .deps/"
  install_wheels "$here/cuda-toolkit.txt" "$cuda_directory" unpack_cuda_toolkit
}

install_cupti() {
  [ -f "$cupti_directory/complete" ] && return
  say "installing the headers of CUPTI $cuda_version (about 10 MB to download) into .deps/"
  install_wheels "$here/cupti.txt" "$cupti_directory" unpack_cupti
}

install_packages
install_libtorch
install_arrow
install_cuda_toolkit
install_cupti
