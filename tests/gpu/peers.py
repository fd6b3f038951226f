"""Networks with a ps on the same host, and in a ring of one, against the same networks in PyTorch alone."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from lenet import uses_shared_memory
from runs import PACKED, WARM_UP_SECONDS, Failure, steady_rate
from session import Session

MEASURED_SECONDS = 5
PEER_SECONDS = 45  # for all of it
MOST_BY_PS = 1.3
MOST_BY_ALL_REDUCE = 1.05


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    model: str
    shape: list[int]
    quick_shape: list[int]
    classes: int  # 0: an image is to be predicted
    samples: int
    batch: int    # that fills a GPU; those of deploy/examples are for CPUs
    quick_batch: int
    dataset: dict[str, Any]


PEERS = [
    Peer("unet", "UNet", [12, 96, 96], [12, 32, 32], 0, 4096, 64, 2, {"kind": "Radar"}),
    Peer("acoustic", "Acoustic", [11, 40], [11, 40], 8192, 65536, 4096, 16, {"kind": "Speech"}),
    Peer("lenet", "LeNet", [1, 28, 28], [1, 28, 28], 10, 60000, 256, 64, {"kind": "Images", "classes": 10}),
]


def batch_of(session: Session, peer: Peer) -> int:
    return session.batches.get(peer.name, session.size(peer.batch, peer.quick_batch))


def samples_of(session: Session, peer: Peer) -> int:
    return session.size(peer.samples, 20 * peer.quick_batch)


def shape_of(session: Session, peer: Peer) -> list[int]:
    return session.size(peer.shape, peer.quick_shape)


def write_manifest(session: Session, peer: Peer, strategy: str, precision: str) -> Path:
    synthetic = {**peer.dataset, "shape": shape_of(session, peer), "samples": samples_of(session, peer), "testSamples": 10}
    spec: dict[str, Any] = {
        "strategy": strategy,
        "worker": {"replicas": 1},
        "model": {"name": peer.model},
        "dataset": {"format": "Synthetic", "synthetic": synthetic, "pinMemory": True},
        "training": {"epochs": 100000, "batchSize": batch_of(session, peer), "precision": precision, "evaluate": False},
        "update": {"optimizer": {"learningRate": 0.01}},
        "failurePolicy": {"maxRestarts": 0, "maxRestartsPerReplica": 0},
    }
    if strategy == "ParameterServer":
        spec["parameterServer"] = {"replicas": 1}
        spec["update"]["codec"] = "bf16"
    path = session.downpour.scratch / f"{peer.name}-{strategy}-{precision}.json"
    path.write_text(json.dumps({"apiVersion": "training.downpour.dev/v1alpha1", "kind": "TrainingJob",
                                "metadata": {"name": peer.name}, "spec": spec}))
    return path


def values_of(ps_log: str) -> int:
    """That a ps holds, by what it says of its view."""
    found = re.search(r"view: .* slices, (\d+) bytes", ps_log)
    if found is None:
        raise Failure("the ps does not say how many bytes it holds")
    return int(found.group(1)) // 4


class Measurement:
    """Of one network; each step adds to its row of the results."""

    def __init__(self, session: Session, peer: Peer, precision: str):
        self.session = session
        self.peer = peer
        self.precision = precision
        self.row: dict[str, Any] = {"model": peer.model, "device": session.device, "batch": batch_of(session, peer),
                                    "precision": precision}
        session.results.add("peers", self.row)

    def alone(self) -> str:
        session, peer = self.session, self.peer
        on_device = session.on_device()
        options = {"device": session.device.lower(), "shape": ",".join(map(str, shape_of(session, peer))),
                   "classes": peer.classes, "samples": samples_of(session, peer), "batch": batch_of(session, peer),
                   "precision": self.precision, "threads": on_device["training.threads"],
                   "warm-up": session.size(WARM_UP_SECONDS, 0), "seconds": session.size(MEASURED_SECONDS, 1)}
        command = [sys.executable, str(PACKED / "peer.py"), peer.name]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        process = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 check=False, timeout=max(1.0, min(PEER_SECONDS, session.steps.left())))
        if process.returncode != 0:
            raise Failure(f"{' '.join(command)}: exit code {process.returncode}: "
                          f"{process.stderr.rstrip().rpartition(chr(10))[2]}")
        measured = json.loads(process.stdout.splitlines()[-1])
        self.row |= {"alone": measured["milliseconds"], "values": measured["values"]}
        return f"{measured['milliseconds']:.2f} ms a step"

    def job(self, strategy: str) -> float:
        """Milliseconds a step."""
        run = self.session.downpour.run(
            write_manifest(self.session, self.peer, strategy, self.precision), self.session.on_device(),
            measured_seconds=WARM_UP_SECONDS + self.session.size(MEASURED_SECONDS, 3))
        if strategy == "ParameterServer":
            if not uses_shared_memory(run.log("worker-0")):
                raise Failure("worker-0 used the network alone")
            if values_of(run.log("ps-0")) != self.row["values"]:
                raise Failure(f"the ps holds {values_of(run.log('ps-0')):,} values, the network of PyTorch has "
                              f"{self.row['values']:,}: not the same network")
        return batch_of(self.session, self.peer) / steady_rate(run.progress) * 1e3

    def compare(self, strategy: str, key: str, most: float) -> str:
        self.row[key] = self.job(strategy)
        ratio = self.row[key] / self.row["alone"]
        said = f"{self.row[key]:.2f} ms a step, {ratio:.2f} of PyTorch alone"
        if self.peer.name != "lenet":  # whose limit is the time of an epoch
            self.session.target(ratio <= most, f"{most} at most, got {said}")
        return said


def measure(session: Session, peer: Peer, precision: str) -> None:
    measurement = Measurement(session, peer, precision)
    name = f"{peer.name}, batch {batch_of(session, peer)}, {precision}"
    if not session.steps.do(f"{name}: PyTorch alone", measurement.alone):
        return
    session.steps.do(f"{name}: ps on the same host",
                     lambda: measurement.compare("ParameterServer", "byPs", MOST_BY_PS))
    session.steps.do(f"{name}: all-reduce of one",
                     lambda: measurement.compare("AllReduce", "byAllReduce", MOST_BY_ALL_REDUCE))


def peers(session: Session) -> None:
    for peer in PEERS:
        for precision in session.precisions:
            measure(session, peer, precision)
