#!/usr/bin/env bash
# Lays out LibTorch's CUDA part and NVIDIA's libraries that it needs, from PyPI and pinned by hash, without what the CPU
# part has already: as a whole, or not at all. About 2 GB to download, 3 GB laid out.
# Usage: libtorch-cuda.sh OUT LIBTORCH, where LIBTORCH is the CPU part.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
out=$1 libtorch=$2
mkdir -p "$(dirname "$out")"
work=$(mktemp -d "$out.XXXXXX")
trap 'rm -rf "$work"' EXIT

platforms=()
for version in 2_28 2_27 2_25 2_18 2_17 2_12; do platforms+=(--platform "manylinux_${version}_x86_64"); done
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 \
  --implementation cp --abi cp311 "${platforms[@]}" --platform manylinux2014_x86_64 --require-hashes \
  -r "$here/libtorch-cuda.txt" -d "$work/wheels" >/dev/null

tree=$work/tree
mkdir "$tree"
unzip -q "$work"/wheels/torch-*.whl 'torch/lib/libtorch_cuda*.so' 'torch/lib/libc10_cuda.so' \
  'torch/lib/libtorch_nvshmem.so' -d "$tree"
for wheel in "$work"/wheels/nvidia_*.whl; do
  # Programs, headers and what is linked statically stay behind.
  unzip -q -o "$wheel" 'nvidia/*/lib/*.so*' '*.dist-info/*icense*' -d "$tree" || [ $? -eq 11 ]
done

# Variants that LibTorch does not use, what only profilers load, and NVSHMEM's ways between machines: LibTorch is linked
# with it, and nothing here calls it.
rm -f "$tree"/nvidia/cu13/lib/*.alt.so* "$tree"/nvidia/cu13/lib/lib{cufftw,cusolverMg,nvblas}.so.* \
  "$tree"/nvidia/cu13/lib/lib{checkpoint,nvperf_host,nvperf_target,pcsamplingutil}.so \
  "$tree"/nvidia/cu13/lib/lib{cufile_rdma,nvtx3interop}.so.1 "$tree"/nvidia/nvshmem/lib/nvshmem_{bootstrap,transport}_*
# The CPU part has them, and no licences.
rm -f "$tree"/nvidia/cu13/lib/lib{cudart,cupti}.so.13

missing=$(LD_LIBRARY_PATH="$libtorch/torch/lib:$libtorch/nvidia/cu13/lib" ldd "$tree/torch/lib/libtorch_cuda.so" |
  grep 'not found' || true)
if [ -n "$missing" ]; then
  printf 'libtorch-cuda: libtorch_cuda.so needs what %s has not:\n%s\n' "$here/libtorch-cuda.txt" "$missing" >&2
  exit 1
fi
rm -rf "$out"
mv "$tree" "$out"
