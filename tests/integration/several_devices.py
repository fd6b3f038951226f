#!/usr/bin/env python3
"""worker.gpus with real processes, on a machine without a GPU, where threads of the CPU take their place: the model is
that of a job whose worker computes on one, with parameter servers and without; and what cannot be is refused."""

import argparse
import os
import subprocess
import sys
import tempfile

import counter_processes as counter
from checkpoint_processes import Job
from counter_processes import Failure, check

TOLERANCE = 1e-5  # the order of a sum differs
LAYERS = [{"type": "flatten"}, {"type": "dense", "units": 64}, {"type": "tanh"}, {"type": "dense", "units": 10}]
WITH_PS = {"parameterServer": {"replicas": 2}, "worker": {"replicas": 1}, "update": {"mode": "Async"}}
WITHOUT_PS = {"strategy": "AllReduce", "worker": {"replicas": 2}, "update": {}}


def job(arguments, folder, name, base, gpus):
    # 1003 samples: the last minibatch of an epoch has 11, which three devices share unevenly.
    spec = {**base, "worker": {**base["worker"], "gpus": gpus}, "model": {"layers": LAYERS, "metrics": ["Accuracy"]},
            "dataset": {"format": "Synthetic", "synthetic": {"kind": "Images", "shape": [1, 12, 12], "classes": 10,
                                                             "samples": 1003, "testSamples": 101}},
            "training": {"epochs": 3, "batchSize": 32, "device": "CPU"},
            "update": {**base["update"], "optimizer": {"type": "Momentum", "learningRate": 0.02}}}
    return Job(arguments, folder, name, spec, counting=False)


def train(arguments, folder, name, base, gpus):
    with job(arguments, folder, name, base, gpus).start() as run:
        summary = run.end()
    check(summary["audit"] == "Exact", f"{name}: the audit says {summary['audit']}")
    with open(os.path.join(run.folder, "logs", "worker-0.log"), encoding="utf-8") as log:
        told = " on cpu, contiguous, 1 thread" + (f", {gpus} replicas, " if gpus > 1 else ", ")
        check(told in log.read(), f"{name}: the log of worker-0 does not say \"{told}\"")
    return counter.read_safetensors(summary["modelPath"])


def compare(arguments, folder, name, base, several):
    alone = train(arguments, folder, f"{name}-1", base, 1)
    for gpus in several:
        shared = train(arguments, folder, f"{name}-{gpus}", base, gpus)
        for tensor, values in alone.items():
            furthest = max(abs(one - other) for one, other in zip(values, shared[tensor]))
            print(f"{name}, {gpus} devices, {tensor}: {furthest:.1e} apart", flush=True)
            check(furthest <= TOLERANCE, f"{name}, {gpus} devices, {tensor}: values are {furthest} apart")


def refused(arguments, folder, overrides, expected):
    one = job(arguments, folder, "refused", WITH_PS, 2)
    command = [arguments.downpour, "run", one.manifest, "--run-dir", os.path.join(folder, "refused-run")]
    for path, value in overrides.items():
        command += ["--set", f"{path}={value}"]
    done = subprocess.run(command, env=one.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=60, check=False)
    check(done.returncode != 0 and expected in done.stdout, f"{overrides}: got {done.returncode}, \"{done.stdout}\", "
                                                            f"expected \"{expected}\"")
    print(f"{overrides}: {expected}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("downpour", "server", "worker"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="downpour-devices-") as folder:
        compare(arguments, folder, "ps", WITH_PS, [2, 3])
        compare(arguments, folder, "all-reduce", WITHOUT_PS, [2])
        refused(arguments, folder, {"worker.gpus": 0}, "spec.worker.gpus: must be at least 1, got 0")
        refused(arguments, folder, {"training.batchSize": 1},
                "spec.worker.gpus: must be at most spec.training.batchSize, 1, got 2")
        if not os.path.exists("/dev/nvidia0"):
            refused(arguments, folder, {"training.device": "CUDA"}, "device CUDA: no NVIDIA driver on this machine")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        sys.exit(1)
