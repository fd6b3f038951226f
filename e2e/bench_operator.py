#!/usr/bin/env python3
"""The benchmark of the operator: a real API server, etcd, controller-manager and scheduler, and KWOK nodes that claim to
run their pods. Everything is on this machine and shares its cores. Prints a table and writes a JSON list of {name, ours,
reference, ratio, unit, target, holds, runs, spread}, as tests/bench/run.py does.

Time to all running: 250 jobs of 1 coordinator, 2 ps and 8 workers that the operator carries out, against the very same
pods made by a plain client of 16 threads. Rounds of both take turns, and one of the operator is compared with the mean of
the platform's right before and right after it: the machine becomes slower and faster within minutes. Writes are counted in
the API server's own audit log, which is kept for both. The coordinators of the jobs that run are stand-ins that answer, at
the addresses of their pods. The jobs are spread over 25 namespaces: the controller-manager goes through all services and
pods of one for each change.

The speed of a virtual core changes by a third from one minute to the next. The scheduler and KWOK do the same for the same
pods, whoever makes them: the row "at equal speed" divides by the CPU that these two took. Where perf (Debian's linux-perf)
can count them, another row has the instructions that all programs and the kernel executed until all ran: they hardly vary.

Usage: bench_operator.py --bin BINARIES --output FILE [--jobs N] [--rounds N] [--large WORKERS]
"""

import argparse
import itertools
import json
import math
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time
import typing

from driver.bare import BareDriver
from driver.base import ROOT, ClusterError, run, wait_for
from driver.layout import CONTROL_PLANE
from driver.machine import http_get
from driver.process import Process
from driver.samples import samples, samples_of, total

sys.path.insert(0, str(ROOT / "tests" / "bench"))
from rows import print_table, row, row_of_limit, row_of_pairs, write_rows  # noqa: E402  pylint: disable=wrong-import-position

PARAMETER_SERVERS, WORKERS = 2, 8
PODS_OF_A_JOB = 1 + PARAMETER_SERVERS + WORKERS
NAMESPACES, SYSTEM = 25, "downpour-system"
USER = f"system:serviceaccount:{SYSTEM}:downpour-operator"
# The pods' addresses, all of them this machine's own while the benchmark runs.
POD_ADDRESSES = "10.249.0.0/16"
METRICS = "127.0.0.1:19180"
METRICS_URL = f"http://{METRICS}/metrics"
REST_SECONDS = 120  # longer than from one write of a job's progress to the next
# The plain client's writes are logged too: the log costs the API server something.
AUDIT_POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
                "rules": [{"level": "Metadata", "users": [USER, "admin"],
                           "verbs": ["create", "update", "patch", "delete", "deletecollection"]}, {"level": "None"}]}


class Instructions:
    """How many the whole machine executes, as perf counts them; None where it cannot."""

    def __enter__(self):
        self.count, self.process = None, None
        if shutil.which("perf"):
            self.process = subprocess.Popen(["perf", "stat", "-a", "-x,", "-e", "instructions"],
                                            stderr=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.send_signal(signal.SIGINT)
            _, told = self.process.communicate(timeout=30)
            # "<not supported>" where a virtual machine has no counters.
            counted = [int(fields[0]) for fields in (line.split(",") for line in told.splitlines())
                       if len(fields) > 2 and fields[2] == "instructions" and fields[0].isdigit()]
            self.count = counted[0] if counted else None


class Start(typing.NamedTuple):
    """Of all jobs: seconds until all run; seconds of CPU that the scheduler and KWOK took, which have the same to do for the
    same pods; the machine's instructions; watchers of pods that were cut off."""
    seconds: float
    same_work: float
    instructions: int | None
    cut_off: int


def compare(name, ours, reference, unit, most=None):
    """A row of rounds, each of ours paired with the mean of the two of the reference that it lies between."""
    return row_of_pairs(name, ours, [statistics.mean(around) for around in itertools.pairwise(reference)], unit, most=most)


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, math.ceil(share * len(values)) - 1)]


class Bench:
    def __init__(self, options):
        self.options = options
        self.state = ROOT / "build" / "bench-operator"
        self.state.mkdir(parents=True, exist_ok=True)
        self.audit_log = self.state / "audit.log"
        policy = self.state / "audit-policy.json"
        policy.write_text(json.dumps(AUDIT_POLICY))
        self.driver = BareDriver(self.state / "cluster", extra=[
            f"kube-apiserver=--audit-policy-file={policy}", f"kube-apiserver=--audit-log-path={self.audit_log}",
            "kube-apiserver=--audit-log-maxsize=100000",  # MB: one file
            # Fake nodes have no heartbeats. Once they are given up their pods are written to, eleven thousand of them.
            "kube-controller-manager=--node-monitor-grace-period=24h",
            "etcd=--quota-backend-bytes=8589934592", f"kwok=--cidr={POD_ADDRESSES}"])
        self.rows = []
        self.processes = []
        self.round = 0

    # The parts.

    def __enter__(self):
        self.driver.down()  # what an interrupted run may have left
        self.audit_log.unlink(missing_ok=True)
        run(["ip", "route", "replace", "local", POD_ADDRESSES, "dev", "lo"])
        self.driver.up(0)
        self.driver.fake_nodes(self.options.nodes, False)
        self.driver.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crd.yaml"))
        # The operator's own permissions, but not the pods that run it.
        objects = json.loads("[" + self.driver.kubectl(
            "create", "--dry-run=client", "-o", "json", "-f", str(ROOT / "deploy" / "operator.yaml")).replace(
                "}\n{", "},\n{") + "]")
        kept = [one for one in objects if one["kind"] not in ("Deployment", "PodDisruptionBudget", "NetworkPolicy")]
        self.driver.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": kept}))
        token = self.driver.kubectl("-n", SYSTEM, "create", "token", "downpour-operator", "--duration=4h").strip()
        config = json.loads(self.driver.kubectl("config", "view", "--raw", "-o", "json"))
        config["users"][0]["user"] = {"token": token}
        self.kubeconfig = self.state / "operator.kubeconfig"
        self.kubeconfig.write_text(json.dumps(config))
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.stop(10)
        self.driver.down()
        run(["ip", "route", "del", "local", POD_ADDRESSES, "dev", "lo"], check=False)

    def start(self, name, *argv):
        process = Process(name, self.state / "pids", self.state / "logs")
        process.start([pathlib.Path(self.options.bin) / argv[0], *argv[1:]])
        self.processes.append(process)
        return process

    def start_operator(self):
        process = self.start(
            "operator", "downpour-operator", f"--kubeconfig={self.kubeconfig}", "--server-image=downpour.dev/server:bench",
            "--trainer-image=downpour.dev/trainer:bench", "--leader-elect", f"--lease-namespace={SYSTEM}",
            f"--metrics-listen={METRICS}", "--health-listen=127.0.0.1:19181", "--requests-per-second=2000",
            "--burst=4000")
        wait_for("the operator to be ready", lambda: process.must_run() or http_get("http://127.0.0.1:19181/readyz", None)[1], 60)
        return process

    def start_stand_in(self, workers):
        return self.start("stand-in", "stand_in_coordinator", "--listen=0.0.0.0:7070",
                          f"--parameter-servers={PARAMETER_SERVERS}", f"--workers={workers}")

    def cpu(self):
        """Seconds of CPU by program."""
        programs = {name: self.driver.layout.process(name) for name in (*CONTROL_PLANE, "kwok")}
        programs.update({process.name: process for process in self.processes})
        return {name: cpu_seconds(process.pid()) for name, process in programs.items() if process.pid()}

    def step(self, name, *more, jobs=None, workers=WORKERS):
        """What operator_bench printed, and with it the seconds of CPU of each program meanwhile."""
        before = self.cpu()
        done = subprocess.run(
            [pathlib.Path(self.options.bin) / "operator_bench", name, f"--kubeconfig={self.driver.kubeconfig}",
             f"--namespace=bench-{self.round}", f"--namespaces={NAMESPACES}", f"--jobs={jobs or self.options.jobs}", f"--workers={workers}",
             f"--parameter-servers={PARAMETER_SERVERS}", *more],
            stdout=subprocess.PIPE, text=True, timeout=1000, check=False)
        if done.returncode != 0:
            raise ClusterError(f"operator_bench {name} failed")
        used = {key: value - before[key] for key, value in self.cpu().items()}
        told = {key: round(value, 1) for key, value in used.items()}
        say(f"{name}: {done.stdout.strip()[:200]}; CPU seconds {told}")
        return {**json.loads(done.stdout), "cpu": used}

    def namespaces(self):
        return [f"bench-{self.round}-{number}" for number in range(NAMESPACES)]

    def new_namespaces(self):
        """With new names: for half a minute after one was deleted, the API server asks again for each write to that name.
        As in most shared clusters each has a LimitRange and a ResourceQuota, neither of them for pods."""
        self.round += 1
        objects = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in self.namespaces()]
        for name in self.namespaces():
            objects.append({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "limits", "namespace": name},
                            "spec": {"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": "1Ti"}}]}})
            objects.append({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota", "namespace": name},
                            "spec": {"hard": {"requests.storage": "100Ti"}}})
        self.driver.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def new_fakes(self):
        """KWOK anew. How far a watcher may fall behind is settled when it begins, by how much has changed lately: one
        that began in a new cluster is cut off in a rush, lists all pods, falls behind again, and costs half a round."""
        self.driver.stop("kwok", 10)
        self.driver.start("kwok")

    def cut_off(self):
        """Watchers of pods that the API server cut off until now, as they had fallen behind."""
        return total(samples_of(self.driver.kubectl("get", "--raw", "/metrics"), "apiserver_terminated_watchers_total"),
                     {"resource": "pods"})

    def clear(self):
        """Removes the namespaces and waits for it. Their pods are ended at once: they do not run anyway."""
        for name in self.namespaces():
            self.driver.kubectl("-n", name, "delete", "trainingjobs,pods", "--all", "--grace-period=0", "--force",
                                "--wait=false", seconds=300, check=False)
        self.driver.kubectl("delete", "namespace", *self.namespaces(), "--wait=true", "--timeout=600s", seconds=620)

    def writes(self, since):
        """The operator's writes after a position in the audit log, by what they are."""
        counts = {}
        with open(self.audit_log, encoding="utf-8") as lines:
            lines.seek(since)
            for line in lines:
                entry = json.loads(line)
                what = entry["objectRef"]
                if entry["user"]["username"] != USER or what["resource"] == "leases":
                    continue
                key = f"{entry['verb']} {what['resource']}{'/' + what['subresource'] if 'subresource' in what else ''}"
                counts[key] = counts.get(key, 0) + 1
        return counts

    @staticmethod
    def progress_writes():
        """Of statuses that say nothing new but progress, which are written by the clock."""
        return metric("downpour_status_writes_total", news="progress")

    def audit_position(self):
        return self.audit_log.stat().st_size

    # What is measured.

    def measure(self):
        jobs, ours, reference = self.options.jobs, [], []
        # Of a new cluster the API server remembers few changes, and cuts watchers off soon: see new_fakes.
        self.run_platform()
        reference.append(self.run_platform())
        for _ in range(self.options.rounds):
            ours.append(self.run_operator(with_life=False))
            reference.append(self.run_platform())
        self.run_operator(with_life=True)  # by itself: what follows would find a control plane that has done more
        name = f"{jobs}-jobs-all-running"
        rows = [compare(name, [one.seconds for one in ours], [one.seconds for one in reference], "s", 1.35),
                compare(f"{name}-at-equal-speed", [one.seconds / one.same_work for one in ours],
                        [one.seconds / one.same_work for one in reference], "x the same work")]
        rows.append(row(f"{name}-watchers-cut-off", max(one.cut_off for one in ours), "a round",
                        max(one.cut_off for one in reference), runs=len(ours)))
        if all(one.instructions for one in ours + reference):
            rows.append(compare(f"{name}-instructions", [one.instructions / jobs / 1e6 for one in ours],
                                [one.instructions / jobs / 1e6 for one in reference], "million/job"))
        self.rows[:0] = rows

    def timed(self, step):
        """Seconds until all run, and what the machine was and did meanwhile."""
        self.new_fakes()
        before = self.cut_off()
        with Instructions() as instructions:
            done = self.step(step)
        same_work = done["cpu"]["kube-scheduler"] + done["cpu"]["kwok"]
        counted = f"{instructions.count / 1e9:.1f} billion" if instructions.count else "not counted"
        cut_off = int(self.cut_off() - before)
        say(f"scheduler and KWOK took {same_work:.1f} s of CPU; instructions: {counted}; watchers cut off: {cut_off}")
        return Start(done["seconds"], same_work, instructions.count, cut_off)

    def run_platform(self):
        self.new_namespaces()
        measured = self.timed("create-pods")
        self.clear()
        return measured

    def run_operator(self, with_life):
        self.new_namespaces()
        operator = self.start_operator()
        stand_in = self.start_stand_in(WORKERS)
        begun = self.audit_position()
        measured = self.timed("create-jobs")
        if with_life:
            self.measure_life(operator, stand_in, begun)
        stand_in.stop(5)
        operator.stop(30)
        self.clear()
        return measured

    def measure_life(self, operator, stand_in, begun):
        jobs = self.options.jobs
        self.wait_phase("Running", jobs)
        self.add_passes("while-starting", ({}, {}), passes())
        self.wait_calm(jobs)
        # At rest: nothing changes but progress.
        resting, cpu = self.audit_position(), cpu_seconds(operator.pid())
        started = passes()
        time.sleep(REST_SECONDS)  # this is the time that is measured
        share = 100 * (cpu_seconds(operator.pid()) - cpu) / REST_SECONDS
        self.add(row_of_limit("cpu-at-rest", [share], 3, "% of a core"))
        rest = self.writes(resting)
        self.add(row("progress-writes-at-rest", sum(rest.values()) * 60 / REST_SECONDS, "a minute"))
        lived, progress = self.writes(begun), self.progress_writes()
        rested = passes()
        self.add_passes("at-rest", started, rested)
        reactions = self.react(0)
        self.add(row_of_limit("reaction-p99", [1000 * quantile(reactions, 0.99)], 250, "ms"))
        self.add(row("reaction-median", 1000 * statistics.median(reactions), "ms", runs=len(reactions)))
        reacted = passes()
        self.add_passes("reacting", rested, reacted)
        for name in self.namespaces():
            self.driver.kubectl("-n", name, "delete", "limitrange/limits", "resourcequota/quota")
        reactions = self.react(self.options.reactions)
        self.add(row("reaction-p99-without-limits", 1000 * quantile(reactions, 0.99), "ms", runs=len(reactions)))
        self.add_passes("reacting-without-limits", reacted, passes())
        # The end of all jobs.
        ending, progress = self.audit_position(), progress - self.progress_writes()
        os.kill(stand_in.pid(), signal.SIGUSR1)
        self.step("finish")
        self.wait_phase("Succeeded", jobs)
        wait_for("the pods to be removed", lambda: self.count("pods") == 0, 300, 1)
        ended, progress = self.writes(ending), progress + self.progress_writes()
        writes = {key: (lived.get(key, 0) + ended.get(key, 0)) / jobs for key in {*lived, *ended}}
        say(f"writes a job: {json.dumps(dict(sorted(writes.items())))}")
        told = {news: round(metric("downpour_status_writes_total", news=news) / jobs, 3)
                for news in ("essential", "picture", "progress")}
        say(f"of these, a job's progress alone: {progress / jobs:.2f}; statuses, those while reacting included: {told}")
        self.add(row_of_limit("api-writes-a-job", [sum(writes.values()) - progress / jobs], PODS_OF_A_JOB + 8, "writes"))
        self.add(row_of_limit("operator-memory", [status_of(operator.pid())["VmHWM"] / 1024], 100, "MiB"))

    def add(self, measured):
        """Told at once: a run that does not come to its end has not been for nothing."""
        self.rows.append(measured)
        say(f"{measured['name']}: {measured['ours']:.1f} {measured['unit']}")

    def react(self, first):
        """Seconds from a dead pod to its replacement; of each job that has part in it, one pod."""
        return self.step("react", f"--first={first}", f"--count={self.options.reactions}")["seconds"]

    def add_passes(self, when, before, after):
        """Of passes, and of passes until what they decided was carried out."""
        decided, done = (1000 * bucket_quantile(difference(one, other), 0.99) for one, other in zip(before, after))
        self.add(row_of_limit(f"reconcile-p99-{when}", [decided], 50, "ms"))
        self.add(row(f"carried-out-p99-{when}", done, "ms"))

    def measure_large(self):
        """One job of many workers."""
        workers = self.options.large
        self.new_namespaces()
        self.new_fakes()
        reference = self.step("create-pods", jobs=1, workers=workers)["seconds"]
        self.clear()
        self.new_namespaces()
        self.new_fakes()
        operator = self.start_operator()
        stand_in = self.start_stand_in(workers)
        ours = self.step("create-jobs", jobs=1, workers=workers)["seconds"]
        self.wait_phase("Running", 1)
        self.add(row(f"one-job-of-{workers}-workers-all-running", ours, "s", reference))
        self.add(row(f"memory-with-{workers}-workers", status_of(operator.pid())["VmHWM"] / 1024, "MiB"))
        stand_in.stop(5)
        operator.stop(30)
        self.clear()

    # Waiting.

    def statuses(self, path):
        return self.driver.kubectl("get", "trainingjobs", "-A", "--chunk-size=0", "-o",
                                   "jsonpath={range .items[*]}{" + path + "}{\"\\n\"}{end}", seconds=120).split("\n")

    def wait_phase(self, phase, jobs):
        def test():
            found = self.statuses(".status.phase").count(phase)
            return True if found == jobs else f"not yet: {found}"
        wait_for(f"{jobs} jobs to be {phase}", test, 600, 2)

    def wait_calm(self, jobs):
        """Until all disruption budgets are made, the operator's queue is empty and the scheduler's events are written."""
        def budgets():
            made = self.count("poddisruptionbudgets")
            return made == jobs or f"not yet: {made}"
        wait_for("the disruption budgets", budgets, 120 + jobs, 5)
        wait_for("the queue to be empty", lambda: metric("workqueue_depth") == 0, 120, 1)
        time.sleep(15)  # what the other programs still have to do is no part of the measurement

    def count(self, resource):
        return len(self.driver.kubectl("get", resource, "-A", "--chunk-size=0", "-o", "name", seconds=120).split())


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def metric(name, **labels):
    return total(samples(METRICS_URL, name), labels)


def passes():
    """How many took how long to decide, and until that was carried out: cumulative counts by upper bound, as Prometheus
    keeps them."""
    return tuple({float(labels["le"]): count for labels, count in samples(METRICS_URL, f"{name}_bucket")}
                 for name in ("controller_runtime_reconcile_time_seconds", "workqueue_work_duration_seconds"))


def difference(before, after):
    return {bound: count - before.get(bound, 0) for bound, count in after.items()}


def bucket_quantile(counts, share):
    """By linear interpolation within a bucket, as histogram_quantile() of Prometheus."""
    rank = share * counts[math.inf]
    low, before = 0.0, 0.0
    for bound in sorted(counts):
        if counts[bound] >= rank:
            if bound == math.inf:
                return low
            return low + (bound - low) * (rank - before) / max(1e-9, counts[bound] - before)
        low, before = bound, counts[bound]
    return low


def status_of(pid):
    """KiB by name, of /proc/PID/status."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {line.partition(":")[0]: int(line.split()[1]) for line in lines if line.endswith(" kB")}


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--jobs", type=int, default=250)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--reactions", type=int, default=100)
    parser.add_argument("--large", type=int, default=1000, help="workers of one large job; 0: without")
    options = parser.parse_args()
    options.reactions = min(options.reactions, WORKERS * options.jobs // 2)  # each pod once, in two rounds
    try:
        with Bench(options) as bench:
            bench.measure()
            if options.large:
                bench.measure_large()
    except ClusterError as error:
        sys.exit(f"bench: {error}")
    print_table(bench.rows)
    sys.exit(0 if write_rows(bench.rows, options.output) else 1)


if __name__ == "__main__":
    main()
