"""How long training stands still where parameter servers with standbys are lost or moved, and what standbys cost.

Workers that count (tests/integration/counter_worker.cc) write down when each step began, which is when the update before
it was acknowledged by every parameter server, and when it was computed. All updates touch every slice. So the first
update that was computed after a fault and is acknowledged is the first on the slices whose primary died; the time from
the fault to that acknowledgement is what is told, with the push itself in it. Every run ends with an exact ledger and
with exact counters, or there is no figure.
"""

import bisect
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import counter_processes  # noqa: E402
from counter_processes import (SLICE_ELEMENTS, Failure, alive, belongs_to, check, go_on, is_protected,  # noqa: E402
                               metric, metrics_address, read_progress, read_status, run_protected, slices_of)
from rows import row, row_of_pairs  # noqa: E402

PS = 3
STEP_MILLISECONDS = 10
BETWEEN_SECONDS = 1.0  # at least, from the moment that every slice has a standby again to the next fault
STOP_SECONDS = 8.0
SETTLED_SECONDS = 2.0  # without a slice that moves: then none is to move any more
AROUND_SECONDS = 1.5  # before and after a fault, for the pace of those that it does not touch


class Arguments:
    def __init__(self, binaries):
        self.downpour = os.path.join(binaries, "downpour")
        self.server = os.path.join(binaries, "downpour-server")
        self.worker = os.path.join(binaries, "..", "tests", "counter_worker")


def read_steps(folder):
    """By process: the seconds at which each step began, and at which it was computed."""
    steps = {}
    for name in os.listdir(folder):
        begun, computed = [], []
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            for line in file.read().splitlines(keepends=True):
                if line.endswith("\n"):
                    begin, end = line.split()
                    begun.append(int(begin) / 1e9)
                    computed.append(int(end) / 1e9)
        steps[int(name)] = (begun, computed)
    return steps


def first_acknowledged(steps, moment, updates=1):
    """When the first update that was computed after the moment was acknowledged; None: none was. `updates`: so many of a
    worker are acknowledged at once at most."""
    found = None
    for begun, computed in steps.values():
        index = bisect.bisect_right(computed, moment) + updates
        if index < len(begun) and (found is None or begun[index] < found):
            found = begun[index]
    return found


def longest_push(steps, begin, end):
    """The longest time from computed to acknowledged among the updates that were on their way within it."""
    longest = 0.0
    for begun, computed in steps.values():
        for index in range(len(begun) - 1):
            if begun[index + 1] >= begin and computed[index] <= end:
                longest = max(longest, begun[index + 1] - computed[index])
    return longest


def pace(steps, pids, begin, end):
    """Steps a second of these processes."""
    return sum(bisect.bisect(steps[pid][0], end) - bisect.bisect(steps[pid][0], begin) for pid in pids) / (end - begin)


def run_job(arguments, *, ps, factor, updates, step, patience, environment=None, last=None, workers=3, ring=False):
    """Runs a job of so many updates, a few more maybe; `step(folder)` is called again and again. Returns the steps."""
    folder = tempfile.mkdtemp(prefix="downpour-recovery-")
    times = os.path.join(folder, "times")
    os.mkdir(times)
    counter_processes.WORKERS = workers
    run_folder = os.path.join(folder, "run")
    try:
        run_protected(
            arguments, {"ps": ps, "replication_factor": factor, "seed": 1, "all_reduce": ring}, folder, updates, lambda: step(run_folder),
            patience=patience, last=last,
            environment={"DOWNPOUR_COUNTER_STEP_MILLISECONDS": str(STEP_MILLISECONDS), "DOWNPOUR_COUNTER_TIMES": times,
                         **(environment or {})})
    except Failure as failure:
        sys.exit(f"bench: {failure}\nThe run is kept in {folder}.")
    steps = read_steps(times)
    shutil.rmtree(folder)
    return steps


def held_bytes(folder, servers):
    """Bytes of parameters on each of these parameter servers."""
    return [metric(metrics_address(folder, f"ps-{index}"), "downpour_ps_parameter_bytes") for index in servers]


class Strikes:
    """Faults of one kind, each once everything is as it was before the one before."""

    def __init__(self, role, kind, count, ring=False):
        self.role, self.kind, self.count, self.ring = role, kind, count, ring
        self.chance = random.Random(7)
        self.moments = []  # (when, pids of the workers that it does not touch)
        self.calm = None   # since when every slice has a standby and everybody is there
        self.stopped = None
        self.folder = None

    def step(self, folder):
        self.folder = folder
        now = time.monotonic()
        if self.stopped is not None:
            if now >= self.moments[-1][0] + STOP_SECONDS:
                self.mend()
            return
        status = read_status(folder)
        processes = alive(status)
        workers = sum(name.startswith("worker-") for name in processes)
        whole = read_progress(folder) > 0 and workers == counter_processes.WORKERS
        if self.ring:
            ring = status.get("status", {}).get("ring", {})
            whole = whole and ring.get("formed", False) and ring.get("members") == workers
        else:
            whole = (whole and is_protected(status) and slices_of(status).get("moving", 0) == 0 and
                     sum(name.startswith("ps-") for name in processes) == PS)
        if not whole:
            self.calm = None
            return
        if self.calm is None:
            self.calm = now
        if len(self.moments) >= self.count or now < self.calm + max(BETWEEN_SECONDS, AROUND_SECONDS):
            return
        name = self.chance.choice(sorted(name for name in processes if name.startswith(self.role)))
        pid = processes[name]["pid"]
        if not belongs_to(folder, pid):
            return
        others = [process["pid"] for other, process in processes.items() if other.startswith("worker-") and other != name]
        moment = time.monotonic()
        os.kill(pid, signal.SIGKILL if self.kind == "kill" else signal.SIGSTOP)
        self.moments.append((moment, others))
        self.calm = None
        if self.kind == "stop":
            self.stopped = pid

    def mend(self):
        if self.stopped is not None:
            pid, self.stopped = self.stopped, None
            go_on(self.folder, pid)


def strike(arguments, role, kind, count, updates, patience, ring=False):
    strikes = Strikes(role, kind, count, ring)
    steps = run_job(arguments, ps=PS, factor=2, updates=updates, step=strikes.step, patience=patience, last=strikes.mend,
                    ring=ring)
    print(f"bench: {len(strikes.moments)} of {count} times: {kind} {role}", file=sys.stderr, flush=True)
    return strikes.moments, steps


def failover_row(name, arguments, kind, count, updates, patience, target, floor, ring=False):
    """Milliseconds; the target is of the median, the floor of the longest. Of a ring, until the workers that are left have
    taken a step; each of them has two updates of it at most."""
    moments, steps = strike(arguments, "worker" if ring else "ps", kind, count, updates, patience, ring)
    stood = []
    for moment, _ in moments:
        acknowledged = first_acknowledged(steps, moment, updates=2 if ring else 1)
        if acknowledged is not None:
            stood.append(1000 * (acknowledged - moment))
    check(stood, "the job was over before anything could be struck")
    median, longest = statistics.median(stood), max(stood)
    print(f"{name}: ms: {' '.join(f'{one:.0f}' for one in sorted(stood))}", file=sys.stderr, flush=True)
    return row(name, median, "ms", reference=target, target=f"< {target}, max < {floor}", holds=median < target and longest < floor,
               runs=len(stood), spread=[min(stood) / target, longest / target])


def worker_row(arguments, count, updates, patience):
    """The pace of the other workers after one is killed, by theirs before. They get the share of the machine that it had."""
    moments, steps = strike(arguments, "worker", "kill", count, updates, patience)
    before = [pace(steps, others, moment - AROUND_SECONDS, moment) for moment, others in moments]
    after = [pace(steps, others, moment, moment + AROUND_SECONDS) for moment, others in moments]
    return row_of_pairs("other-workers-after-a-kill", after, before, "updates/s", least=0.95)


class Moves:
    """1 -> 4 -> 2 parameter servers, each once the one before is done."""

    NUMBERS = [4, 2]

    def __init__(self, arguments):
        self.arguments = arguments
        self.left = list(self.NUMBERS)
        self.begun = []  # when each was asked for
        self.ended = []
        self.held = []   # the bytes of parameters on each ps in the end
        self.wanted = 1
        self.settled = None  # since when it looks as wanted

    def step(self, folder):
        if read_progress(folder) <= 0.05 * (1 + 4 * len(self.begun)):
            return
        status = read_status(folder)
        if len(self.begun) > len(self.ended):
            slices = slices_of(status)
            servers = sum(name.startswith("ps-") for name in alive(status))
            done = (servers == self.wanted and len(slices.get("parameterServers", [])) == self.wanted and
                    slices.get("moving", 0) == 0)
            if not done:
                self.settled = None
            elif self.settled is None:
                self.settled = time.monotonic()
            elif time.monotonic() > self.settled + SETTLED_SECONDS:
                self.ended.append(self.settled)
                self.settled = None
                self.held.append(held_bytes(folder, slices["parameterServers"]))
            return
        if not self.left:
            return
        self.wanted = self.left.pop(0)
        self.begun.append(time.monotonic())
        subprocess.run([self.arguments.downpour, "scale", folder, "--ps", str(self.wanted)], check=True, timeout=60,
                       stdout=subprocess.DEVNULL)


def moves_rows(arguments, updates, patience):
    moves = Moves(arguments)
    steps = run_job(arguments, ps=1, factor=1, updates=updates, step=moves.step, patience=patience)
    check(len(moves.ended) == len(moves.NUMBERS), f"only {len(moves.ended)} of {len(moves.NUMBERS)} changes were done in the end")
    quiet = longest_push(steps, moves.begun[0] - 3, moves.begun[0])
    rows = []
    for number, begin, end, held in zip(moves.NUMBERS, moves.begun, moves.ended, moves.held):
        longest = 1000 * longest_push(steps, begin, end)
        print(f"to {number} ps: {end - begin:.1f} s, longest push {longest:.0f} ms, before {1000 * quiet:.0f} ms", flush=True)
        rows.append(row(f"longest-push-while-moving-to-{number}-ps", longest, "ms", reference=200, target="<= 200, max 500",
                        holds=longest <= 200))
        mean = sum(held) / len(held)
        rows.append(row(f"fullest-of-{number}-ps", max(held) / 1e6, "MB", reference=(mean + 4 * SLICE_ELEMENTS) / 1e6,
                        target="<= mean + one slice", holds=max(held) <= mean + 4 * SLICE_ELEMENTS))
    return rows


class SlowServer:
    """One of two parameter servers, which hold the same, is stopped three quarters of the time."""

    PERIOD_SECONDS = 0.2
    STOPPED = 0.75
    BEFORE_SECONDS = 8.0  # less than the coordinator measures for
    AFTER_SECONDS = 10.0

    def __init__(self):
        self.pid = None
        self.begun = None    # when it became slow
        self.settled = None  # since when nothing moves any more, after something has
        self.held = None     # the bytes on each in the end
        self.folder = None

    def step(self, folder):
        self.folder = folder
        now = time.monotonic()
        if self.pid is None:
            if read_progress(folder) <= 0.02:
                return
            self.pid = alive(read_status(folder))["ps-1"]["pid"]
            self.begun = now
        if self.held is not None or not belongs_to(folder, self.pid):
            return
        stopped = (now - self.begun) % self.PERIOD_SECONDS < self.STOPPED * self.PERIOD_SECONDS
        os.kill(self.pid, signal.SIGSTOP if stopped else signal.SIGCONT)
        if stopped or now < self.begun + self.BEFORE_SECONDS:
            return
        held = held_bytes(folder, range(2))
        if slices_of(read_status(folder)).get("moving", 0) != 0 or held[1] > 0.7 * held[0]:
            self.settled = None
        elif self.settled is None:
            self.settled = now
        elif now > self.settled + self.AFTER_SECONDS:
            self.mend()
            self.held = held

    def mend(self):
        if self.pid is not None:
            go_on(self.folder, self.pid)


def slow_server_row(arguments, updates):
    """The pace once a slow parameter server holds less, by the pace while it held as much as the other."""
    slow = SlowServer()
    steps = run_job(arguments, ps=2, factor=1, updates=updates, step=slow.step, patience=240, workers=1, last=slow.mend,
                    environment={"DOWNPOUR_COUNTER_ROWS": "16000", "DOWNPOUR_COUNTER_STEP_MILLISECONDS": "0"})
    check(slow.held is not None, "the slow parameter server held as much as the other to the end")
    before = pace(steps, steps, slow.begun, slow.begun + slow.BEFORE_SECONDS)
    after = pace(steps, steps, slow.settled, slow.settled + slow.AFTER_SECONDS)
    print(f"slow-ps: in the end it holds {slow.held[1] / 1e6:.0f} of {sum(slow.held) / 1e6:.0f} MB, "
          f"{slow.settled - slow.begun:.1f} s after it became slow", file=sys.stderr, flush=True)
    return row("slow-ps-holds-less", after, "updates/s", reference=before, target=">= 1.2", holds=after >= 1.2 * before)


def throughput(arguments, factor, updates, rows):
    steps = run_job(arguments, ps=2, factor=factor, updates=updates, step=lambda folder: None, patience=240, workers=1,
                    environment={"DOWNPOUR_COUNTER_ROWS": str(rows), "DOWNPOUR_COUNTER_STEP_MILLISECONDS": "0"})
    begun = max((begun for begun, _ in steps.values()), key=len)
    begun = begun[len(begun) // 4:]  # by then the standbys are made
    return (len(begun) - 1) / (begun[-1] - begun[0])


def throughput_row(arguments, pairs):
    ours, reference = [], []
    for _ in range(pairs):
        ours.append(throughput(arguments, 2, 200, 16000))
        reference.append(throughput(arguments, 1, 200, 16000))
    return row_of_pairs("standby-64MB-updates", ours, reference, "updates/s", least=0.45)


def recovery_rows(binaries, wanted):
    arguments = Arguments(binaries)
    rows = []
    if wanted("failover-kill"):
        rows.append(failover_row("failover-kill", arguments, "kill", 50, 4000, 600, 500, 1000))
    if wanted("failover-stop"):
        rows.append(failover_row("failover-stop", arguments, "stop", 10, 4000, 600, 5000, 8000))
    if wanted("ring-kill"):
        rows.append(failover_row("ring-kill", arguments, "kill", 30, 12000, 600, 3000, 10000, ring=True))
    if wanted("ring-stop"):
        rows.append(failover_row("ring-stop", arguments, "stop", 8, 12000, 600, 3000, 10000, ring=True))
    if wanted("other-workers"):
        rows.append(worker_row(arguments, 10, 1500, 300))
    if wanted("moving"):
        rows += moves_rows(arguments, 1500, 300)
    if wanted("slow-ps"):
        rows.append(slow_server_row(arguments, 400))
    if wanted("standby-64MB"):
        rows.append(throughput_row(arguments, 3))
    return rows
