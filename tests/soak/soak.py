#!/usr/bin/env python3
"""A job with standbys, broken again and again: three parameter servers with synchronous standbys, three workers and a
coordinator as real processes, of which a random one is killed, stopped or cut off every few seconds. Afterwards every
counter of every slice is exact, and nothing was rolled back.

With --strategy AllReduce there are no parameter servers: three workers share each step, and those that are left go on with
it when one is lost; with --state-copies each has a part of the optimizer's state alone, of which so many have a copy.

A parameter server is struck only while every slice has a standby: two at once are another promise. With --network each
run has a network of its own, in which a process can be cut off: packets of its connections and to its port are dropped.

Only processes that the run's own status lists as running are signalled. The last line says how many faults there were.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from counter_processes import (Failure, alive, belongs_to, go_on, is_protected, read_progress, read_status,  # noqa: E402
                               run_protected)

PS = 3
UPDATES_A_SECOND = 18  # less than is done, faults included
STEP_MILLISECONDS = 40
ROLES = ["worker"] * 3 + ["ps"] * 4 + ["coordinator"] * 2
RING_ROLES = ["worker"] * 7 + ["coordinator"] * 2
RING_UPDATES_A_SECOND = 22
LONGEST_STOP = 7.0  # seconds; a lease is 3


class Network:
    """Drops what a process sends on its connections, and what is sent to it."""

    def __init__(self):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        subprocess.run(["nft", "add", "table", "inet", "soak"], check=True)
        subprocess.run(["nft", "add", "chain", "inet", "soak", "cut", "{ type filter hook output priority 0 ; }"], check=True)

    @staticmethod
    def ports(pid):
        lines = subprocess.run(["ss", "-Htanp"], check=True, capture_output=True, text=True).stdout.splitlines()
        return {int(line.split()[3].rsplit(":", 1)[1]) for line in lines if re.search(rf"\bpid={pid},", line)}

    def cut(self, pid):
        for port in self.ports(pid):
            for side in ("sport", "dport"):
                subprocess.run(["nft", "add", "rule", "inet", "soak", "cut", "tcp", side, str(port), "drop"], check=True)

    @staticmethod
    def mend():
        subprocess.run(["nft", "flush", "chain", "inet", "soak", "cut"], check=True)


class Faults:
    """What strikes when: a function of the seed and of what is there."""

    def __init__(self, folder, seed, seconds, network, roles):
        self.folder = folder
        self.chance = random.Random(seed)
        self.seconds = seconds
        self.network = network
        self.begun = None
        self.next = 0.0
        self.until = None  # the end of the stop or the cut that is under way
        self.stopped = None
        self.count = {}
        self.roles = roles
        self.role = self.chance.choice(roles)

    def step(self):
        now = time.monotonic()
        if self.until is not None and now >= self.until:
            self.mend()
        if self.begun is None:
            if read_progress(self.folder) <= 0:
                return
            self.begun = now
            self.next = now + 2
        if now < self.next or now > self.begun + self.seconds or self.until is not None:
            return
        status = read_status(self.folder)
        processes = alive(status)
        servers = [name for name in processes if name.startswith("ps-")]
        role = self.role
        if role == "ps" and (not is_protected(status) or len(servers) < PS):
            return  # once it is protected again
        names = sorted(name for name in processes if name.startswith(role))
        if not names:
            return
        name = self.chance.choice(names)
        pid = processes[name]["pid"]
        if not belongs_to(self.folder, pid):
            return
        kinds = ["kill", "kill", "stop"] + (["cut"] if self.network is not None else [])
        kind = self.chance.choice(kinds)
        length = self.chance.uniform(0.3, LONGEST_STOP)
        try:
            if kind == "kill":
                os.kill(pid, signal.SIGKILL)
            elif kind == "stop":
                os.kill(pid, signal.SIGSTOP)
                self.stopped = pid
                self.until = now + length
            else:
                self.network.cut(pid)
                self.until = now + length
        except ProcessLookupError:
            return
        self.count[kind] = self.count.get(kind, 0) + 1
        self.role = self.chance.choice(self.roles)
        self.next = now + self.chance.uniform(2, 5) + (0 if kind == "kill" else length)
        print(f"{now - self.begun:7.1f} s  {kind:5} {name} ({pid})" + ("" if kind == "kill" else f" for {length:.1f} s"), flush=True)

    def mend(self):
        self.until = None
        if self.stopped is not None:
            pid, self.stopped = self.stopped, None
            go_on(self.folder, pid)
        elif self.network is not None:
            self.network.mend()


def run(arguments, folder):
    ring = arguments.strategy == "AllReduce"
    scenario = {"ps": PS, "replication_factor": 2, "seed": arguments.seed, "all_reduce": ring,
                "state_copies": arguments.state_copies}
    network = Network() if arguments.network else None
    faults = Faults(os.path.join(folder, "run"), arguments.seed, arguments.seconds, network, RING_ROLES if ring else ROLES)
    pace = RING_UPDATES_A_SECOND if ring else UPDATES_A_SECOND
    run_protected(
        arguments, scenario, folder, int(arguments.seconds * pace), faults.step, least_epochs=2,
        patience=3 * arguments.seconds + 120,
        environment={"DOWNPOUR_COUNTER_STEP_MILLISECONDS": str(STEP_MILLISECONDS)}, last=faults.mend,
        # What is cut off is to be cut off, and shared memory is not.
        options=["--no-shared-memory"] if arguments.network else [])
    return sum(faults.count.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--downpour", required=True, help="the command")
    parser.add_argument("--server", required=True, help="coordinator and parameter server")
    parser.add_argument("--worker", required=True, help="the worker that counts")
    parser.add_argument("--seconds", type=float, default=90, help="so long faults strike")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--strategy", choices=["ParameterServer", "AllReduce"], default="ParameterServer")
    parser.add_argument("--state-copies", type=int, default=0, help="with AllReduce: of each part of the optimizer's state")
    parser.add_argument("--network", action="store_true", help="in a network of its own, where processes are cut off too")
    arguments = parser.parse_args()
    if arguments.network and os.environ.get("DOWNPOUR_SOAK_NETWORK") is None:
        os.environ["DOWNPOUR_SOAK_NETWORK"] = "1"
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])
    folder = tempfile.mkdtemp(prefix="downpour-soak-")
    try:
        faults = run(arguments, folder)
    except Failure as failure:
        print(f"soak: {failure}\nThe run is kept in {folder}.", file=sys.stderr)
        sys.exit(1)
    shutil.rmtree(folder)
    print(f"soak: {faults} faults, ledger exact")


if __name__ == "__main__":
    main()
