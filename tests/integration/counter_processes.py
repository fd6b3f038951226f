#!/usr/bin/env python3
"""The counter test with real processes: `downpour run` with workers that count, under kills and pauses.

Every update adds one to a counter in every slice and to a counter of each of its samples. Whatever is killed or paused
meanwhile, every slice must have counted every update once and every sample every epoch once.

Only processes that the run's own status lists as running are signalled.
"""

import argparse
import array
import itertools
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

SAMPLES = 6000
BATCH_SIZE = 30
EPOCHS = 3
WORKERS = 3
UPDATES = EPOCHS * -(-SAMPLES // BATCH_SIZE)
SLICE_ELEMENTS = 1 << 20
# Of a job without parameter servers: every step of an epoch has as many updates, and every update as many samples.
RING_SAMPLES = 6144
RING_BATCH_SIZE = 32
RING_UPDATES_PER_SHARD = 8
RING_UPDATES_PER_STEP = 4
PATIENCE_SECONDS = 160
POLL_SECONDS = 0.02
STRAND_SECONDS = 0.4  # by then every worker waits for the parameter server that is paused

# What each scenario does, in an order and at moments that its seed decides, and with how many parameter servers. A kill
# ends a process for good, leaving asks a worker to end, a pause stops it for so many seconds: shorter and longer than a lease, which is 3 seconds.
# Stranding pauses a parameter server and kills a worker while it waits for it: its update is then on the other
# parameter servers only, and whoever runs it again must not apply it there twice.
SCENARIOS = {
    "workers": {"seed": 1, "ps": 2, "strand": 3, "kill": ["worker"], "leave": 2,
                "pause": [("worker", 4.5), ("worker", 0.5), ("ps", 2)]},
    "coordinator": {"seed": 2, "ps": 3, "strand": 1, "leave": 1, "kill": ["coordinator", "worker", "coordinator"],
                    "pause": [("coordinator", 4), ("ps", 1), ("worker", 4.5)]},
    # The mode changes with the configuration that a coordinator is started with. With one update a step the mean of a
    # step is its sum, so that all are counted.
    "modes": {"seed": 4, "ps": 2, "strand": 1, "leave": 1, "kill": ["worker"], "pause": [("worker", 0.5), ("ps", 0.5)],
              "modes": [{"mode": "BOUNDED_STALENESS", "staleness": 1}, {"mode": "SYNCHRONOUS", "updatesPerStep": 1},
                        {"mode": "ASYNC"}, {"mode": "SYNCHRONOUS", "updatesPerStep": 1}]},
    # Gradients go the way of a GPU's. What is counted loses nothing in bfloat16, so nothing of it is ever left over. With
    # this seed nobody is killed on the way out.
    "kernels": {"seed": 8, "ps": 2, "strand": 1, "kill": ["worker"], "leave": 2,
                "pause": [("worker", 4.5), ("ps", 1)], "codec": "bf16", "environment": {"DOWNPOUR_COUNTER_KERNELS": "host"}},
    # The parameters that it held are lost: the job begins again under another generation.
    "ps": {"seed": 3, "ps": 2, "strand": 0, "leave": 1, "kill": ["ps", "worker", "coordinator"], "pause": [("worker", 1), ("ps", 0.5)]},
}


class Failure(Exception):
    pass


def read_status(folder):
    """What the run says of itself; empty: nothing yet."""
    try:
        with open(os.path.join(folder, "status.json"), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def alive(status):
    """Those that run, by name."""
    return {process["name"]: process for process in status.get("processes", []) if process.get("finishTime") is None}


def slices_of(status):
    """How the slices are held; empty: nobody knows yet."""
    return status.get("status", {}).get("slices", {})


def is_protected(status):
    """Every slice has a standby."""
    slices = slices_of(status)
    return slices.get("total", 0) > 0 and slices.get("inSync", 0) == slices["total"]


def read_processes(folder):
    """The run's processes that are alive, by name."""
    return alive(read_status(folder))


def whole_lines(lines):
    """Of a file that somebody writes to: up to the line whose end is not there yet. What comes behind it is its rest."""
    return itertools.takewhile(lambda line: line.endswith("\n"), lines)


def read_progress(folder):
    """The newest progress, as a share of all updates."""
    share = 0.0
    try:
        with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as lines:
            for line in whole_lines(lines):
                record = json.loads(line)
                if record["type"] == "progress":
                    share = record["updates"] / record["updatesExpected"]
    except FileNotFoundError:
        pass
    return share


def read_mode(folder):
    """The mode that the run's status says is in force, in capitals."""
    with open(os.path.join(folder, "status.json"), encoding="utf-8") as file:
        return json.load(file)["status"].get("update", {}).get("mode", "").upper()


def write_mode(folder, mode):
    """Has the processes that are started from now on begin in it."""
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    for name in ("mode", "staleness", "updatesPerStep"):
        config.pop(name, None)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump({**config, **mode}, file)
    os.rename(path + ".new", path)


def belongs_to(folder, pid):
    """True if the process was started for this run: its number may have been given to another one since."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return os.path.join(folder, "config.json").encode() in file.read()
    except (FileNotFoundError, ProcessLookupError):
        return False


def go_on(folder, pid):
    """Ends a pause."""
    if belongs_to(folder, pid):
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


class Faults:
    """A schedule that is a function of the seed, and what it has paused."""

    def __init__(self, folder, scenario):
        self.folder = folder
        chance = random.Random(scenario["seed"])
        replicas = {"coordinator": 1, "ps": scenario["ps"], "worker": WORKERS}
        faults = [[("kill", role, 0)] for role in scenario["kill"]]
        faults += [[("leave", "worker", 0)]] * scenario["leave"]
        faults += [[("pause", role, seconds)] for role, seconds in scenario["pause"]]
        faults += [[("pause", "ps", 1.5), ("kill", "worker", 0)]] * scenario["strand"]
        chance.shuffle(faults)
        modes = scenario.get("modes", [])  # these in their order, each among the faults
        for number, mode in enumerate(modes):
            faults.insert((len(faults) - number) * (number + 1) // (len(modes) + 1) + number,
                          [("mode", "coordinator", mode)])
        shares = sorted(chance.uniform(0.05, 0.75) for _ in faults)
        self.pending = []  # (share of the updates, seconds since the fault before, kind, name, length)
        for share, steps in zip(shares, faults):
            for number, (kind, role, seconds) in enumerate(steps):
                name = f"{role}-{chance.randrange(replicas[role])}"
                self.pending.append((share, STRAND_SECONDS if number else 0, kind, name, seconds))
        self.newest = 0.0
        self.paused = []  # (until, pid, name)
        self.kills = 0
        self.awaited = None  # the mode that the parameter servers are to take up before anything else happens

    def step(self):
        now = time.monotonic()
        self.resume([entry for entry in self.paused if entry[0] <= now])
        if self.awaited is not None and self.awaited != read_mode(self.folder):
            return
        self.awaited = None
        if not self.pending:
            return
        share, wait, kind, name, seconds = self.pending[0]
        if now < self.newest + wait or read_progress(self.folder) < share:
            return
        processes = read_processes(self.folder)
        paused = [pid for _, pid, _ in self.paused]
        awake = sorted(other for other in processes
                       if other.split("-")[0] == name.split("-")[0] and processes[other]["pid"] not in paused)
        if kind == "leave":
            awake = [other for other in awake if self.has_begun(other)]
        if not awake:
            return  # another poll will find one
        if name not in awake:
            name = awake[0]  # the one that was meant is being replaced or paused
        process = processes[name]
        pid = process["pid"]
        if not belongs_to(self.folder, pid):
            return
        if kind == "mode":
            write_mode(self.folder, seconds)
            self.awaited = seconds["mode"].replace("_", "")
        try:
            os.kill(pid, {"leave": signal.SIGTERM, "pause": signal.SIGSTOP}.get(kind, signal.SIGKILL))
        except ProcessLookupError:
            return
        self.pending.pop(0)
        self.newest = now
        if kind in ("kill", "mode"):
            self.kills += 1
            print(f"kill   {name} ({pid})" + (f": {seconds}" if kind == "mode" else ""), flush=True)
        elif kind == "leave":
            print(f"leave  {name} ({pid})", flush=True)
        else:
            self.paused.append((now + seconds, pid, name))
            print(f"pause  {name} ({pid}) for {seconds} s", flush=True)

    def has_begun(self, name):
        """True if the newest start of a worker is past the point from which on it leaves when asked."""
        with open(os.path.join(self.folder, "logs", name + ".log"), encoding="utf-8") as file:
            return "starts as incarnation" in file.read().split("==== ")[-1]

    def resume(self, entries):
        for entry in entries:
            self.paused.remove(entry)
            go_on(self.folder, entry[1])

    def resume_all(self):
        self.resume(list(self.paused))


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = array.array("f")
        values.frombytes(data[8 + length + begin:8 + length + end])
        if sys.byteorder == "big":
            values.byteswap()
        tensors[name] = values
    return tensors


def check(condition, message):
    if not condition:
        raise Failure(message)


def check_counts(path, updates):
    tensors = read_safetensors(path)
    check(set(tensors) == {"samples", "large", "small", "scalar", "odd"}, f"tensors: {sorted(tensors)}")
    check(len(tensors["large"]) > 2 * SLICE_ELEMENTS, "the large tensor has less than three slices")
    check(len(tensors["samples"]) == SAMPLES, f"{len(tensors['samples'])} samples")
    samples = tensors.pop("samples")
    wrong = [(index, count) for index, count in enumerate(samples) if count != EPOCHS]
    check(not wrong, f"{len(wrong)} samples were not used {EPOCHS} times: {wrong[:10]}")
    for name, values in tensors.items():
        for offset in range(0, len(values), SLICE_ELEMENTS):
            part = values[offset:offset + SLICE_ELEMENTS]
            check(part[0] == updates, f"{name}, slice at {offset}: counted {part[0]} of {updates} updates")
            check(not any(part[1:]), f"{name}, slice at {offset}: a value that no gradient touches has changed")


def check_left(folder):
    """Whoever was asked to leave finished what it did."""
    left = 0
    for index in range(WORKERS):
        with open(os.path.join(folder, f"worker-{index}.log"), encoding="utf-8") as file:
            for log in file.read().split("==== ")[1:]:
                if "asked to leave" in log:
                    left += 1
                    check(log.rstrip().endswith(" done"), f"a worker that was asked to leave did not finish:\n{log}")
    check(left > 0, "no worker left")


def prepare(arguments, scenario, folder):
    """Programs, a data set to be found, and the manifest."""
    programs = os.path.join(folder, "bin")
    data = os.path.join(folder, "data")
    os.mkdir(programs)
    os.mkdir(data)
    os.symlink(os.path.abspath(arguments.server), os.path.join(programs, "downpour-server"))
    os.symlink(os.path.abspath(arguments.worker), os.path.join(programs, "downpour-worker"))
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        with open(os.path.join(data, name + "-ubyte"), "wb") as file:
            if name == "train-labels-idx1":  # the ledger is counted against it
                file.write(struct.pack(">II", 0x801, SAMPLES) + bytes(SAMPLES))
    manifest = {
        "apiVersion": "training.downpour.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "counter"},
        "spec": {
            "parameterServer": {"replicas": scenario["ps"],
                                "replicationFactor": scenario.get("replication_factor", 1)},
            "worker": {"replicas": WORKERS},
            "model": {"name": "MLP"},
            "dataset": {"format": "IDX", "path": data},
            "training": {"epochs": EPOCHS, "batchSize": BATCH_SIZE, "updatesPerShard": 5, "evaluate": False,
                         "seed": scenario["seed"]},
            "update": {"optimizer": {"learningRate": 1, "stalenessAware": False}},
            "failurePolicy": {"maxRestarts": 1000, "maxRestartsPerReplica": 1000,
                              "backoff": {"initialSeconds": 1, "maxSeconds": 1}},
        },
    }
    if scenario.get("codec"):
        manifest["spec"]["update"]["codec"] = scenario["codec"]
    if scenario.get("all_reduce"):
        # The mean of a step's updates, times as many: all are counted. Powers of two, so that it is exact.
        spec = manifest["spec"]
        spec["strategy"] = "AllReduce"
        del spec["parameterServer"]
        spec["training"]["updatesPerShard"] = RING_UPDATES_PER_SHARD
        spec["update"] = {"updatesPerStep": RING_UPDATES_PER_STEP, "optimizer": {"learningRate": RING_UPDATES_PER_STEP}}
        if scenario.get("state_copies"):
            spec["elastic"] = {"minReplicas": 1, "maxReplicas": WORKERS, "stateCopies": scenario["state_copies"]}
    path = os.path.join(folder, "job.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(manifest, file)
    return path, programs


def supervise(arguments, manifest, programs, folder, step, *, patience=PATIENCE_SECONDS, environment=None, last=None, options=()):
    """Runs the job in folder/run; its summary, once it ended well with an exact ledger. `step` is called again and again
    while it runs, and `last` when it has ended or is given up, before its processes are killed. `options` are of `downpour run`."""
    run_folder = os.path.join(folder, "run")
    environment = dict(os.environ, DOWNPOUR_BINARY_DIR=programs, DOWNPOUR_COUNTER_SAMPLES=str(SAMPLES), **(environment or {}))
    deadline = time.monotonic() + patience
    output_path = os.path.join(folder, "summary")
    with open(output_path, "wb") as output:
        process = subprocess.Popen([arguments.downpour, "run", manifest, "--run-dir", run_folder, "--output", "json", *options],
                                   stdout=output, env=environment)
        try:
            while process.poll() is None:
                check(time.monotonic() < deadline,
                      f"not done within {patience} s, at {read_progress(run_folder):.0%}")
                step()
                time.sleep(POLL_SECONDS)
        finally:
            if last is not None:
                last()
            if process.poll() is None:
                process.kill()  # the kernel ends its processes with it
            process.wait()
    check(process.returncode == 0, f"downpour run ended with {process.returncode}")
    with open(output_path, encoding="utf-8") as file:
        summary = json.load(file)
    print(json.dumps(summary), flush=True)
    exact = {"expected": UPDATES, "applied": UPDATES, "missing": 0, "duplicated": 0, "skipped": 0}
    check(summary["ledger"] == exact, f"ledger: {summary['ledger']}")
    return summary


def run_protected(arguments, scenario, folder, updates, step, *, least_epochs=1, **options):
    """A job of so many updates, a few more maybe, of which nothing may be rolled back; afterwards each was counted once on
    every slice. `options` are those of supervise."""
    global SAMPLES, BATCH_SIZE, EPOCHS, UPDATES
    if scenario.get("all_reduce"):
        SAMPLES, BATCH_SIZE = RING_SAMPLES, RING_BATCH_SIZE
    an_epoch = -(-SAMPLES // BATCH_SIZE)
    EPOCHS = max(least_epochs, -(-updates // an_epoch))
    UPDATES = EPOCHS * an_epoch
    manifest, programs = prepare(arguments, scenario, folder)
    summary = supervise(arguments, manifest, programs, folder, step, **options)
    check(summary["generation"] == 1, f"generation {summary['generation']}: something was rolled back")
    check_counts(summary["modelPath"], UPDATES)


def metrics_address(folder, name):
    """Where the run's process of that name tells its metrics."""
    with open(os.path.join(folder, "metrics", name), encoding="utf-8") as file:
        return file.readline().strip()


def metric(address, name, seconds=10):
    """The value of the series `name`, labels included; 0 where there is none yet."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=seconds) as answer:
        lines = answer.read().decode().splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith(name + " ")), 0.0)


def check_shared_memory(logs):
    """Every worker reached a parameter server that way."""
    for index in range(WORKERS):
        with open(os.path.join(logs, f"worker-{index}.log"), encoding="utf-8") as file:
            check("data go through shared memory" in file.read(), f"worker-{index} used the network alone")


def check_kernels(logs):
    for index in range(WORKERS):
        with open(os.path.join(logs, f"worker-{index}.log"), encoding="utf-8") as file:
            check("gradients are encoded where they are computed" in file.read(), f"worker-{index} encoded on the host")


def run(arguments, folder):
    scenario = SCENARIOS[arguments.scenario]
    manifest, programs = prepare(arguments, scenario, folder)
    run_folder = os.path.join(folder, "run")
    faults = Faults(run_folder, scenario)
    summary = supervise(arguments, manifest, programs, folder, faults.step, last=faults.resume_all, environment=scenario.get("environment"))
    check(not faults.pending, f"it ended before these faults: {faults.pending}")
    check_left(os.path.join(run_folder, "logs"))
    check_shared_memory(os.path.join(run_folder, "logs"))
    if arguments.scenario == "kernels":
        check_kernels(os.path.join(run_folder, "logs"))
        check(summary["pushBytesSaved"] > 0, "nothing was encoded")
    check(summary["restarts"] >= faults.kills, f"{summary['restarts']} restarts after {faults.kills} kills")
    lost = "ps" in scenario["kill"]
    check((summary["generation"] > 1) == lost, f"generation {summary['generation']}")
    check_counts(summary["modelPath"], UPDATES)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--downpour", required=True, help="the command")
    parser.add_argument("--server", required=True, help="coordinator and parameter server")
    parser.add_argument("--worker", required=True, help="the worker that counts")
    parser.add_argument("--scenario", required=True, choices=SCENARIOS)
    parser.add_argument("--seed", type=int, help="another schedule than the scenario's own")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        SCENARIOS[arguments.scenario]["seed"] = arguments.seed
    folder = tempfile.mkdtemp(prefix="downpour-counter-")
    try:
        run(arguments, folder)
    except Failure as failure:
        print(f"counter_processes: {failure}\nThe run is kept in {folder}.", file=sys.stderr)
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
