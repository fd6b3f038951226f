"""What this machine has, and whether the packed programs can be run on it."""

import json
import os
import platform
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from runs import PACKED, Failure, gpu_query

SPARE_CORES = 2  # for ps and coordinator: threads that wait for one that has no core are slow
PROBE = """
import json, os, torch
print(json.dumps({
    "torch": torch.__version__, "torchLib": os.path.join(os.path.dirname(torch.__file__), "lib"),
    "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
    "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None}))
"""


def version(text: str) -> list[int]:
    """"2.11.0+cu130" is [2, 11, 0]."""
    return [int(number) for number in re.findall(r"\d+", text.partition("+")[0])]


def unpack(folder: Path) -> str:
    """The programs and the libraries that they need."""
    with tarfile.open(PACKED / "programs.tar.xz") as archive:
        if hasattr(tarfile, "data_filter"):  # not in every Python 3.11
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)
    return f"{sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / (1 << 20):.0f} MiB"


def describe_pytorch(torch_lib: Path | None) -> dict[str, Any]:
    """That of `torch_lib`, or of this interpreter."""
    if torch_lib is not None:
        names = [path.name for path in torch_lib.resolve().parents[1].glob("torch-*.dist-info")]
        if len(names) != 1:
            raise Failure(f"{torch_lib}: got {names} beside torch/, expected one torch-VERSION.dist-info")
        found = names[0].removeprefix("torch-").removesuffix(".dist-info")
        return {"torch": found, "torchLib": str(torch_lib.resolve())}
    probe = subprocess.run([sys.executable, "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           check=False, timeout=120)
    if probe.returncode != 0:
        said = probe.stderr.strip().rpartition("\n")[2]
        raise Failure(f"{sys.executable} cannot import torch ({said}); --torch-lib names its lib folder")
    described: dict[str, Any] = json.loads(probe.stdout.splitlines()[-1])
    return described


def look_around(machine: dict[str, Any], torch_lib: Path | None, with_gpu: bool) -> str:
    """Fills `machine`."""
    packed = json.loads((PACKED / "pack.json").read_text())
    model_name = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    machine["cpu"] = model_name.group(1) if model_name else platform.machine()
    machine["cores"] = len(os.sched_getaffinity(0))
    machine["threads"] = max(1, machine["cores"] - SPARE_CORES)
    machine["commit"] = packed["commit"]
    machine["glibc"] = (os.confstr("CS_GNU_LIBC_VERSION") or "glibc 0").split()[1]
    if version(machine["glibc"]) < version(packed["glibc"]):
        raise Failure(f"this machine has glibc {machine['glibc']}; the programs were built with {packed['glibc']} and "
                      "need that or a newer one")
    machine |= describe_pytorch(torch_lib)
    if version(machine["torch"])[:2] != version(packed["libtorch"])[:2]:
        raise Failure(f"{machine['torchLib']} is PyTorch {machine['torch']}; the worker was linked with LibTorch "
                      f"{packed['libtorch']} and needs the same major and minor version")
    if with_gpu:
        if not (Path(machine["torchLib"]) / "libtorch_cuda.so").exists():
            raise Failure(f"{machine['torchLib']} has no libtorch_cuda.so: this PyTorch is for CPUs alone")
        machine |= zip(("gpu", "driver", "gpuMemoryMiB"), gpu_query("name", "driver_version", "memory.total") or ())
        if machine.get("gpu") is None:
            raise Failure("neither PyTorch nor nvidia-smi finds a GPU")
    return f"PyTorch {machine['torch']}, {machine.get('gpu') or 'no GPU looked for'}, {machine['cores']} cores"
