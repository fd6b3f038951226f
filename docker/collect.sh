#!/usr/bin/env bash
# Lays out the root file system of one of our images: the program, the shared libraries it needs, and no more of Debian
# than name resolution, CA certificates and a shell for `kubectl exec` (busybox). Each folder in OUT is one layer.
# The Dockerfiles and e2e/images.py both use it, so that an image is the same whichever of them makes it.
# Usage: collect.sh operator|server|trainer|trainer-cuda BINARIES OUT [LIBTORCH ARROW [CUDA]], where CUDA is what
# libtorch-cuda.sh laid out.
set -euo pipefail

image=$1 binaries=$2 out=$3
libtorch=${4:+$(realpath "$4")} arrow=${5:+$(realpath "$5")} cuda=${6:+$(realpath "$6")}
trainer='' kernels=''
case "$image" in
  operator) program=downpour-operator ;;
  server) program=downpour-server ;;
  trainer) program=downpour-worker trainer=yes ;;
  trainer-cuda) program=downpour-worker trainer=yes kernels=libdownpour_cuda.so ;;
  *) echo "collect: got '$image', expected operator, server, trainer or trainer-cuda" >&2; exit 2 ;;
esac
# Where the trainer's image has LibTorch and Apache Arrow.
libtorch_place=/opt/libtorch arrow_place=/opt/arrow
arrow_libraries=(libarrow.so.2600 libarrow_s3.so.2600 libparquet.so.2600)
root=$out/programs

[ -x "$binaries/$program" ] || { echo "collect: no program $binaries/$program; build it first" >&2; exit 1; }
if [ -n "$trainer" ] && [ ! -f "$libtorch/torch/lib/libtorch_cpu.so" ]; then
  echo "collect: no LibTorch in '$libtorch'; docker/setup.sh installs it into .deps/" >&2
  exit 1
fi
if [ -n "$trainer" ] && [ ! -f "$arrow/pyarrow/${arrow_libraries[0]}" ]; then
  echo "collect: no Arrow in '$arrow'; docker/setup.sh installs it into .deps/" >&2
  exit 1
fi
if [ -n "$kernels" ] && [ ! -f "$binaries/$kernels" ]; then
  echo "collect: no $binaries/$kernels; build downpour_cuda first" >&2
  exit 1
fi
if [ -n "$kernels" ] && [ ! -f "$cuda/torch/lib/libtorch_cuda.so" ]; then
  echo "collect: no CUDA part of LibTorch in '$cuda'; docker/libtorch-cuda.sh lays it out" >&2
  exit 1
fi
rm -rf "$out"
mkdir -p "$root"/usr/{bin,lib,lib64} "$root"/etc/ssl/certs "$root"/usr/lib/ssl "$root"/var/lib/dpkg/status.d
ln -s usr/bin "$root/bin"
ln -s usr/lib "$root/lib"
ln -s usr/lib64 "$root/lib64"

# Files of Debian that the image has: for their licences, and for scanners.
files=()

add_library() { # PATH as the loader names it
  local real name
  real=$(realpath "$1")
  name=$(realpath "$(dirname "$1")")/$(basename "$1")
  install -D -m 755 "$real" "$root$real"
  if [ "$name" != "$real" ]; then
    mkdir -p "$(dirname "$root$name")"
    ln -sf "$real" "$root$name"
  fi
  files+=("$real")
}

libraries_of() { # PROGRAM: Debian's, not LibTorch's, Arrow's or NVIDIA's
  local found
  found=$(ldd "$1")
  if grep -q 'not found' <<<"$found"; then
    echo "collect: $1 needs libraries that are not installed:" >&2
    grep 'not found' <<<"$found" >&2
    exit 1
  fi
  # They may have been linked by another name of their folders.
  awk '$2 == "=>" { print $3 } $1 ~ /^\// { print $1 }' <<<"$found" | xargs realpath --no-symlinks | sort -u |
    while read -r library; do
      case "$(realpath "$library")" in
        "${libtorch:-/nowhere}"/* | "${arrow:-/nowhere}"/* | "${cuda:-/nowhere}"/*) ;;
        *) printf '%s\n' "$library" ;;
      esac
    done
}

install -m 755 "$binaries/$program" "$root/usr/bin/$program"
needed=$(libraries_of "$binaries/$program" && libraries_of /bin/busybox)
if [ -n "$trainer" ]; then
  for library in "${arrow_libraries[@]}"; do needed+=$'\n'$(libraries_of "$arrow/pyarrow/$library"); done
fi
if [ -n "$kernels" ]; then
  # What of LibTorch's CPU part they need, they find through libtorch_cuda.so.
  while read -r library; do
    needed+=$'\n'$(LD_LIBRARY_PATH="$libtorch/torch/lib:$libtorch/nvidia/cu13/lib" libraries_of "$library")
  done < <(printf '%s\n' "$binaries/$kernels"; find "$cuda" -name '*.so*' -type f)
fi
while read -r library; do add_library "$library"; done < <(sort -u <<<"$needed")

install -m 755 /bin/busybox "$root/usr/bin/busybox"
files+=(/usr/bin/busybox)
for applet in $(busybox --list); do
  [ -e "$root/usr/bin/$applet" ] || ln -s busybox "$root/usr/bin/$applet"
done

# Debian's own authorities alone: the builder's bundle may have private ones.
cat /usr/share/ca-certificates/mozilla/*.crt >"$root/etc/ssl/certs/ca-certificates.crt"
ln -s /etc/ssl/certs/ca-certificates.crt "$root/usr/lib/ssl/cert.pem"
files+=(/usr/sbin/update-ca-certificates)
printf 'hosts: files dns\npasswd: files\ngroup: files\n' >"$root/etc/nsswitch.conf"
printf 'root:x:0:0:root:/:/usr/bin/sh\ndownpour:x:65532:65532:Downpour:/tmp:/usr/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\ndownpour:x:65532:\n' >"$root/etc/group"
install -m 644 /usr/lib/os-release "$root/etc/os-release"
# All that is ever written: mounts take their place where the root file system is read-only.
install -d -m 1777 "$root/tmp" "$root/output"

# dpkg knows a file by the name it had before /lib became /usr/lib.
owners=$(dpkg-query -S "${files[@]}" "${files[@]#/usr}" 2>/dev/null || true)
known=$(sed -e 's/^[^/]*: //' -e 's,^/usr,,' <<<"$owners")
for file in "${files[@]}"; do
  grep -qxF "${file#/usr}" <<<"$known" || { echo "collect: $file is of no Debian package" >&2; exit 1; }
done
sed -E 's/(:[a-z0-9]+)?: .*//' <<<"$owners" | sort -u | while read -r package; do
  dpkg-query -s "$package" >"$root/var/lib/dpkg/status.d/$package"
  install -D -m 644 "/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/copyright"
done

if [ -n "$trainer" ]; then
  # The build's own paths to them mean nothing in the image.
  path=$libtorch_place/torch/lib:$arrow_place/pyarrow
  # NCCL and the CUDA runtime are loaded by their names alone.
  [ -z "$kernels" ] || path+=:$libtorch_place/nvidia/cu13/lib:$libtorch_place/nvidia/nccl/lib
  patchelf --set-rpath "$path" "$root/usr/bin/$program"
  # The wheels' layout is kept: LibTorch's libraries find each other by it.
  layer=$out/libtorch$libtorch_place
  mkdir -p "$layer/torch/lib"
  for library in libtorch_cpu.so libc10.so libgomp.so.1; do
    install -m 755 "$libtorch/torch/lib/$library" "$layer/torch/lib/$library"
  done
  for library in libcudart.so.13 libcupti.so.13; do
    install -D -m 755 "$libtorch/nvidia/cu13/lib/$library" "$layer/nvidia/cu13/lib/$library"
  done
  cp -r "$libtorch"/torch-*.dist-info "$layer/"
  layer=$out/arrow$arrow_place
  for library in "${arrow_libraries[@]}"; do
    install -D -m 755 "$arrow/pyarrow/$library" "$layer/pyarrow/$library"
  done
  cp -r "$arrow"/pyarrow-*.dist-info "$layer/"
  mkdir -p "$out/dataset/usr/share/datasets"
  cp -rL /usr/share/datasets/fashion-mnist "$out/dataset/usr/share/datasets/"
fi

if [ -n "$kernels" ]; then
  install -m 755 "$binaries/$kernels" "$root/usr/lib/$kernels"
  patchelf --set-rpath "$libtorch_place/nvidia/cu13/lib" "$root/usr/lib/$kernels"
  mkdir -p "$out/cuda$(dirname "$libtorch_place")"
  cp -rl "$cuda" "$out/cuda$libtorch_place" # 3 GB, which nobody writes to
fi
