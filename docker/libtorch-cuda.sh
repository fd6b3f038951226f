#!/usr/bin/env bash
# Lays out LibTorch's CUDA part and NVIDIA's libraries that it needs, from PyPI and pinned by hash, without what the CPU
# part has already. About 2 GB to download. Usage: libtorch-cuda.sh OUT LIBTORCH, where LIBTORCH is the CPU part.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
out=$1 libtorch=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

platforms=()
for version in 2_28 2_27 2_25 2_18 2_17 2_12; do platforms+=(--platform "manylinux_${version}_x86_64"); done
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 \
  --implementation cp --abi cp311 "${platforms[@]}" --platform manylinux2014_x86_64 --require-hashes \
  -r "$here/libtorch-cuda.txt" -d "$work/wheels" >/dev/null

mkdir -p "$out"
unzip -q "$work"/wheels/torch-*.whl 'torch/lib/libtorch_cuda*.so' 'torch/lib/libc10_cuda.so' 'torch/lib/libtorch.so' \
  'torch/lib/libtorch_nvshmem.so' -d "$out"
for wheel in "$work"/wheels/nvidia_*.whl; do
  # Programs, headers and what is linked statically stay behind.
  unzip -q -o "$wheel" 'nvidia/*/lib/*.so*' '*.dist-info/*icense*' -d "$out" || [ $? -eq 11 ]
done

# Variants that LibTorch does not use.
rm -f "$out"/nvidia/cu13/lib/*.alt.so* "$out"/nvidia/cu13/lib/lib{cufftw,cusolverMg,nvblas}.so.*

missing=$(LD_LIBRARY_PATH="$libtorch/torch/lib" ldd "$out/torch/lib/libtorch_cuda.so" | grep 'not found' || true)
if [ -n "$missing" ]; then
  printf 'libtorch-cuda: libtorch_cuda.so needs what %s has not:\n%s\n' "$here/libtorch-cuda.txt" "$missing" >&2
  exit 1
fi
