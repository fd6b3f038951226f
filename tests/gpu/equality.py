"""A model that the GPU trains against that of the CPU, and one that begins on either and goes on on the other."""

import dataclasses
from pathlib import Path
from typing import Any

import tensors
from runs import Failure, Run, gpu_query
from session import Session, manifest

UPDATES = 50
# Rounding alone may decide whether a ReLU lets a value through, and from there on two models part. What is wrong with a
# device is wrong with every seed; so the first that holds is enough.
SEEDS = [1, 2, 3]
# The smallest that a manifest takes: a model that was "trained" with it is the one that training starts from.
NO_LEARNING_RATE = 1.1754943508222875e-38


def worst_of(compared: list[tensors.Comparison]) -> tensors.Comparison:
    return max(compared, key=lambda tensor: (not tensor.holds, tensor.relative))


def compare(session: Session, model: str) -> str:
    devices = [session.reference, session.device]
    attempts = []
    for seed in SEEDS:
        compared = train_and_compare(session, manifest(f"compare/{model}.yaml"), devices, seed)
        worst = worst_of(compared)
        session.results.add("equality", {
            "model": model, "devices": devices, "seed": seed, "updates": UPDATES, "holds": worst.holds,
            "limit": tensors.DIFFERENCE_LIMIT, "limitOfChange": tensors.CHANGE_LIMIT,
            "tensors": [dataclasses.asdict(tensor) | {"relative": tensor.relative, "holds": tensor.holds}
                        for tensor in compared]})
        attempts.append(f"seed {seed}: {worst.name} of {len(compared)} tensors differs most, by {worst.difference:.1e}"
                        f"; its largest value is {worst.largest:.1e}, training changed it by {worst.change:.1e}")
        if worst.holds:
            return "\n  ".join(attempts)
    expected = f"{tensors.DIFFERENCE_LIMIT:.0e} of the value and {tensors.CHANGE_LIMIT:.0e} of the change at most"
    raise Failure("\n  ".join([f"expected {expected}", *attempts]))


def train_and_compare(session: Session, path: Path, devices: list[str], seed: int) -> list[tensors.Comparison]:
    def train(device: str, **fields: Any) -> dict[str, tensors.Tensor]:
        run = session.downpour.run(path, {**session.on_device(device), "training.seed": seed, **fields})
        if run.summary["ledger"]["expected"] != UPDATES or run.summary["ledger"]["skipped"] != 0:
            raise Failure(f"got {run.summary['ledger']}, expected {UPDATES} updates and none skipped")
        return tensors.read(run.model)

    start = train(devices[0], **{"update.optimizer.learningRate": NO_LEARNING_RATE})
    return tensors.compare(start, train(devices[0]), train(devices[1]))


def equality(session: Session) -> None:
    for model in session.models:
        session.steps.do(f"{model}: {session.reference} and {session.device}", lambda: compare(session, model))
    # The reference computes on as many threads.
    if not session.on_gpu or int((gpu_query("count") or ["1"])[0]) > 1:
        session.steps.do(f"a worker on two devices: {session.reference} and {session.device}",
                         lambda: compare(session, "lenet-two-gpus"))


class Checkpoints:
    """Two epochs in one life on the reference, and in two lives on either device."""

    def __init__(self, session: Session):
        self.session = session
        self.path = manifest(f"compare/{session.models[0]}.yaml")

    def train(self, device: str, epochs: int, more: dict[str, Any]) -> Run:
        fields = {**self.session.on_device(device), "training.epochs": epochs}
        return self.session.downpour.run(self.path, fields | more)

    def in_one_life(self) -> str:
        reference = self.session.reference
        self.start = tensors.read(self.train(reference, 1, {"update.optimizer.learningRate": NO_LEARNING_RATE}).model)
        self.whole = tensors.read(self.train(reference, 2, {}).model)
        return "trained"

    def resume(self, first: str, second: str) -> str:
        checkpoints = {"checkpoint.uri": str(self.session.downpour.scratch / f"checkpoints-{self.session.downpour.runs}")}
        self.train(first, 1, checkpoints)
        run = self.train(second, 2, checkpoints)
        if not run.summary["resumedFrom"]:
            raise Failure("the second life did not begin with the checkpoint of the first")
        compared = tensors.compare(self.start, self.whole, tensors.read(run.model))
        worst = worst_of(compared)
        self.session.results.add("checkpoints", {
            "model": self.path.stem, "first": first, "second": second, "reference": self.session.reference,
            "tensor": worst.name, "relative": worst.relative, "holds": worst.holds})
        said = f"{worst.name} of {len(compared)} tensors differs most from one life, by {worst.difference:.1e}"
        if not worst.holds:
            raise Failure(said)
        return said


def checkpoints(session: Session) -> None:
    lives = Checkpoints(session)
    model = session.models[0]
    if not session.steps.do(f"{model}: two epochs on {session.reference}", lives.in_one_life):
        return
    for first, second in ((session.reference, session.device), (session.device, session.reference)):
        session.steps.do(f"{model}: begun on {first}, resumed on {second}", lambda: lives.resume(first, second))
