"""Runs jobs with the packed programs and this machine's PyTorch, and watches the GPU meanwhile."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PACKED = Path(__file__).resolve().parent
RUN_LIMIT_SECONDS = 75
END_SECONDS = 10  # that a run may take to end when it is asked to
WARM_UP_SECONDS = 2
TAIL_LINES = 20


class Failure(Exception):
    """Why there is no result."""


@dataclasses.dataclass(frozen=True)
class Sample:
    seconds: float       # of the monotonic clock
    memory: int          # MiB
    utilisation: int     # percent of the time in which a kernel ran, as nvidia-smi has it


@dataclasses.dataclass(frozen=True)
class Run:
    """What a `downpour run` left."""

    folder: Path
    exit_code: int
    summary: dict[str, Any]
    progress: list[dict[str, Any]]
    memory_before: int | None  # MiB of the GPU; None: nobody can say
    samples: list[Sample]

    @property
    def model(self) -> Path:
        return self.folder / "model.safetensors"

    @property
    def gpu_memory(self) -> int | None:
        """How many MiB more than before were used at most. By all of the machine: in a container nvidia-smi does not know
        its processes. None: nobody can say."""
        if self.memory_before is None or not self.samples:
            return None
        return max(sample.memory for sample in self.samples) - self.memory_before

    def log(self, process: str) -> str:
        return (self.folder / f"logs/{process}.log").read_text(errors="replace")


class Downpour:
    """Runs jobs, one at a time, each in a folder of its own in `scratch`. `programs`: what was unpacked. `seconds_left`: for
    all of them."""

    def __init__(self, programs: Path, torch_lib: Path, scratch: Path, seconds_left: Callable[[], float]):
        self.programs = programs
        self.torch_lib = torch_lib
        self.scratch = scratch
        self.seconds_left = seconds_left
        self.runs = 0
        self.environment = dict(os.environ)
        # The CUDA runtime and NCCL are those of PyTorch. What was there before may say where the driver is.
        nvidia = torch_lib.parents[1] / "nvidia"
        search = [str(programs / "lib"), str(torch_lib), str(nvidia / "cu13/lib"), str(nvidia / "nccl/lib"),
                  os.environ.get("LD_LIBRARY_PATH", "")]
        self.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, search))
        self.environment["DOWNPOUR_CUDA_PLUGIN"] = str(programs / "kernels/libdownpour_cuda.so")
        self.environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # in which nvidia-smi counts
        for name in ("DOWNPOUR_BINARY_DIR", "DOWNPOUR_LIBTORCH_CUDA", "NVIDIA_TF32_OVERRIDE",
                     "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"):
            self.environment.pop(name, None)

    def check_programs(self) -> str:
        for program in sorted((self.programs / "bin").iterdir()):
            ldd = subprocess.run(["ldd", program], env=self.environment, stdout=subprocess.PIPE, text=True, check=True)
            missing = [line.strip() for line in ldd.stdout.splitlines() if "not found" in line]
            if missing:
                raise Failure(f"{program.name} needs what this machine does not have: {'; '.join(missing)}")
            subprocess.run([program, "--help"], env=self.environment, stdout=subprocess.DEVNULL, check=True, timeout=60)
        return "they start"

    def run(self, manifest: Path, fields: dict[str, Any], *, measured_seconds: float | None = None,
            step: Callable[[Path], None] | None = None, environment: dict[str, str] | None = None) -> Run:
        """Until the job ends, or has been training for `measured_seconds`. `step` is called with the run's folder again and
        again meanwhile. Failure: it did not do so in time, or its ledger is not exact."""
        run = self.run_to_any_end(manifest, fields, measured_seconds=measured_seconds, step=step,
                                  environment=environment)
        measured = measured_seconds is not None and run.summary.get("phase") == "Stopped" and bool(run.progress)
        if not measured and (run.exit_code != 0 or run.summary.get("audit") != "Exact"):
            raise Failure(f"exit code {run.exit_code}: {last_line(errors_of(run.folder))}\n"
                          f"{last_lines(errors_of(run.folder), run.folder)}")
        return run

    def run_to_any_end(self, manifest: Path, fields: dict[str, Any], *,
                       measured_seconds: float | None = None, step: Callable[[Path], None] | None = None,
                       environment: dict[str, str] | None = None) -> Run:
        """Likewise, whatever becomes of it. Failure: it did not end in time."""
        self.runs += 1
        folder = self.scratch / f"run-{self.runs}"
        limit = min(RUN_LIMIT_SECONDS, self.seconds_left() - END_SECONDS)
        command = [str(self.programs / "bin/downpour"), "run", str(manifest), "--run-dir", str(folder), "--output", "json"]
        # The deadline ends the job also where this process was killed.
        for field, value in {"activeDeadlineSeconds": max(1, round(limit)), **fields}.items():
            command += ["--set", f"{field}={value}"]
        environment = {**self.environment, **(environment or {})}
        deadline = time.monotonic() + limit
        stop_at, late = None, False
        output, errors = self.scratch / f"{folder.name}.json", errors_of(folder)
        with output.open("w") as out, errors.open("w") as err, \
                gpu_samples(fields.get("training.device") == "CUDA") as (before, samples):
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
            try:
                while process.poll() is None and not late:
                    if measured_seconds is not None and stop_at is None and progress_of(folder):
                        stop_at = time.monotonic() + measured_seconds
                    if stop_at is not None and time.monotonic() >= stop_at:
                        break
                    if step is not None:
                        step(folder)
                    time.sleep(0.1)
                    late = time.monotonic() >= deadline
            finally:
                end(process)
        if late:
            raise Failure(f"did not end within {limit:.0f} s\n  {' '.join(command)}\n{last_lines(errors, folder)}")
        return Run(folder, process.returncode, json.loads(output.read_text() or "{}"), progress_of(folder), before, samples)


def errors_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.txt")


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()  # the kernel ends what it started
        process.wait()


def last_line(path: Path) -> str:
    return path.read_text(errors="replace").rstrip().rpartition("\n")[2]


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


def evaluations_of(folder: Path) -> list[dict[str, Any]]:
    points = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [point for point in points if point["type"] == "evaluation"]


def processes_of(folder: Path) -> list[dict[str, Any]]:
    """As the run's status has them; empty: nothing yet."""
    with contextlib.suppress(FileNotFoundError):
        processes: list[dict[str, Any]] = json.loads((folder / "status.json").read_text()).get("processes", [])
        return processes
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


def gpu_memory() -> int | None:
    """MiB in use; None: nobody can say."""
    used = gpu_query("memory.used")
    return int(used[0]) if used is not None and used[0].isdigit() else None


@contextlib.contextmanager
def gpu_samples(on_gpu: bool) -> Iterator[tuple[int | None, list[Sample]]]:
    """The memory that was in use before, and a list that is whole at the end."""
    before = gpu_memory() if on_gpu else None
    samples: list[Sample] = []
    if before is None:
        yield None, samples
        return

    def read() -> None:
        for line in process.stdout or ():
            values = [value.strip() for value in line.split(",")]
            if len(values) == 2 and values[0].isdigit():
                samples.append(Sample(time.monotonic(), int(values[0]), int(values[1]) if values[1].isdigit() else 0))

    with subprocess.Popen([*gpu_command("memory.used", "utilization.gpu"), "--loop-ms=200"], stdout=subprocess.PIPE,
                          text=True) as process:
        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield before, samples
        finally:
            process.terminate()
            reader.join()
