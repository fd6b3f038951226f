#!/usr/bin/env python3
"""A job that heeds its evaluations, with real processes, while the coordinator, a worker and in the end the whole run are
killed: it stops early in a later run, has done a prefix of its plan, each update once, and keeps its best model."""

import argparse
import json
import os
import struct
import sys
import tempfile

from checkpoint_processes import Job
from counter_processes import Failure, check, read_safetensors, whole_lines

PATIENCE = 4
LAYERS = [{"type": "flatten"}, {"type": "dense", "units": 64}, {"type": "relu"}, {"type": "dense", "units": 10}]


def job(arguments, folder):
    spec = {"parameterServer": {"replicas": 2}, "worker": {"replicas": 2},
            "model": {"layers": LAYERS, "metrics": ["Accuracy"]},
            "dataset": {"format": "Synthetic", "synthetic": {"kind": "Images", "shape": [1, 28, 28], "classes": 10,
                                                             "samples": 16000, "testSamples": 64}},
            # No epoch is better than the first by as much as is wanted.
            "training": {"epochs": 200, "batchSize": 100, "updatesPerShard": 5, "device": "CPU",
                         "earlyStopping": {"patience": PATIENCE, "minDelta": 1000},
                         "reduceOnPlateau": {"patience": 1, "factor": 0.5, "minDelta": 1000}, "keepBest": {}},
            "update": {"mode": "Synchronous", "updatesPerStep": 2, "optimizer": {"learningRate": 0.01}},
            "output": {"directory": os.path.join(folder, "output")},
            "checkpoint": {"uri": os.path.join(folder, "checkpoints"), "intervalSeconds": 1},
            "failurePolicy": {"maxRestarts": 1000, "maxRestartsPerReplica": 1000,
                              "backoff": {"initialSeconds": 1, "maxSeconds": 1}}}
    return Job(arguments, folder, "heeds", spec, counting=False)


def evaluations(run):
    """Of the run so far, by epoch."""
    try:
        with open(os.path.join(run.folder, "metrics.jsonl"), encoding="utf-8") as lines:
            points = [json.loads(line) for line in whole_lines(lines)]
    except FileNotFoundError:
        return {}
    return {point["epochs"]: point["loss"] for point in points if point["type"] == "evaluation"}


def metadata(path):
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        return json.loads(file.read(length))["__metadata__"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("downpour", "server", "worker"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="downpour-evaluations-") as folder:
        heeds = job(arguments, folder)
        with heeds.start() as run:
            run.until(lambda: len(evaluations(run)) >= 1, "the first evaluation")
            run.signal("coordinator-0")
            run.until(lambda: len(evaluations(run)) >= 2, "an evaluation after the coordinator was killed")
            run.signal("worker-1")
            seen = len(heeds.checkpoints())
            run.until(lambda: len(heeds.checkpoints()) > seen, "a checkpoint")
        with heeds.start() as run:
            summary = run.end()
        ledger, best = summary["ledger"], summary["best"]
        print(f"{summary['stopReason']}\n{summary['rateReason']}\n{ledger}, best {best}", flush=True)
        check(summary["stopReason"].startswith("stopped early after epoch "), f"it ended for: {summary['stopReason']}")
        # Evaluations that were lost with a process may have to be waited for once more, each kill one of them.
        after = int(summary["stopReason"].split("after epoch ")[1].split(":")[0])
        check(1 + PATIENCE <= after <= 1 + PATIENCE + 4, f"after epoch {after}, expected {1 + PATIENCE} or little more")
        check(after <= summary["epochs"] <= after + 3, f"{summary['epochs']} epochs, it was decided after {after}")
        check(summary["rateReason"] != "", "the learning rate was not reduced")
        check(summary["audit"] == "Exact" and ledger["applied"] == ledger["expected"] > 0, f"the ledger: {ledger}")
        check(ledger["expected"] < 200 * 160, f"all of it was done: {ledger}")
        check(best is not None and best["path"].endswith("/best.safetensors"), f"the best model: {best}")
        kept = metadata(best["path"])
        check(int(kept["epoch"]) == best["epoch"] and kept["metric"] == "Loss", f"the best model is {best}, its file says {kept}")
        check(read_safetensors(best["path"]).keys() == read_safetensors(summary["modelPath"]).keys(), "it has other tensors")
        others = [name for name in os.listdir(os.path.dirname(best["path"])) if name.startswith("best-epoch-")]
        check(not others, f"left behind: {others}")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"evaluation_processes: {failure}")
