#!/usr/bin/env python3
"""Searches of mode Sandblaster whose processes are killed, with `downpour run`: the model is that of a search with which
nobody interfered, bit for bit, although another number of workers and of ps had part in it.

killed      a worker, then the coordinator are killed in the middle
resumed     the whole job is killed behind a checkpoint, and goes on with another number of ps and workers
"""

import argparse
import shutil
import sys
import tempfile

from checkpoint_processes import Job, check_same
from counter_processes import Failure, check

EVALUATIONS = 60
ITERATIONS = 20
# Smooth; without what makes another function of each evaluation.
LAYERS = [{"type": "flatten"}, {"type": "dense", "units": 32}, {"type": "tanh"}, {"type": "dense", "units": 10}]


def search(arguments, folder, name, *, ps, workers, **checkpoints):
    spec = {"parameterServer": {"replicas": ps}, "worker": {"replicas": workers}, "model": {"layers": LAYERS},
            "dataset": {"format": "Synthetic", "synthetic": {"kind": "Images", "shape": [1, 28, 28], "classes": 10,
                                                             "samples": 8000, "testSamples": 100}},
            "training": {"epochs": EVALUATIONS, "batchSize": 100, "updatesPerShard": 2, "device": "CPU"},
            "update": {"mode": "Sandblaster", "lbfgs": {"maxIterations": ITERATIONS}}}
    if checkpoints:
        spec["checkpoint"] = {"intervalSeconds": 1, **checkpoints}
    return Job(arguments, folder, name, spec, counting=False)


def undisturbed(arguments, folder):
    with search(arguments, folder, "undisturbed", ps=1, workers=1).start() as run:
        summary = run.end()
    print(f"undisturbed: {summary['message']}, {summary['ledger']}", flush=True)
    check(f"after {ITERATIONS} iterations" in summary["message"], f"ended otherwise: {summary['message']}")
    return summary


def compare(expected, summary):
    print(f"{summary['message']}, {summary['ledger']}", flush=True)
    check(summary["message"] == expected["message"], f"ended otherwise: {summary['message']}")
    check_same(expected, summary)


def killed(arguments, folder):
    expected = undisturbed(arguments, folder)
    share = expected["ledger"]["expected"] / (EVALUATIONS * 80)
    with search(arguments, folder, "killed", ps=2, workers=3).start() as run:
        for part, victim in ((0.2, "worker-1"), (0.5, "coordinator-0"), (0.7, "worker-0")):
            run.until(lambda part=part: run.progress() > part * share, "a part of the search")
            run.signal(victim)
            print(f"{victim} killed at {run.progress():.0%}", flush=True)
        compare(expected, run.end())


def resumed(arguments, folder):
    expected = undisturbed(arguments, folder)
    job = search(arguments, folder, "resumed", ps=2, workers=2, uri=f"{folder}/store")
    with job.start() as run:
        run.until(job.checkpoints, "a checkpoint")
        made = run.progress()
        run.until(lambda: run.progress() > made, "updates that are lost")
        run.kill()
    print(f"killed at {run.progress():.0%}", flush=True)
    with job.start(parameterServer__replicas=3, worker__replicas=3) as run:
        summary = run.end()
    check(summary["resumedFrom"], "it began anew")
    compare(expected, summary)


SCENARIOS = {scenario.__name__: scenario for scenario in (killed, resumed)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--downpour", required=True, help="the command")
    parser.add_argument("--server", required=True, help="coordinator and parameter server")
    parser.add_argument("--worker", required=True, help="the worker")
    parser.add_argument("--scenario", required=True, choices=SCENARIOS)
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="downpour-sandblaster-")
    try:
        SCENARIOS[arguments.scenario](arguments, folder)
    except Failure as failure:
        print(f"sandblaster_processes: {failure}\nThe run is kept in {folder}.", file=sys.stderr)
        sys.exit(1)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
