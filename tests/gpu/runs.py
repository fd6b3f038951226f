"""Runs jobs with the packed programs and this machine's PyTorch, and watches the GPU meanwhile."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PACKED = Path(__file__).resolve().parent
RUN_LIMIT_SECONDS = 75
END_SECONDS = 10  # that a run may take to end when it is asked to
WARM_UP_SECONDS = 2
TAIL_LINES = 10


class Failure(Exception):
    """Why there is no result."""


@dataclasses.dataclass(frozen=True)
class Run:
    """What a `downpour run` left."""

    summary: dict[str, Any]
    progress: list[dict[str, Any]]
    model: Path
    gpu_memory: int | None  # MiB


class Downpour:
    """Runs jobs, one at a time, each in a folder of its own in `scratch`. `seconds_left`: for all of them."""

    def __init__(self, torch_lib: Path, scratch: Path, seconds_left: Callable[[], float]):
        self.scratch = scratch
        self.seconds_left = seconds_left
        self.runs = 0
        self.environment = dict(os.environ)
        # What was there before may say where the driver is.
        search = [str(PACKED / "lib"), str(torch_lib), os.environ.get("LD_LIBRARY_PATH", "")]
        self.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, search))
        self.environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # in which nvidia-smi counts
        for name in ("DOWNPOUR_BINARY_DIR", "DOWNPOUR_LIBTORCH_CUDA", "NVIDIA_TF32_OVERRIDE",
                     "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"):
            self.environment.pop(name, None)

    def check_programs(self) -> str:
        for program in sorted((PACKED / "bin").iterdir()):
            ldd = subprocess.run(["ldd", program], env=self.environment, stdout=subprocess.PIPE, text=True, check=True)
            missing = [line.strip() for line in ldd.stdout.splitlines() if "not found" in line]
            if missing:
                raise Failure(f"{program.name} needs what this machine does not have: {'; '.join(missing)}")
            subprocess.run([program, "--help"], env=self.environment, stdout=subprocess.DEVNULL, check=True, timeout=60)
        return "they start"

    def run(self, manifest: Path, fields: dict[str, Any], tf32: bool = True,
            measured_seconds: float | None = None) -> Run:
        """Until the job ends, or has been training for `measured_seconds`. Failure: it did not do so in time, or its
        ledger is not exact."""
        self.runs += 1
        folder = self.scratch / f"run-{self.runs}"
        output, errors = self.scratch / f"run-{self.runs}.json", self.scratch / f"run-{self.runs}.txt"
        limit = min(RUN_LIMIT_SECONDS, self.seconds_left() - END_SECONDS)
        command = [str(PACKED / "bin/downpour"), "run", str(manifest), "--run-dir", str(folder), "--output", "json"]
        # The deadline ends the job also where this process was killed.
        for field, value in {"activeDeadlineSeconds": max(1, round(limit)), **fields}.items():
            command += ["--set", f"{field}={value}"]
        environment = dict(self.environment)
        if not tf32:
            environment["NVIDIA_TF32_OVERRIDE"] = "0"  # cuBLAS and cuDNN obey; LibTorch lets cuDNN use TF32
        deadline = time.monotonic() + limit
        stop_at = None
        on_gpu = fields.get("training.device") == "CUDA"
        with output.open("w") as out, errors.open("w") as err, gpu_memory(on_gpu) as memory:
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
            try:
                while process.poll() is None and time.monotonic() < deadline:
                    if measured_seconds is not None and stop_at is None and progress_of(folder):
                        stop_at = time.monotonic() + measured_seconds
                    if stop_at is not None and time.monotonic() >= stop_at:
                        break
                    time.sleep(0.1)
            finally:
                end(process)
        summary = json.loads(output.read_text() or "{}")
        measured = stop_at is not None and summary.get("phase") == "Stopped"
        if not measured and (process.returncode != 0 or summary.get("audit") != "Exact"):
            late = ", did not end in time" if time.monotonic() >= deadline else ""
            said = errors.read_text(errors="replace").rstrip().rpartition("\n")[2]
            raise Failure(f"exit code {process.returncode}{late}: {said}\n"
                          f"  {' '.join(command)}\n{last_lines(errors, folder)}")
        return Run(summary, progress_of(folder), folder / "model.safetensors", memory())


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()  # the kernel ends what it started
        process.wait()


def last_lines(errors: Path, folder: Path) -> str:
    lines = []
    for path in [errors, *sorted((folder / "logs").glob("*.log"))]:
        tail = path.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        lines += [f"  {path.stem}: {line}" for line in tail]
    return "\n".join(lines)


def progress_of(folder: Path) -> list[dict[str, Any]]:
    with contextlib.suppress(FileNotFoundError):
        lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
        points = [json.loads(line) for line in lines if line.endswith("\n")]
        return [point for point in points if point["type"] == "progress"]
    return []


def steady_rate(progress: list[dict[str, Any]]) -> float:
    """Samples/s, without what the first updates wait for."""
    steady = [point for point in progress if point["seconds"] >= progress[0]["seconds"] + WARM_UP_SECONDS]
    if len(steady) < 3:
        raise Failure("the run was too short to measure")
    return float((steady[-1]["samples"] - steady[0]["samples"]) / (steady[-1]["seconds"] - steady[0]["seconds"]))


def gpu_command(*fields: str) -> list[str]:
    # The one that a program takes.
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
    return ["nvidia-smi", "-i", chosen, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]


def gpu_query(*fields: str) -> list[str] | None:
    """None: nobody can say."""
    try:
        output = subprocess.run(gpu_command(*fields), stdout=subprocess.PIPE, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    values = [value.strip() for value in output.partition("\n")[0].split(",")]
    return values if len(values) == len(fields) else None


@contextlib.contextmanager
def gpu_memory(on_gpu: bool) -> Iterator[Callable[[], int | None]]:
    """A function that says, at the end, how many MiB more than before were used at most. By all of the machine: in a
    container nvidia-smi does not know its processes. None: nobody can say."""
    before = gpu_query("memory.used") if on_gpu else None
    if before is None or not before[0].isdigit():
        yield lambda: None
        return
    with tempfile.TemporaryFile("w+") as samples:
        process = subprocess.Popen([*gpu_command("memory.used"), "--loop-ms=200"], stdout=samples)
        peak: list[int | None] = []
        try:
            yield lambda: peak[0]
        finally:
            process.terminate()
            process.wait()
            samples.seek(0)
            used = [int(line) for line in samples.read().split() if line.isdigit()]
            peak.append(max(used) - int(before[0]) if used else None)
