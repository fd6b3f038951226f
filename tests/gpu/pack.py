"""Collects what a bare machine with a GPU needs to run Downpour beside its own PyTorch, into one folder.

Usage: run pack [--bin BINARIES] [--output FOLDER]
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import idx

ROOT = Path(__file__).resolve().parents[2]
DATASET = Path("/usr/share/datasets/fashion-mnist")
# By folder and part.
IMAGES = {"images": {"train": 60000, "t10k": 10000}, "few-images": {"train": 100, "t10k": 100}}
PROGRAMS = ["downpour", "downpour-server", "downpour-worker"]
# The kernels, what tests and measures them, and the same kernels for a CPU; below the folder of the build.
KERNELS = ["bin/libdownpour_cuda.so", "bin/kernels_bench", "tests/cuda_kernels_test", "tests/cuda/emulated.so"]
# Likewise, what only some parts need.
TESTS = ["tests/gpu/counting_network.so", "tests/gpu/device_times.so", "tests/nccl_device_test"]
SCRIPTS = ["run", "busy.py", "counter.py", "equality.py", "kernels.py", "lenet.py", "machine.py", "measure.py", "memory.py",
           "nccl.py", "peer.py", "peers.py", "rates.py", "report.py", "runs.py", "session.py", "steps.py", "tensors.py"]
LIMIT_BYTES = 64 << 20
# Of glibc, which is always that of the machine.
GLIBC = re.compile(r"(linux-vdso|ld-linux-x86-64|lib(c|m|mvec|dl|pthread|rt|resolv|util|anl|nsl))\.so(\.\d+)?")


def loaded_libraries(program: Path, environment: dict[str, str] | None = None) -> dict[str, Path]:
    """Those that the loader takes from files, by the names under which it looks for them."""
    found = {}
    output = subprocess.run(["ldd", program], env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    for line in output.splitlines():
        name, arrow, where = line.strip().partition(" => ")
        if where.startswith("not found"):
            sys.exit(f"pack: {program} needs {name}, which is not found")
        if arrow and not GLIBC.fullmatch(name):
            found[name] = Path(where.split(" (")[0])
    return found


def libtorch_of(worker: Path) -> Path:
    """The folder that torch/lib is in."""
    cpu = loaded_libraries(worker).get("libtorch_cpu.so")
    if cpu is None:
        sys.exit(f"pack: {worker} is not linked with libtorch_cpu.so")
    return cpu.resolve().parents[2]


def refuse_arrow(program: Path) -> None:
    arrow = [name for name in loaded_libraries(program) if name.startswith(("libarrow", "libparquet"))]
    if arrow:
        sys.exit(f"pack: {program} was built with Apache Arrow ({', '.join(arrow)}), which alone is larger than all that may be "
                 "packed; configure with -DDOWNPOUR_ARROW=OFF, as 'make gpu-pack' does")


def libtorch_version(libtorch: Path) -> str:
    names = [path.name for path in libtorch.glob("torch-*.dist-info")]
    if len(names) != 1:
        sys.exit(f"pack: got {names} in {libtorch}, expected one torch-VERSION.dist-info")
    return names[0].removeprefix("torch-").removesuffix(".dist-info")


def pack_programs(programs: list[Path], libtorch: Path, output: Path, folder: str) -> None:
    """Into a folder of `output`; the libraries that they need into another."""
    (output / folder).mkdir()
    (output / "lib").mkdir(exist_ok=True)
    for program in programs:
        # Of a library, what the loader looks for stays.
        subprocess.run(["strip", "-o", output / folder / program.name, program], check=True)
        for name, path in loaded_libraries(program).items():
            if not path.resolve().is_relative_to(libtorch):
                shutil.copy(path.resolve(), output / "lib" / name)
    # The build's own path to LibTorch is in the worker, and would hide what is missing.
    search = {**os.environ,
              "LD_LIBRARY_PATH": f"{output / 'lib'}:{libtorch / 'torch/lib'}:{libtorch / 'nvidia/cu13/lib'}"}
    for program in programs:
        for name, path in loaded_libraries(output / folder / program.name, search).items():
            if not (path.resolve().is_relative_to(output) or path.resolve().is_relative_to(libtorch)):
                sys.exit(f"pack: {program.name} takes {name} from {path}, which is neither packed nor of LibTorch")


def pack_images(parts: dict[str, int], output: Path) -> None:
    output.mkdir()
    for part, count in parts.items():
        for kind in ("images-idx3", "labels-idx1"):
            name = f"{part}-{kind}-ubyte"
            try:
                idx.write_gzip(output / f"{name}.gz", idx.first_samples(idx.read(DATASET / name), count))
            except (OSError, ValueError) as error:
                sys.exit(f"pack: {DATASET / name}: {error}")


def pack_archive(folder: Path, archive: Path) -> None:
    """What is in it is a third of the size."""
    with tarfile.open(archive, "w:xz") as file:
        for path in sorted(folder.iterdir()):
            file.add(path, path.name)


def check_size(output: Path) -> int:
    sizes = {path.relative_to(output): path.stat().st_size for path in output.rglob("*") if path.is_file()}
    total = sum(sizes.values())
    if total > LIMIT_BYTES:
        for path, size in sorted(sizes.items(), key=lambda item: -item[1])[:20]:
            print(f"{size:12,} {path}", file=sys.stderr)
        sys.exit(f"pack: {output} has {total:,} bytes, expected {LIMIT_BYTES:,} at most; above are the largest files")
    return total


def main() -> None:
    parser = argparse.ArgumentParser(prog="run pack")
    parser.add_argument("--bin", type=Path, default=ROOT / "build/gpu-release/bin")
    parser.add_argument("--output", type=Path, default=ROOT / "build/gpu")
    options = parser.parse_args()
    binaries, output = options.bin.resolve(), options.output.resolve()
    for program in PROGRAMS:
        if not os.access(binaries / program, os.X_OK):
            sys.exit(f"pack: no program {binaries / program}; 'make gpu-pack' builds what is needed")
        refuse_arrow(binaries / program)
    if output.exists() and any(output.iterdir()) and not (output / "pack.json").exists():
        sys.exit(f"pack: {output} holds what was not packed; name another --output, or remove it")
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)

    libtorch = libtorch_of(binaries / "downpour-worker")
    # First, so that a folder that was packed in part is known as ours.
    (output / "pack.json").write_text(json.dumps({
        "libtorch": libtorch_version(libtorch),
        "glibc": (os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc "),
        "commit": subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, stdout=subprocess.PIPE,
                                 text=True, check=False).stdout.strip(),
    }, indent=2) + "\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pack_programs([binaries / program for program in PROGRAMS], libtorch, folder, "bin")
        for part, files in {"kernels": KERNELS, "tests": TESTS}.items():
            paths = [binaries.parent / file for file in files]
            for path in paths:
                if not path.exists():
                    print(f"pack: without {path}, which is not built", file=sys.stderr)
            pack_programs([path for path in paths if path.exists()], libtorch, folder, part)
        pack_archive(folder, output / "programs.tar.xz")
    for folder, parts in IMAGES.items():
        pack_images(parts, output / folder)
    shutil.copytree(ROOT / "tests/gpu/manifests", output / "manifests")
    for script in SCRIPTS:
        shutil.copy(ROOT / "tests/gpu" / script, output / script)
    print(f"packed {check_size(output) / (1 << 20):.1f} MiB into {output}")


if __name__ == "__main__":
    main()
