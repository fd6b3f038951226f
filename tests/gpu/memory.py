"""That memory does not grow, and what becomes of a job that does not fit."""

import re
import time
from pathlib import Path

from runs import PACKED, Failure, Run, processes_of, progress_of
from session import Session, manifest

STEPS = 10000
BEGIN = 0.1  # from this share of the steps on nothing may grow
MOST_GROWTH = 2  # MiB: a block of the allocator, which the first steps may not have needed


class Watch:
    """When the job was where, and what its processes had of the machine's memory."""

    def __init__(self) -> None:
        self.begin: float | None = None  # of the monotonic clock
        self.begin_host: dict[str, int] = {}
        self.end: float | None = None
        self.end_host: dict[str, int] = {}

    def step(self, folder: Path) -> None:
        progress = progress_of(folder)
        if not progress or not BEGIN <= progress[-1]["updates"] / progress[-1]["updatesExpected"] < 1:
            return
        host = {process["name"]: resident(process["pid"]) for process in processes_of(folder)
                if process.get("finishTime") is None and process["role"] in ("ps", "worker")}
        if self.begin is None:
            self.begin, self.begin_host = time.monotonic(), host
        self.end, self.end_host = time.monotonic(), host


def resident(pid: int) -> int:
    """MiB; 0: it is no more."""
    try:
        found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(found.group(1)) // 1024 if found else 0


def device_growth(run: Run, begin: float, end: float) -> tuple[int, int] | None:
    """MiB of the GPU between these moments: first, and most after. None: nobody can say."""
    used = [sample.memory for sample in run.samples if begin <= sample.seconds <= end]
    return (used[0], max(used)) if used else None


def grow(session: Session) -> str:
    steps = session.size(STEPS, 200)
    watch = Watch()
    run = session.downpour.run(manifest("memory.yaml"), {
        **session.on_device(), "training.steps": steps, "dataset.path": str(PACKED / session.size("images", "few-images"))},
        step=watch.step)
    if watch.begin is None or watch.end is None or watch.end <= watch.begin:
        raise Failure("the run was too short to see anything")
    device = device_growth(run, watch.begin, watch.end)
    host = {name: [before, watch.end_host.get(name)] for name, before in watch.begin_host.items()}
    session.results.add("memory", {"device": session.device, "steps": steps, "from": round(BEGIN * steps),
                                   "deviceMiB": device, "hostMiB": host})
    if not session.on_gpu:
        return f"host memory in MiB from step {round(BEGIN * steps):,} to the end: {host}"
    if device is None:
        raise Failure("nvidia-smi does not say how much memory is in use")
    said = f"{device[0]:,} MiB of the GPU at step {round(BEGIN * steps):,}, {device[1]:,} at most to step {steps:,}; host {host}"
    if device[1] - device[0] > MOST_GROWTH:
        raise Failure(f"expected {MOST_GROWTH} MiB more at most, got {said}")
    return said


def told(log: str) -> str:
    """The one line in which a worker says that it lacks memory, and of what size."""
    lines = [line for line in log.splitlines() if re.search(r"memory\b.*\b\d+(\.\d+)? (GiB|MiB|bytes)\b", line)]
    if len(lines) != 1:
        raise Failure(f"{len(lines)} lines of the worker say what memory is lacking, expected 1; its log:\n{log[-2000:]}")
    return lines[0]


def lack(session: Session) -> str:
    run = session.downpour.run_to_any_end(manifest("too-large.yaml"), session.on_device())
    line = told(run.log("worker-0"))
    if run.exit_code != 1 or run.summary.get("phase") != "Failed":
        raise Failure(f"exit code {run.exit_code}, phase {run.summary.get('phase')}; expected 1 and Failed")
    for process in processes_of(run.folder):
        orderly = process["exitCode"] == 0 and process["signal"] == 0 and process["stopRequested"]
        if process["role"] != "worker" and not orderly:
            raise Failure(f"{process['name']} ended with {process['endCause']}, expected that it ends when it is asked to")
    session.results.add("outOfMemory", {"device": session.device, "line": line, "totalSeconds": run.summary["totalSeconds"]})
    return line


def memory(session: Session) -> None:
    session.steps.do(f"memory: {session.size(STEPS, 200):,} steps on {session.device}", lambda: grow(session))
    session.steps.do("memory: a batch that does not fit", lambda: lack(session))
