#!/usr/bin/env python3
"""Jobs that are killed and go on from their checkpoints, with real processes: `downpour run` again and again.

exact       one worker and a network with dropout and running statistics: killed as a whole and resumed, the model file
            is that of a job that was never interrupted, byte for byte
lives       several workers that count: servers, coordinators and whole jobs are killed, other numbers of everything and
            another batch size after that; each update is counted once
damage      what of the newest checkpoints is damaged, or missing: one before is used, and the status says why
sources     which checkpoint `resumeFrom` means, and which jobs cannot go on from one
full_disk   a disk without room: training goes on, the old checkpoint stays whole, the next is made once there is room
s3          a whole job on an S3 server (e2e/cluster/build.sh versitygw), which is away for a while

Exit code 77: skipped, the scenario needs what this machine or user does not have.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import counter_processes as counter
from counter_processes import Failure, check

SKIPPED = 77  # ctest's SKIP_RETURN_CODE
PATIENCE_SECONDS = 100
POLL_SECONDS = 0.02
SAMPLES = counter.SAMPLES
STEP_MILLISECONDS = 25
STEP_VARIABLE = "DOWNPOUR_COUNTER_STEP_MILLISECONDS"
OWN_MOUNTS = "DOWNPOUR_OWN_MOUNTS"  # set once the mounts are this process's own
MEBIBYTE = 1 << 20


class Skip(Exception):
    pass


class Job:
    """A manifest, the folder of its checkpoints, and its runs so far."""

    def __init__(self, arguments, folder, name, spec, *, counting, environment=None):
        self.arguments = arguments
        self.folder = folder
        self.name = name
        self.store = spec["checkpoint"]["uri"] if "checkpoint" in spec else ""
        self.runs = 0
        programs = os.path.join(folder, "bin-counter" if counting else "bin")
        if not os.path.exists(programs):
            os.mkdir(programs)
            os.symlink(os.path.abspath(arguments.server), os.path.join(programs, "downpour-server"))
            worker = arguments.counter_worker if counting else arguments.worker
            os.symlink(os.path.abspath(worker), os.path.join(programs, "downpour-worker"))
        self.environment = dict(os.environ, DOWNPOUR_BINARY_DIR=programs, **(environment or {}))
        manifest = {"apiVersion": "training.downpour.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
                    "spec": spec}
        self.manifest = os.path.join(folder, f"{name}.json")
        with open(self.manifest, "w", encoding="utf-8") as file:
            json.dump(manifest, file)

    def start(self, **overrides):
        self.runs += 1
        return Run(self, os.path.join(self.folder, f"{self.name}-run-{self.runs}"), overrides)

    def checkpoints(self):
        """Those in a directory that have a manifest, the oldest first."""
        folder = os.path.join(self.store, self.name)
        try:
            names = sorted(os.listdir(folder))
        except FileNotFoundError:
            return []
        return [os.path.join(folder, name) for name in names if os.path.exists(os.path.join(folder, name, "MANIFEST"))]


class Run:
    """One `downpour run`. Its processes end with it."""

    def __init__(self, job, folder, overrides):
        self.job = job
        self.folder = folder
        command = [job.arguments.downpour, "run", job.manifest, "--run-dir", folder, "--output", "json"]
        for path, value in overrides.items():
            command += ["--set", f"{path.replace('__', '.')}={json.dumps(value)}"]
        self.deadline = time.monotonic() + PATIENCE_SECONDS
        self.output_path = folder + ".out"
        self.errors_path = folder + ".err"
        with open(self.output_path, "wb") as output, open(self.errors_path, "wb") as errors:
            self.process = subprocess.Popen(command, stdout=output, stderr=errors, env=job.environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        """SIGKILL of all of it; the kernel ends its processes with it."""
        pids = [process["pid"] for process in counter.read_processes(self.folder).values()]
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        while any(counter.belongs_to(self.folder, pid) for pid in pids):
            check(time.monotonic() < self.deadline, "processes outlive their run")
            time.sleep(POLL_SECONDS)

    def until(self, condition, what):
        """Waits for the condition while the job runs."""
        while not condition():
            check(self.process.poll() is None, f"{self.folder}: it ended before {what}:\n{self.errors()}")
            check(time.monotonic() < self.deadline, f"{self.folder}: not within {PATIENCE_SECONDS} s: {what}")
            time.sleep(POLL_SECONDS)

    def end(self, code=0):
        """The summary, once the run has ended with this exit code."""
        while self.process.poll() is None:
            check(time.monotonic() < self.deadline, f"{self.folder}: not done within {PATIENCE_SECONDS} s")
            time.sleep(POLL_SECONDS)
        check(self.process.returncode == code,
              f"{self.folder}: exit code {self.process.returncode}, expected {code}:\n{self.errors()}")
        with open(self.output_path, encoding="utf-8") as file:
            summary = json.load(file)
        if code == 0:
            ledger = summary["ledger"]
            check(summary["audit"] == "Exact" and ledger["missing"] == ledger["duplicated"] == ledger["skipped"] == 0
                  and ledger["applied"] == ledger["expected"], f"{self.folder}: {summary['audit']}, {ledger}")
        return summary

    def errors(self):
        with open(self.errors_path, encoding="utf-8") as file:
            return file.read()

    def progress(self):
        return counter.read_progress(self.folder)

    def signal(self, name, number=signal.SIGKILL):
        """Sends it to one of the run's processes."""
        self.until(lambda: name in counter.read_processes(self.folder), f"{name} ran")
        pid = counter.read_processes(self.folder)[name]["pid"]
        if counter.belongs_to(self.folder, pid):
            os.kill(pid, number)

    def status(self):
        try:
            with open(os.path.join(self.folder, "status.json"), encoding="utf-8") as file:
                return json.load(file)["status"]
        except FileNotFoundError:
            return {}

    def condition(self, kind):
        """{"status": ..., "message": ...}, empty where there is none."""
        return next((one for one in self.status().get("conditions", []) if one["type"] == kind), {})

    def ledger(self):
        """What `downpour ledger` says of the run, that is under way: nothing twice, nothing skipped."""
        with open(os.path.join(self.folder, "status.json"), encoding="utf-8") as file:
            uid = json.load(file)["jobUid"]
        command = [self.job.arguments.downpour, "ledger", os.path.join(self.folder, "job.json"), "--job-uid", uid,
                   "--output", "json"]
        for name in sorted(os.listdir(os.path.join(self.folder, "addresses"))):
            if name.startswith("ps-"):
                with open(os.path.join(self.folder, "addresses", name), encoding="utf-8") as file:
                    command += ["--ps", file.readline().strip()]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        check(answer.stdout, f"{self.folder}: ledger: {answer.returncode}: {answer.stderr}")
        ledger = json.loads(answer.stdout)
        check(ledger["duplicated"] == ledger["skipped"] == 0, f"{self.folder}: {ledger}")
        return ledger


def counting_job(arguments, folder, name="counted", *, epochs=3, ps=2, workers=3, batch=30, samples=SAMPLES,
                 step=STEP_MILLISECONDS, **checkpoint):
    data = os.path.join(folder, "data")
    if not os.path.exists(data):
        os.mkdir(data)
        for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
            with open(os.path.join(data, part + "-ubyte"), "wb") as file:
                if part == "train-labels-idx1":  # the ledger is counted against it
                    file.write(struct.pack(">II", 0x801, samples) + bytes(samples))
    spec = {"parameterServer": {"replicas": ps}, "worker": {"replicas": workers}, "model": {"name": "MLP"},
            "dataset": {"format": "IDX", "path": data},
            "training": {"epochs": epochs, "batchSize": batch, "updatesPerShard": 5, "evaluate": False},
            "update": {"optimizer": {"learningRate": 1, "stalenessAware": False}},
            "failurePolicy": {"maxRestarts": 1000, "maxRestartsPerReplica": 1000,
                              "backoff": {"initialSeconds": 1, "maxSeconds": 1}},
            "checkpoint": {"uri": os.path.join(folder, "store"), "intervalSeconds": 1, **checkpoint}}
    environment = {"DOWNPOUR_COUNTER_SAMPLES": str(samples), STEP_VARIABLE: str(step)}
    return Job(arguments, folder, name, spec, counting=True, environment=environment)


def check_counted(summary, epochs=3):
    """Every slice has counted the job's updates, every sample its epochs: over all lives, once each."""
    tensors = counter.read_safetensors(summary["modelPath"])
    wrong = [(index, count) for index, count in enumerate(tensors.pop("samples")) if count != epochs]
    check(not wrong, f"{len(wrong)} samples were not used {epochs} times: {wrong[:10]}")
    updates = summary["ledger"]["expected"]
    for name, values in tensors.items():
        for offset in range(0, len(values), counter.SLICE_ELEMENTS):
            part = values[offset:offset + counter.SLICE_ELEMENTS]
            check(part[0] == updates and not any(part[1:]),
                  f"{name}, slice at {offset}: counted {part[0]} of {updates}")


def read(path):
    with open(path, "rb") as file:
        return file.read()


# ---- bit for bit

LAYERS = [{"type": "conv2d", "filters": 4, "kernel": 5, "stride": 2}, {"type": "batchNorm"}, {"type": "relu"},
          {"type": "flatten"}, {"type": "dense", "units": 64}, {"type": "batchNorm"}, {"type": "relu"},
          {"type": "dropout", "rate": 0.5}, {"type": "dense", "units": 10}]


def learning_job(arguments, folder, name, *, ps=1, samples=32000, seed=1, units=64, epochs=2, update=None, **checkpoint):
    layers = json.loads(json.dumps(LAYERS))
    layers[4]["units"] = units
    spec = {"parameterServer": {"replicas": ps}, "worker": {"replicas": 1}, "model": {"layers": layers},
            "dataset": {"format": "Synthetic", "synthetic": {"kind": "Images", "shape": [1, 28, 28], "classes": 10,
                                                             "samples": samples, "testSamples": 32}},
            "training": {"epochs": epochs, "batchSize": 32, "evaluate": False, "device": "CPU", "seed": seed},
            "update": {"optimizer": {"learningRate": 0.1}, **(update or {})}}
    if checkpoint:
        spec["checkpoint"] = {"intervalSeconds": 1, **checkpoint}
    return Job(arguments, folder, name, spec, counting=False)


def check_same(expected, summary):
    """The ledgers are the same, and so is every bit of the models."""
    check(summary["ledger"] == expected["ledger"], f"{summary['ledger']}, expected {expected['ledger']}")
    tensors = [counter.read_safetensors(one["modelPath"]) for one in (expected, summary)]
    check(tensors[0].keys() == tensors[1].keys(), "the models have other tensors")
    for name, values in tensors[0].items():
        differ = sum(one != other for one, other in zip(values, tensors[1][name]))
        check(differ == 0, f"{name}: {differ} of {len(values)} values differ")


def exact(arguments, folder):
    # What a step adds is rounded, so another order of the updates, or of the data shards, makes other bits.
    for name, ps, update in (
            ("sgd", 1, {}),
            ("adam", 2, {"accumulate": 3, "clipNorm": 1, "optimizer": {"type": "Adam", "learningRate": 0.001}}),
            ("synchronous", 3, {"mode": "Synchronous", "updatesPerStep": 4,
                                "optimizer": {"type": "Nesterov", "learningRate": 0.01}}),
            ("local-steps", 1, {"localSteps": 2, "localOptimizer": {"type": "SGD", "learningRate": 0.1},
                                "optimizer": {"type": "Adagrad", "learningRate": 0.001}})):
        folders = [os.path.join(folder, f"{what}-{name}") for what in ("whole", "killed")]
        for one in folders:
            os.mkdir(one)
        # As many as keep a fast machine busy for the checkpoints of two lives and what is lost behind them.
        samples = 96000
        with learning_job(arguments, folders[0], "trained", ps=ps, samples=samples, update=update).start() as run:
            whole = run.end()
        job = learning_job(arguments, folders[1], "trained", ps=ps, samples=samples, update=update,
                           uri=os.path.join(folders[1], "store"))
        for _ in range(2):
            before = job.checkpoints()
            with job.start() as run:
                run.until(lambda: set(job.checkpoints()) - set(before), "a new checkpoint")
                made = run.progress()
                run.until(lambda: run.progress() > made, "updates that are lost")
                run.kill()
            print(f"{name}: killed at {run.progress():.0%}", flush=True)
        newest = job.checkpoints()[-1]
        with job.start() as run:
            summary = run.end()
        check(summary["resumedFrom"] == newest, f"resumed from {summary['resumedFrom']}, expected {newest}")
        check_same(whole, summary)
        check(read(whole["modelPath"]) == read(summary["modelPath"]), f"{name}: the model files differ")
        print(f"{name}: the same model as without a break, from {newest}", flush=True)


# ---- each update once, over all lives

def lives(arguments, folder):
    job = counting_job(arguments, folder)
    # The first: a server, then the coordinator, then everything.
    with job.start() as run:
        run.until(lambda: job.checkpoints(), "a checkpoint")
        run.signal("ps-1")
        run.until(lambda: run.condition("ParametersLost").get("reason") == "RolledBack", "it went back")
        print(f"life 1: {run.condition('ParametersLost')['message']}", flush=True)
        before = job.checkpoints()
        run.signal("coordinator-0")
        run.until(lambda: set(job.checkpoints()) - set(before), "a checkpoint of the next coordinator")
        print(f"life 1: killed at {run.progress():.0%}, {run.ledger()}", flush=True)
    # The second: other numbers and another batch size; server and coordinator at once.
    newest = job.checkpoints()[-1]
    with job.start(parameterServer__replicas=3, worker__replicas=2, training__batchSize=40) as run:
        run.until(lambda: run.condition("Resumed").get("status") == "True", "it resumed")
        check(newest in run.condition("Resumed")["message"], f"{run.condition('Resumed')}, expected {newest}")
        run.until(lambda: set(job.checkpoints()) - set(before) - {newest}, "a checkpoint")
        run.signal("ps-2")
        run.signal("coordinator-0")
        run.signal("worker-0")
        run.until(lambda: run.condition("ParametersLost").get("reason") == "RolledBack", "it went back")
        print(f"life 2: {run.condition('ParametersLost')['message']}", flush=True)
        before = job.checkpoints()
        run.until(lambda: set(job.checkpoints()) - set(before), "a checkpoint after that")
        print(f"life 2: killed at {run.progress():.0%}, {run.ledger()}", flush=True)
    # The last: to the end. Batches only grow: an update that was begun with larger ones is done in parts, of which the
    # model counts less than one each.
    with job.start(parameterServer__replicas=1, worker__replicas=4, training__batchSize=50) as run:
        summary = run.end()
    print(f"life 3: from {summary['resumedFrom']}: {summary['ledger']}", flush=True)
    check(summary["resumedFrom"], "it began anew")
    check_counted(summary)


# ---- damage

def newest_damaged(job, damage):
    """Damages the newest checkpoint in one way and the one before in another; the one that is whole."""
    checkpoints = job.checkpoints()
    check(len(checkpoints) >= 3, f"{len(checkpoints)} checkpoints, three expected")
    for checkpoint, one in zip(reversed(checkpoints), damage):
        one(checkpoint)
    return checkpoints[-1 - len(damage)]


def truncated(file):
    def apply(checkpoint):
        path = os.path.join(checkpoint, file)
        os.truncate(path, os.path.getsize(path) - 1)
    return apply


def flipped(file):
    def apply(checkpoint):
        path = os.path.join(checkpoint, file)
        with open(path, "r+b") as opened:
            opened.seek(os.path.getsize(path) * 2 // 3)
            byte = opened.read(1)[0]
            opened.seek(-1, os.SEEK_CUR)
            opened.write(bytes([byte ^ 0x10]))
    return apply


def missing(file):
    return lambda checkpoint: os.remove(os.path.join(checkpoint, file))


def damage(arguments, folder):
    job = counting_job(arguments, folder, epochs=1, workers=1, samples=3000)
    with job.start() as run:
        run.until(lambda: len(job.checkpoints()) >= 3, "three checkpoints")
    shutil.move(job.store, job.store + "-kept")
    job.environment[STEP_VARIABLE] = "0"  # nothing is waited for any more
    cases = [  # how the newest is damaged, and the one before; what is said of each
        ([truncated("ps-0.safetensors"), flipped("ps-1.state")], ["ps-0.safetensors has ", "ps-1.state: "]),
        ([flipped("ps-0.safetensors"), flipped("ps-0.state")], ["ps-0.safetensors: slice ", "ps-0.state: "]),
        ([truncated("MANIFEST"), flipped("ps-1.safetensors")], ["MANIFEST", "ps-1.safetensors: slice "]),
        # A cut that was open when its job ended looks like the first, and nobody counts on it.
        ([missing("MANIFEST"), flipped("MANIFEST")], ["MANIFEST"]),
        ([missing("ps-1.safetensors"), truncated("ps-1.state")], ["ps-1.safetensors is missing", "ps-1.state has "]),
    ]
    for damages, reasons in cases:
        shutil.rmtree(job.store, ignore_errors=True)
        shutil.copytree(job.store + "-kept", job.store)
        whole = newest_damaged(job, damages)
        leftover = os.path.join(whole, ".ps-0.state.tmp-0123456789abcdef")
        with open(leftover, "wb") as file:
            file.write(b"left over")
        with job.start() as run:
            summary = run.end()
        message = run.condition("Resumed").get("message", "")
        print(f"{summary['totalSeconds']:.1f} s: {message}", flush=True)
        check(summary["resumedFrom"] == whole, f"resumed from {summary['resumedFrom']}, expected {whole}")
        for reason in reasons:
            check(reason in message, f"\"{message}\" does not say \"{reason}\"")
        check(summary["lostUpdates"] == 0, f"{summary['lostUpdates']} updates were lost")
        check_counted(summary, epochs=1)


# ---- which checkpoint, and which jobs

def sources(arguments, folder):
    store = os.path.join(folder, "store")
    first = learning_job(arguments, folder, "first", uri=store)
    with first.start() as run:
        run.until(lambda: first.checkpoints(), "a checkpoint")
    newest = first.checkpoints()[-1]

    def refused(name, reason, **arguments_of_job):
        job = learning_job(arguments, folder, name, **{"uri": store, "resumeFrom": {"uri": newest}, **arguments_of_job})
        with job.start() as run:
            summary = run.end(code=1)
        print(f"{name}: {summary['message']}", flush=True)
        check(reason in summary["message"], f"{name}: \"{summary['message']}\" does not say \"{reason}\"")
        check(summary["phase"] == "Failed" and run.progress() == 0, f"{name}: {summary['phase']} at {run.progress()}")
        check(not job.checkpoints(), f"{name}: {job.checkpoints()}")

    refused("wider", "dense1.weight [64, 576], expected the parameter dense1.weight [65, 576]", units=65)
    refused("seed", "spec.training.seed 1, the job has 2", seed=2)
    refused("samples", "32000 training samples, there are 64000", samples=64000)
    refused("nowhere", "no usable checkpoint in", resumeFrom={"trainingJob": "nobody"})

    for name, source, expected in [("by-uri", {"uri": newest}, newest),
                                   ("by-folder", {"uri": os.path.dirname(newest)}, newest),
                                   ("by-job", {"trainingJob": "first"}, newest), ("first", "Never", "")]:
        job = learning_job(arguments, folder, name, uri=store, resumeFrom=source)
        job.runs = first.runs
        with job.start() as run:
            summary = run.end()
        print(f"{name}: from \"{summary['resumedFrom']}\": {summary['ledger']}", flush=True)
        check(summary["resumedFrom"] == expected,
              f"{name}: resumed from \"{summary['resumedFrom']}\", expected \"{expected}\"")


# ---- a disk without room

def full_disk(arguments, folder):
    if OWN_MOUNTS not in os.environ:
        for options in (["-m"], ["-rm"]):
            probe = ["unshare", *options, "mount", "-t", "tmpfs", "none", folder]
            if subprocess.run(probe, check=False, stderr=subprocess.DEVNULL).returncode == 0:
                os.rmdir(folder)
                os.execvpe("unshare", ["unshare", *options, sys.executable, *sys.argv], {**os.environ, OWN_MOUNTS: "1"})
        raise Skip("this user may not mount a tmpfs")
    store = os.path.join(folder, "store")
    os.mkdir(store)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", store], check=True)
    job = counting_job(arguments, folder, epochs=3, keep=1)
    filler = os.path.join(store, "filler")
    with job.start() as run:
        run.until(lambda: job.checkpoints(), "a checkpoint")
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(MEBIBYTE))
            except OSError:
                pass
        run.until(lambda: run.condition("CheckpointFailing").get("status") == "True", "a checkpoint failed")
        print(run.condition("CheckpointFailing")["message"], flush=True)
        check("No space left on device" in run.condition("CheckpointFailing")["message"], "the reason is not said")
        why = subprocess.run([arguments.downpour, "why", run.folder], capture_output=True, text=True, check=False,
                             timeout=PATIENCE_SECONDS).stdout
        check("No space left on device" in " ".join(why.split()), f"downpour why:\n{why}")
        old = job.checkpoints()
        at = run.progress()
        run.until(lambda: run.progress() > at, "training went on")
        verified = subprocess.run([arguments.downpour, "checkpoints", "verify", old[-1]], capture_output=True,
                                  text=True, check=False, timeout=PATIENCE_SECONDS)
        check(verified.returncode == 0, f"{old[-1]}: {verified.stdout}{verified.stderr}")
        os.remove(filler)
        run.until(lambda: run.condition("CheckpointFailing").get("status") == "False", "a checkpoint was made again")
        check(job.checkpoints() != old, "there is no new checkpoint")
        summary = run.end()
    check(summary["generation"] == 1 and summary["restarts"] == 0, f"{summary}")
    left = [name for _, _, names in os.walk(store) for name in names if name.startswith(".")]
    check(not left, f"left over: {left}")
    check_counted(summary)


# ---- S3

class S3Server:
    def __init__(self, folder):
        cache = os.environ.get("DOWNPOUR_E2E_CACHE", os.path.expanduser("~/.cache/downpour-e2e/bin"))
        self.program = os.path.join(cache, "versitygw")
        if not os.access(self.program, os.X_OK):
            raise Skip(f"{self.program} is not there: e2e/cluster/build.sh versitygw builds it")
        self.folder = folder
        for name in ("data/bucket", "metadata", "users"):
            os.makedirs(os.path.join(folder, name))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.process = None

    def start(self):
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(
                [self.program, "--port", self.address, "--keep-alive", "--iam-dir", os.path.join(self.folder, "users"),
                 "posix", "--sidecar", os.path.join(self.folder, "metadata"), os.path.join(self.folder, "data")],
                stdout=log, stderr=log, env={"ROOT_ACCESS_KEY": "the-key", "ROOT_SECRET_KEY": "a-secret-of-the-test"})

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def checkpoints(self, name):
        folder = os.path.join(self.folder, "data", "bucket", "some", name)
        if not os.path.exists(folder):
            return []
        return sorted(one for one in os.listdir(folder) if os.path.exists(os.path.join(folder, one, "MANIFEST")))


def s3(arguments, folder):
    server = S3Server(os.path.join(folder, "s3"))
    server.start()
    try:
        job = counting_job(arguments, folder, uri="s3://bucket/some")
        job.environment.update(AWS_ENDPOINT_URL=f"http://{server.address}", AWS_ACCESS_KEY_ID="the-key",
                               AWS_SECRET_ACCESS_KEY="a-secret-of-the-test", AWS_REGION="us-east-1")
        with job.start() as run:
            run.until(lambda: server.checkpoints(job.name), "a checkpoint")
            server.kill()
            at = run.progress()
            run.until(lambda: run.progress() > at + 0.1, "training went on without the server")
            before = server.checkpoints(job.name)
            server.start()
            run.until(lambda: set(server.checkpoints(job.name)) - set(before), "a checkpoint once the server is back")
            run.kill()
        print(f"killed at {run.progress():.0%}", flush=True)
        newest = server.checkpoints(job.name)[-1]
        with job.start(parameterServer__replicas=1) as run:
            summary = run.end()
        print(f"from {summary['resumedFrom']}: {summary['ledger']}", flush=True)
        check(summary["resumedFrom"] == f"s3://bucket/some/{job.name}/{newest}",
              f"from {summary['resumedFrom']}, expected {newest}")
        check_counted(summary)
    finally:
        server.kill()


SCENARIOS = {scenario.__name__: scenario for scenario in (exact, lives, damage, sources, full_disk, s3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--downpour", required=True, help="the command")
    parser.add_argument("--server", required=True, help="coordinator and parameter server")
    parser.add_argument("--worker", required=True, help="the worker")
    parser.add_argument("--counter-worker", required=True, help="the worker that counts")
    parser.add_argument("--scenario", required=True, choices=SCENARIOS)
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="downpour-checkpoint-")
    try:
        SCENARIOS[arguments.scenario](arguments, folder)
    except Skip as skip:
        print(f"skipped: {skip}")
        shutil.rmtree(folder)
        sys.exit(SKIPPED)
    except Failure as failure:
        print(f"checkpoint_processes: {failure}\nThe run is kept in {folder}.", file=sys.stderr)
        sys.exit(1)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
