"""Trains on a GPU what was packed, compares the models with those of the CPU, and measures. README.md says how.

Usage: run [--results FOLDER] [--parts PART,...] [--devices REFERENCE,DEVICE] [--models NAME,...] [--torch-lib FOLDER]
           [--limit SECONDS]
"""

import argparse
import dataclasses
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernels
import tensors
from report import Results
from runs import END_SECONDS, PACKED, WARM_UP_SECONDS, Downpour, Failure, Run, gpu_query, steady_rate

PARTS = ["jobs", "kernels", "check"]
MODELS = ["lenet", "cifar-cnn", "bilstm"]
UPDATES = 50
# Rounding alone may decide whether a ReLU lets a value through, and from there on two models part. What is wrong with a
# device is wrong with every seed; so the first that holds is enough.
SEEDS = [1, 2, 3]
# The smallest that a manifest takes: a model that was "trained" with it is the one that training starts from.
NO_LEARNING_RATE = 1.1754943508222875e-38
MEASURED_SECONDS = 8
SPARE_CORES = 2  # for ps and coordinator: threads that wait for one that has no core are slow
DEMO = {"worker.replicas": 2, "training.epochs": 5, "training.evaluate": "true"}
PROBE = """
import json, os, torch
print(json.dumps({
    "torch": torch.__version__, "torchLib": os.path.join(os.path.dirname(torch.__file__), "lib"),
    "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
    "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None}))
"""


class Stopped(BaseException):
    """Somebody wants all of it to end."""


class Steps:
    """Does one thing after another, says how long each took, and begins nothing when the time is over."""

    def __init__(self, results: Results, limit_seconds: float):
        self.results = results
        self.begin = time.monotonic()
        self.limit_seconds = limit_seconds

    def elapsed(self) -> float:
        return time.monotonic() - self.begin

    def left(self) -> float:
        return self.limit_seconds - self.elapsed()

    def do(self, name: str, body: Callable[[], str]) -> bool:
        """Whether it was done. `body` returns what to say of it."""
        begin, failure, said = self.elapsed(), None, ""
        try:
            if self.left() <= 2 * END_SECONDS:
                raise Failure("not begun: the time is over")
            said = body()
        except Failure as error:
            failure = str(error)
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            failure = f"{type(error).__name__}: {error}"
        except Stopped:
            failure = "stopped"
            raise
        finally:
            seconds = self.elapsed() - begin
            self.results.steps.append({"name": name, "seconds": round(seconds, 1), "failure": failure})
            outcome = said if failure is None else f"FAILED: {failure}"
            print(f"[{self.elapsed():6.1f} s] {name} ({seconds:.1f} s): {outcome}", flush=True)
            self.results.write()
        return failure is None


def version(text: str) -> list[int]:
    """"2.11.0+cu130" is [2, 11, 0]."""
    return [int(number) for number in re.findall(r"\d+", text.partition("+")[0])]


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


def compare(downpour: Downpour, results: Results, manifest: Path, devices: list[str]) -> str:
    attempts = []
    for seed in SEEDS:
        compared = train_and_compare(downpour, results.machine["threads"], manifest, devices, seed)
        worst = max(compared, key=lambda tensor: (not tensor.holds, tensor.relative))
        results.comparisons.append({
            "model": manifest.stem, "devices": devices, "seed": seed, "updates": UPDATES, "holds": worst.holds,
            "limit": tensors.DIFFERENCE_LIMIT, "limitOfChange": tensors.CHANGE_LIMIT,
            "tensors": [dataclasses.asdict(tensor) | {"relative": tensor.relative, "holds": tensor.holds}
                        for tensor in compared]})
        attempts.append(f"seed {seed}: {worst.name} of {len(compared)} tensors differs most, by {worst.difference:.1e}"
                        f"; its largest value is {worst.largest:.1e}, training changed it by {worst.change:.1e}")
        if worst.holds:
            return "\n  ".join(attempts)
    expected = f"{tensors.DIFFERENCE_LIMIT:.0e} of the value and {tensors.CHANGE_LIMIT:.0e} of the change at most"
    raise Failure("\n  ".join([f"expected {expected}", *attempts]))


def train_and_compare(downpour: Downpour, threads: int, manifest: Path, devices: list[str],
                      seed: int) -> list[tensors.Comparison]:
    def train(device: str, **fields: Any) -> dict[str, tensors.Tensor]:
        fields |= {"training.device": device, "training.threads": threads, "training.seed": seed}
        run = downpour.run(manifest, fields, tf32=False)
        if run.summary["ledger"]["expected"] != UPDATES or run.summary["ledger"]["skipped"] != 0:
            raise Failure(f"got {run.summary['ledger']}, expected {UPDATES} updates and none skipped")
        return tensors.read(run.model)

    start = train(devices[0], **{"update.optimizer.learningRate": NO_LEARNING_RATE})
    return tensors.compare(start, train(devices[0]), train(devices[1]))


def resume(downpour: Downpour, results: Results, manifest: Path, devices: list[str]) -> str:
    """Two epochs in one life on the reference, and in two lives of which the second is on the other device."""
    checkpoints = {"checkpoint.uri": str(downpour.scratch / "checkpoints")}

    def train(device: str, epochs: int, more: dict[str, Any]) -> Run:
        fields = {"training.device": device, "training.epochs": epochs, "training.threads": results.machine["threads"]}
        return downpour.run(manifest, fields | more, tf32=False)

    start = train(devices[0], 1, {"update.optimizer.learningRate": NO_LEARNING_RATE})
    whole = train(devices[0], 2, {})
    train(devices[0], 1, checkpoints)
    second = train(devices[1], 2, checkpoints)
    if not second.summary["resumedFrom"]:
        raise Failure("the second life did not begin with the checkpoint of the first")
    compared = tensors.compare(*(tensors.read(run.model) for run in (start, whole, second)))
    worst = max(compared, key=lambda tensor: (not tensor.holds, tensor.relative))
    results.resumed = {"model": manifest.stem, "devices": devices, "tensor": worst.name, "relative": worst.relative,
                       "holds": worst.holds}
    said = f"{worst.name} of {len(compared)} tensors differs most from one life, by {worst.difference:.1e}"
    if not worst.holds:
        raise Failure(said)
    return said


def demo(downpour: Downpour, results: Results, device: str) -> str:
    run = downpour.run(PACKED / "manifests/measure/lenet.yaml", {"training.device": device, **DEMO})
    kept = ("testAccuracy", "samplesPerSecond", "totalSeconds", "restarts", "ledger", "audit")
    results.demo = {"device": device, "workers": DEMO["worker.replicas"], "epochs": DEMO["training.epochs"],
                    "gpuMemoryMiB": run.gpu_memory, **{key: run.summary[key] for key in kept}}
    updates = run.summary["ledger"]["applied"]
    return f"test accuracy {run.summary['testAccuracy']}, {updates} updates, the ledger is exact"


def measure(downpour: Downpour, results: Results, manifest: Path, device: str) -> str:
    threads = results.machine["threads"] if device == "CPU" else 1
    run = downpour.run(manifest, {"training.device": device, "training.threads": threads, "training.epochs": 100000},
                       measured_seconds=WARM_UP_SECONDS + MEASURED_SECONDS)
    rate = steady_rate(run.progress)
    results.rates.append({"model": manifest.stem, "device": device, "threads": threads, "samplesPerSecond": rate,
                          "firstUpdateSeconds": run.summary["firstUpdateSeconds"], "gpuMemoryMiB": run.gpu_memory})
    return f"{rate:,.0f} samples/s"


def measure_kernels(results: Results, variables: dict[str, str], seconds_left: float, on_gpu: bool) -> str:
    results.kernels = kernels.bench(variables, seconds_left, on_gpu)
    slowest = min(results.kernels, key=lambda row: float(row["ofCopy"]))
    return f"{slowest['kernel']} is slowest, at {slowest['ofCopy']:.0%} of the copy"


def do_kernels(steps: Steps, results: Results, parts: list[str], on_gpu: bool) -> None:
    variables = kernels.environment(Path(results.machine["torchLib"]), on_gpu)
    if "kernels" in parts:
        steps.do("kernels: test", lambda: kernels.test(variables, steps.left()))
        steps.do("kernels: GB/s", lambda: measure_kernels(results, variables, steps.left(), on_gpu))
    if "check" in parts:
        for tool in kernels.TOOLS:
            steps.do(f"kernels: {tool}", lambda: kernels.check(tool, variables, steps.left()))


def do_all(steps: Steps, results: Results, parts: list[str], models: list[str], devices: list[str],
           torch_lib: Path | None, scratch: Path) -> None:
    if not steps.do("machine", lambda: look_around(results.machine, torch_lib, "CUDA" in devices)):
        return
    do_kernels(steps, results, parts, "CUDA" in devices)
    if "jobs" in parts and not do_jobs(steps, results, models, devices, scratch):
        return
    results.complete = True


def do_jobs(steps: Steps, results: Results, models: list[str], devices: list[str], scratch: Path) -> bool:
    """False: there was no beginning."""
    downpour = Downpour(Path(results.machine["torchLib"]), scratch, steps.left)
    if not steps.do("programs", downpour.check_programs):
        return False
    for name in models:
        manifest = PACKED / f"manifests/compare/{name}.yaml"
        steps.do(f"{name}: {devices[0]} and {devices[1]}", lambda: compare(downpour, results, manifest, devices))
    if "CUDA" not in devices or (gpu_query("count") or ["1"])[0] not in ("0", "1"):
        manifest = PACKED / "manifests/compare/lenet-two-gpus.yaml"
        steps.do(f"two devices: {devices[0]} and {devices[1]}", lambda: compare(downpour, results, manifest, devices))
    steps.do(f"{models[0]}: begun on {devices[0]}, resumed on {devices[1]}",
             lambda: resume(downpour, results, PACKED / f"manifests/compare/{models[0]}.yaml", devices))
    steps.do(f"demo on {devices[1]}", lambda: demo(downpour, results, devices[1]))
    for name in models:
        manifest = PACKED / f"manifests/measure/{name}.yaml"
        for device in dict.fromkeys(devices):
            steps.do(f"{name}: samples/s on {device}", lambda: measure(downpour, results, manifest, device))
    return True


def main() -> None:
    parser = argparse.ArgumentParser(prog="run")
    parser.add_argument("--results", type=Path, default=Path("build/gpu-results"), metavar="FOLDER",
                        help="for results.json and results.md")
    parser.add_argument("--parts", default="jobs,kernels", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--devices", default="CPU,CUDA",
                        help="the reference, and what is compared with it; CPU,CPU tries this out")
    parser.add_argument("--models", default=",".join(MODELS), help="some of %(default)s")
    parser.add_argument("--torch-lib", type=Path, metavar="FOLDER", help="PyTorch's; otherwise that of this python3")
    parser.add_argument("--limit", type=float, default=400, metavar="SECONDS", help="for all of it")
    options = parser.parse_args()
    devices, models, parts = options.devices.split(","), options.models.split(","), options.parts.split(",")
    if len(devices) != 2 or not set(devices) <= {"CPU", "CUDA"}:
        parser.error(f"--devices: got {options.devices}, expected two of CPU and CUDA")
    if not set(models) <= set(MODELS):
        parser.error(f"--models: got {options.models}, expected some of {','.join(MODELS)}")
    if not set(parts) <= set(PARTS):
        parser.error(f"--parts: got {options.parts}, expected some of {','.join(PARTS)}")

    def stop(*_: object) -> None:
        raise Stopped

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    options.results.mkdir(parents=True, exist_ok=True)
    results = Results(options.results)
    scratch = Path(tempfile.mkdtemp(prefix="downpour-gpu-"))
    try:
        do_all(Steps(results, options.limit), results, parts, models, devices, options.torch_lib, scratch)
    except Stopped:
        print("gpu: stopped", file=sys.stderr)
    finally:
        results.write()
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"gpu: {'all holds' if results.holds else 'NOT all holds'}: {options.results / 'results.md'}", flush=True)
    sys.exit(0 if results.holds else 1)


if __name__ == "__main__":
    main()
