#!/usr/bin/env python3
"""Mode Synchronous with real processes, while workers are killed, and stopped so that others do their updates as well:
the model is that of a job whose one worker nobody disturbed."""

import argparse
import os
import random
import signal
import sys
import tempfile
import time

import counter_processes as counter
from checkpoint_processes import POLL_SECONDS, Job
from counter_processes import Failure, check

TOLERANCE = 1e-5  # the order of a sum differs
FAULTS = 12
LAYERS = [{"type": "flatten"}, {"type": "dense", "units": 256}, {"type": "tanh"}, {"type": "dense", "units": 10}]


def job(arguments, folder, name, workers):
    spec = {"parameterServer": {"replicas": 2}, "worker": {"replicas": workers}, "model": {"layers": LAYERS},
            "dataset": {"format": "Synthetic", "synthetic": {"kind": "Images", "shape": [1, 28, 28], "classes": 10,
                                                             "samples": 24000, "testSamples": 32}},
            "training": {"epochs": 6, "batchSize": 200, "updatesPerShard": 5, "evaluate": False, "device": "CPU"},
            "update": {"mode": "Synchronous", "updatesPerStep": 3, "accumulate": 4,
                       "optimizer": {"type": "Momentum", "learningRate": 0.02}},
            "failurePolicy": {"maxRestarts": 1000, "maxRestartsPerReplica": 1000,
                              "backoff": {"initialSeconds": 1, "maxSeconds": 1}}}
    return Job(arguments, folder, name, spec, counting=False)


def disturb(run, workers, chance):
    """Kills or stops a worker as long as the job has progress to make and faults are left."""
    stopped = {}
    faults = 0
    kills = 0
    while run.process.poll() is None:
        check(time.monotonic() < run.deadline, f"not done within its time, after {faults} faults")
        now = time.monotonic()
        for name in [name for name, until in stopped.items() if until <= now]:
            run.signal(name, signal.SIGCONT)
            del stopped[name]
        before = run.progress()
        if faults < FAULTS and 0 < before < 1 and len(stopped) < workers - 2:
            name = f"worker-{chance.randrange(workers)}"
            if name not in stopped and name in counter.read_processes(run.folder):
                faults += 1
                if chance.random() < 0.4:
                    kills += 1
                    run.signal(name)
                else:
                    run.signal(name, signal.SIGSTOP)
                    stopped[name] = now + chance.uniform(0.2, 1.5)
        wait_until = now + chance.uniform(0.1, 0.4)
        while run.process.poll() is None and time.monotonic() < wait_until:
            time.sleep(POLL_SECONDS)
    return faults, kills


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("downpour", "server", "worker"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="downpour-synchronous-") as folder:
        with job(arguments, folder, "alone", 1).start() as run:
            alone = run.end()
        with job(arguments, folder, "disturbed", 4).start() as run:
            faults, kills = disturb(run, 4, random.Random(arguments.seed))
            disturbed = run.end()
        print(f"{faults} faults of which {kills} kills, {disturbed['restarts']} restarts", flush=True)
        check(faults >= 3, f"only {faults} faults: the job was too fast")
        tensors = [counter.read_safetensors(one["modelPath"]) for one in (alone, disturbed)]
        for name, values in tensors[0].items():
            furthest = max(abs(one - other) for one, other in zip(values, tensors[1][name]))
            print(f"{name}: {furthest:.1e} apart", flush=True)
            check(furthest <= TOLERANCE, f"{name}: values are {furthest} apart")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        sys.exit(1)
