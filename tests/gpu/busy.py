"""The share of the time in which the GPU works, by what device_times.cc notes of a worker that trains."""

import array
import re
from pathlib import Path

from peers import PEERS, write_manifest
from runs import WARM_UP_SECONDS, Failure, Run
from session import Session

MEASURED_SECONDS = 4
END_SECONDS = 0.5  # of which the last records may be missing
# CUPTI's kinds of records.
KERNEL = 10
LOST = 0
RECORD_VALUES = 3

Entry = tuple[int, int, int]  # kind, begin, end; ns


def read(path: Path) -> list[Entry]:
    values = array.array("Q", path.read_bytes())
    if len(values) % RECORD_VALUES != 0:
        raise Failure(f"{path.name} has {len(values)} values, expected {RECORD_VALUES} of each record")
    entries = list(zip(values[0::3], values[1::3], values[2::3]))
    lost = sum(begin for kind, begin, _ in entries if kind == LOST)
    if lost > 0:
        raise Failure(f"{lost} records of what the GPU did were lost")
    return entries


def share(entries: list[Entry], begin: int, end: int) -> float:
    """Of the time from `begin` to `end`, that in which at least one of them was under way."""
    busy, until = 0, begin
    for _, first, last in sorted(entries, key=lambda entry: entry[1]):
        first, last = max(first, until), min(last, end)
        if last > first:
            busy += last - first
            until = last
    return busy / (end - begin)


def shares(entries: list[Entry], seconds: float) -> dict[str, float]:
    """Over the last `seconds` but for the very end."""
    if not entries:
        raise Failure("nothing is noted of what the GPU did")
    end = max(last for _, _, last in entries) - int(END_SECONDS * 1e9)
    begin = end - int(seconds * 1e9)
    if begin < min(first for _, first, _ in entries):
        raise Failure("the run was too short to measure")
    within = [entry for entry in entries if entry[2] > begin and entry[1] < end]
    by_kernels = [entry for entry in within if entry[0] == KERNEL]
    return {"busy": share(within, begin, end), "kernels": share(by_kernels, begin, end),
            "copies": share([entry for entry in within if entry[0] != KERNEL], begin, end),
            "kernelsASecond": len(by_kernels) / seconds}


def by_nvidia_smi(run: Run) -> float | None:
    """Coarse: it counts a while as busy in which any kernel ran. Of the last half, for it was training then."""
    last = [sample.utilisation for sample in run.samples[len(run.samples) // 2:]]
    return sum(last) / len(last) / 100 if last else None


def profile(session: Session, peer_name: str) -> str:
    peer = next(peer for peer in PEERS if peer.name == peer_name)
    library = session.downpour.programs / "tests/device_times.so"
    noted = session.downpour.scratch / f"{peer_name}.times"
    environment = {"CUDA_INJECTION64_PATH": str(library), "DOWNPOUR_DEVICE_TIMES": str(noted)} if session.on_gpu else {}
    run = session.downpour.run(write_manifest(session, peer, "ParameterServer", "fp32"), session.on_device(),
                               measured_seconds=WARM_UP_SECONDS + session.size(MEASURED_SECONDS, 2), environment=environment)
    row = {"model": peer.model, "device": session.device, "byNvidiaSmi": by_nvidia_smi(run)}
    session.results.add("busy", row)
    if not session.on_gpu:
        return "nothing to note without a GPU"
    files = sorted(noted.parent.glob(f"{noted.name}.*"), key=lambda path: path.stat().st_size)
    if not library.exists() or not files:
        why = re.findall(r"device_times: .*", run.log("worker-0"))
        raise Failure(f"nothing was noted of what the GPU did {why}; by nvidia-smi it was busy {row['byNvidiaSmi']}")
    found = shares(read(files[-1]), MEASURED_SECONDS)
    row |= found
    return f"busy {found['busy']:.0%} of the time, with kernels {found['kernels']:.0%}, {found['kernelsASecond']:,.0f} a second"


def busy(session: Session) -> None:
    for name in ("lenet", "unet", "acoustic"):
        session.steps.do(f"{name}: share of the time in which {session.device} works", lambda: profile(session, name))
