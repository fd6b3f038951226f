"""The counter test with workers on a GPU: whoever is killed meanwhile, every slice has every update once, and every sample
was used once an epoch. Only workers are killed, which the run's own status lists; tests/integration has the rest."""

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensors
from runs import Failure, processes_of, progress_of
from session import Session

WORKERS = 2
SAMPLES = 6144
BATCH = 32  # a power of two, as are the samples' shares of a minibatch
EPOCHS = 8
KILLS = [0.1, 0.3, 0.5, 0.7]  # at these shares of all updates
SLICE_ELEMENTS = 1 << 20


class Kills:
    """Of workers that have begun, in turn where that can be chosen."""

    def __init__(self, shares: list[float]):
        self.pending = list(shares)
        self.pids: list[int] = []

    def step(self, folder: Path) -> None:
        progress = progress_of(folder)
        if not self.pending or not progress or progress[-1]["updates"] < self.pending[0] * progress[-1]["updatesExpected"]:
            return
        begun = {process["index"]: process["pid"] for process in processes_of(folder)
                 if process["role"] == "worker" and process.get("finishTime") is None and process["pid"] not in self.pids
                 and has_begun(folder, process["name"]) and belongs_to(folder, process["pid"])}
        if not begun:
            return  # another look will find one
        pid = begun.get(len(self.pids) % WORKERS, next(iter(begun.values())))
        os.kill(pid, signal.SIGKILL)
        self.pids.append(pid)
        self.pending.pop(0)


def has_begun(folder: Path, name: str) -> bool:
    log = folder / f"logs/{name}.log"
    return log.exists() and "starts as incarnation" in log.read_text(errors="replace").split("==== ")[-1]


def belongs_to(folder: Path, pid: int) -> bool:
    """Its number may have been given to another process since."""
    try:
        return str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def check_counts(model: Mapping[str, tensors.Tensor], updates: int, epochs: int) -> None:
    if set(model) != {"samples", "large", "small", "scalar", "odd"}:
        raise Failure(f"the model has the tensors {sorted(model)}")
    wrong = [(index, count) for index, count in enumerate(model["samples"].values) if count != epochs]
    if wrong:
        raise Failure(f"{len(wrong)} samples were not used {epochs} times: {wrong[:10]}")
    for name in ("large", "small", "scalar", "odd"):
        values = model[name].values
        for offset in range(0, len(values), SLICE_ELEMENTS):
            part = values[offset:offset + SLICE_ELEMENTS]
            if part[0] != updates:
                raise Failure(f"{name}, slice at {offset}: counted {part[0]} of {updates} updates")
            if any(part[1:]):
                raise Failure(f"{name}, slice at {offset}: a value that no gradient touches has changed")


def write_manifest(folder: Path, plugin: Path, epochs: int) -> Path:
    (folder / "numbers.csv").write_text("number,target\n" + "".join(f"{number},0\n" for number in range(SAMPLES)))
    path = folder / "counter.json"
    spec: dict[str, Any] = {
        "parameterServer": {"replicas": 2},
        "worker": {"replicas": WORKERS},
        "model": {"plugin": {"path": str(plugin), "name": "Counting", "parameters": {"samples": SAMPLES}},
                  "loss": {"type": "Less"}},
        "dataset": {"format": "CSV", "path": str(folder / "numbers.csv"),
                    "columns": [{"name": "number", "type": "i64"}, {"name": "target", "type": "fp32"}]},
        "training": {"epochs": epochs, "batchSize": BATCH, "updatesPerShard": 5, "evaluate": False},
        "update": {"optimizer": {"learningRate": 1, "stalenessAware": False}},
        "failurePolicy": {"maxRestarts": 1000, "maxRestartsPerReplica": 1000,
                          "backoff": {"initialSeconds": 1, "maxSeconds": 1}},
    }
    path.write_text(json.dumps({"apiVersion": "training.downpour.dev/v1alpha1", "kind": "TrainingJob",
                                "metadata": {"name": "counter"}, "spec": spec}))
    return path


def count(session: Session) -> str:
    epochs = session.size(EPOCHS, 2)
    updates = epochs * SAMPLES // BATCH
    kills = Kills(session.size(KILLS, [0.2, 0.5]))
    path = write_manifest(session.downpour.scratch, session.downpour.programs / "tests/counting_network.so", epochs)
    run = session.downpour.run(path, session.on_device(), step=kills.step)
    if kills.pending:
        raise Failure(f"it ended before the kills at {kills.pending} of all updates")
    exact = {"expected": updates, "applied": updates, "missing": 0, "duplicated": 0, "skipped": 0}
    if run.summary["ledger"] != exact or run.summary["generation"] != 1:
        raise Failure(f"ledger {run.summary['ledger']}, generation {run.summary['generation']}; expected {exact} and 1")
    if run.summary["restarts"] < len(kills.pids):
        raise Failure(f"{run.summary['restarts']} restarts after {len(kills.pids)} kills")
    check_counts(tensors.read(run.model), updates, epochs)
    session.results.add("counter", {"device": session.device, "workers": WORKERS, "updates": updates,
                                    "kills": len(kills.pids), "restarts": run.summary["restarts"],
                                    "totalSeconds": run.summary["totalSeconds"]})
    return f"{updates} updates, {len(kills.pids)} workers killed, every slice and sample counted exactly"


def counter(session: Session) -> None:
    session.steps.do(f"counter: {WORKERS} workers on {session.device}, killed", lambda: count(session))
