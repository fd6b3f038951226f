#!/usr/bin/env python3
"""Jobs without parameter servers, with real processes.

exact       two workers and a network with dropout and running statistics: killed as a whole and resumed, the model file is
            that of a job that was never interrupted, byte for byte
strategies  a job that is killed and goes on with the other strategy, from ps to all-reduce and back: each update is counted
            once over all lives
scaled      one worker, four, two, three: each update is counted once, and nothing begins anew
gone        all workers are killed at once: the job goes on from its newest checkpoint
divided     the optimizer's state divided among three workers: the model file is that of a job that divides nothing, byte for
            byte, also where the job was killed as a whole, and went on with another number of copies
kernels     gradients, values and the optimizer's memory go the way of a GPU's, with the kernels' twins on the CPU: workers are
            killed, come and leave, and the model file is that of a job without all that, byte for byte
copies      with two copies of each part workers are killed one after the other, come and leave: nothing begins anew
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import counter_processes as counter
from checkpoint_processes import check_counted, check_same, counting_job, learning_job, read
from counter_processes import Failure, check

counter.SAMPLES = counter.RING_SAMPLES
WIDTH = counter.RING_UPDATES_PER_STEP


def without_servers(spec, workers):
    spec = {**spec, "strategy": "AllReduce", "worker": {"replicas": workers}}
    spec.pop("parameterServer")
    return spec


def rewritten(job, change):
    """The same job with another manifest."""
    with open(job.manifest, encoding="utf-8") as file:
        manifest = json.load(file)
    manifest["spec"] = change(manifest["spec"])
    with open(job.manifest, "w", encoding="utf-8") as file:
        json.dump(manifest, file)
    return job


def ring_job(arguments, folder, name="counted", *, workers=3, epochs=4, step=20, **more):
    """Of which each step has as many updates, all of as many samples, so that a rate as high counts each of them."""
    job = counting_job(arguments, folder, name, epochs=epochs, batch=counter.RING_BATCH_SIZE, samples=counter.RING_SAMPLES,
                       step=step, workers=workers)

    def change(spec):
        spec["training"]["updatesPerShard"] = counter.RING_UPDATES_PER_SHARD
        spec["update"] = {"updatesPerStep": WIDTH, "optimizer": {"learningRate": WIDTH}}
        return {**without_servers(spec, workers), **more}
    return rewritten(job, change)


def exact(arguments, folder):
    folders = [os.path.join(folder, what) for what in ("whole", "killed")]
    for one in folders:
        os.mkdir(one)
    update = {"accumulate": 2, "clipNorm": 1, "optimizer": {"type": "Adam", "learningRate": 0.001}}
    jobs = [rewritten(learning_job(arguments, one, "trained", samples=64000, update=update, **uri),
                      lambda spec: without_servers(spec, 2))
            for one, uri in zip(folders, ({}, {"uri": os.path.join(folders[1], "store")}))]
    with jobs[0].start() as run:
        whole = run.end()
    for _ in range(2):
        before = jobs[1].checkpoints()
        with jobs[1].start() as run:
            run.until(lambda: set(jobs[1].checkpoints()) - set(before), "a new checkpoint")
            made = run.progress()
            run.until(lambda: run.progress() > made, "updates that are lost")
            run.kill()
        print(f"killed at {run.progress():.0%}", flush=True)
    newest = jobs[1].checkpoints()[-1]
    with jobs[1].start() as run:
        summary = run.end()
    check(summary["resumedFrom"] == newest, f"resumed from {summary['resumedFrom']}, expected {newest}")
    check_same(whole, summary)
    check(read(whole["modelPath"]) == read(summary["modelPath"]), "the model files differ")


def divided(arguments, folder):
    update = {"clipNorm": 1, "optimizer": {"type": "Adam", "learningRate": 0.001}}

    def job(name, copies, **uri):
        one = os.path.join(folder, name)
        os.makedirs(one, exist_ok=True)
        return rewritten(learning_job(arguments, one, "trained", samples=64000, update=update, **uri),
                         lambda spec: {**without_servers(spec, 3), **elastic(copies)})

    def elastic(copies):
        return {"elastic": {"minReplicas": 1, "maxReplicas": 4, "stateCopies": copies}} if copies else {}
    with job("whole", 0).start() as run:
        whole = run.end()
    for copies in (1, 2):
        with job(f"copies-{copies}", copies).start() as run:
            summary = run.end()
        check_same(whole, summary)
        check(read(whole["modelPath"]) == read(summary["modelPath"]), f"the model files differ with {copies} copies")
    store = os.path.join(folder, "store")
    resumed = job("resumed", 2, uri=store)
    for life, copies in enumerate([2, 0, 1]):
        rewritten(resumed, lambda spec, copies=copies: {**{name: value for name, value in spec.items() if name != "elastic"},
                                                        **elastic(copies)})
        before = resumed.checkpoints()
        with resumed.start() as run:
            if life == 2:
                summary = run.end()
                break
            run.until(lambda: set(resumed.checkpoints()) - set(before), "a new checkpoint")
            made = run.progress()
            run.until(lambda: run.progress() > made, "updates that are lost")
            run.kill()
        print(f"{copies} copies: killed at {run.progress():.0%}", flush=True)
    check(summary["resumedFrom"], "it began anew")
    check_same(whole, summary)
    check(read(whole["modelPath"]) == read(summary["modelPath"]), "the model files differ after the resumptions")


def copies(arguments, folder):
    job = ring_job(arguments, folder, workers=4, epochs=12, elastic={"minReplicas": 1, "maxReplicas": 4, "stateCopies": 2})

    def trains(workers):
        run.until(lambda: run.status().get("ring", {}).get("members") == workers and run.status()["ring"].get("formed"),
                  f"a ring of {workers}")
        made = run.progress()
        run.until(lambda: run.progress() > made, f"{workers} train")
        print(f"{workers} workers at {run.progress():.0%}", flush=True)
    with job.start() as run:
        trains(4)
        for name in ("worker-1", "worker-0", "worker-3"):
            killed = run.status()["ring"]["formedCount"]
            run.signal(name)
            run.until(lambda killed=killed: run.status()["ring"]["formedCount"] > killed, "a ring without it")
            trains(4)
        for workers in (2, 4, 1, 3):
            subprocess.run([arguments.downpour, "scale", run.folder, f"--workers={workers}"], check=True, timeout=60)
            trains(workers)
        summary = run.end()
    check(summary["generation"] == 1, f"generation {summary['generation']}")
    check_counted(summary, epochs=12)


def strategies(arguments, folder):
    job = ring_job(arguments, folder, workers=2)
    ring = job.manifest + ".ring"
    shutil.copy(job.manifest, ring)

    def with_servers(spec):
        spec = {**spec, "strategy": "ParameterServer", "parameterServer": {"replicas": 2}}
        spec["update"] = {**spec["update"], "mode": "Synchronous"}
        return spec
    for life, servers in enumerate([True, False, True, False]):
        shutil.copy(ring, job.manifest)
        if servers:
            rewritten(job, with_servers)
        before = job.checkpoints()
        with job.start() as run:
            if life == 3:
                summary = run.end()
                break
            run.until(lambda: set(job.checkpoints()) - set(before), "a new checkpoint")
            made = run.progress()
            run.until(lambda: run.progress() > made, "updates that are lost")
            run.kill()
        print(f"{'ps' if servers else 'all-reduce'}: killed at {run.progress():.0%}", flush=True)
    check(summary["resumedFrom"], "it began anew")
    check_counted(summary, epochs=4)


def scaled(arguments, folder):
    job = ring_job(arguments, folder, workers=1, epochs=12, elastic={"minReplicas": 1, "maxReplicas": 4})
    with job.start() as run:
        run.until(lambda: run.progress() > 0.02, "it trained")
        for workers in (4, 2, 3):
            subprocess.run([arguments.downpour, "scale", run.folder, f"--workers={workers}"], check=True, timeout=60)
            run.until(lambda workers=workers: run.status().get("ring", {}).get("members") == workers
                      and run.status()["ring"].get("formed"), f"a ring of {workers}")
            made = run.progress()
            run.until(lambda made=made: run.progress() > made, f"{workers} train")
            print(f"{workers} workers at {run.progress():.0%}", flush=True)
        summary = run.end()
    check(summary["generation"] == 1, f"generation {summary['generation']}")
    check_counted(summary, epochs=12)


def gone(arguments, folder):
    job = ring_job(arguments, folder, workers=2, epochs=6)
    with job.start() as run:
        run.until(job.checkpoints, "a checkpoint")
        made = run.progress()
        run.until(lambda: run.progress() > made, "updates that are lost")
        for name in ("worker-0", "worker-1"):
            run.signal(name, signal.SIGSTOP)
        for name in ("worker-0", "worker-1"):
            run.signal(name)
        run.until(lambda: run.condition("ParametersLost").get("reason") == "RolledBack", "it went back")
        print(run.condition("ParametersLost")["message"], flush=True)
        summary = run.end()
    check(summary["generation"] == 2, f"generation {summary['generation']}")
    check_counted(summary, epochs=6)


def kernels(arguments, folder):
    # Each step has two updates of one minibatch: its sum has the same bits whoever computes them, and nothing is clipped.
    update = {"updatesPerStep": 2, "optimizer": {"type": "Adam", "learningRate": 0.001}}
    of_kernels = argparse.Namespace(**{**vars(arguments), "worker": arguments.kernels_worker})
    whole, disturbed = [
        rewritten(learning_job(programs, os.path.join(folder, name), "trained", samples=64000, update=update, epochs=3,
                               uri=os.path.join(folder, name, "store")),
                  lambda spec: {**without_servers(spec, 2), "elastic": {"minReplicas": 1, "maxReplicas": 3}})
        for name, programs in (("whole", arguments), ("disturbed", of_kernels)) if os.makedirs(os.path.join(folder, name)) is None]
    with whole.start() as run:
        expected = run.end()
    with disturbed.start() as run:
        def trains_with(workers):
            run.until(lambda: run.status().get("ring", {}).get("members") == workers and run.status()["ring"].get("formed"),
                      f"a ring of {workers}")
            made = run.progress()
            run.until(lambda: run.progress() > made, f"{workers} train")
            print(f"{workers} workers at {run.progress():.0%}", flush=True)
        trains_with(2)
        run.signal("worker-0")
        trains_with(2)
        subprocess.run([arguments.downpour, "scale", run.folder, "--workers=3"], check=True, timeout=60)
        trains_with(3)
        run.until(disturbed.checkpoints, "a checkpoint")
        made = run.progress()
        run.until(lambda: run.progress() > made, "updates that are lost")
        run.kill()
    with disturbed.start() as run:
        summary = run.end()
    check(summary["resumedFrom"], "it began anew")
    check_same(expected, summary)
    check(read(expected["modelPath"]) == read(summary["modelPath"]), "the model files differ")


SCENARIOS = {scenario.__name__: scenario for scenario in (exact, strategies, scaled, gone, divided, copies, kernels)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--downpour", required=True, help="the command")
    parser.add_argument("--server", required=True, help="coordinator and parameter server")
    parser.add_argument("--worker", required=True, help="the worker that learns")
    parser.add_argument("--counter-worker", required=True, help="the worker that counts")
    parser.add_argument("--kernels-worker", required=True, help="the worker that learns with kernels of the host")
    parser.add_argument("--scenario", required=True, choices=SCENARIOS)
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="downpour-all-reduce-")
    try:
        SCENARIOS[arguments.scenario](arguments, folder)
    except Failure as failure:
        print(f"all_reduce_processes: {failure}\nThe runs are kept in {folder}.", file=sys.stderr)
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
