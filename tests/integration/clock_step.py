#!/usr/bin/env python3
"""The wall clock is set back by ten minutes while a job runs: nothing waits for it.

`downpour run` and all its processes have their wall clock from a file, by a preloaded library. Once training is under
way the clock is set back, and the coordinator and a worker are killed: that the parameter servers find the new one, that
the worker's shards go to others, and that the metrics are renewed, are matters of timers. What waits for the wall clock
would wait for ten minutes.
"""

import argparse
import os
import shutil
import signal
import struct
import sys
import tempfile

import counter_processes as counter

STEP_SECONDS = -600
PATIENCE_SECONDS = 90
SCENARIO = {"seed": 1, "ps": 2}


def applied(folder, server):
    """What the metrics of a parameter server say has been applied."""
    address = counter.metrics_address(folder, server)
    return counter.metric(address, 'downpour_ps_pushes_total{result="applied"}', seconds=5)


class Clock:
    def __init__(self, path):
        self.path = path
        self.set(0)

    def set(self, seconds):
        with open(self.path, "r+b" if os.path.exists(self.path) else "wb") as file:
            file.write(struct.pack("=q", seconds * 10**9))


class Step:
    """Sets the clock back once training is under way, kills two processes, and looks for metrics that are renewed."""

    def __init__(self, clock, run_folder):
        self.clock = clock
        self.run_folder = run_folder
        self.at_step = None  # by parameter server
        self.stale = {"ps-0", "ps-1"}

    def __call__(self):
        if self.at_step is None and counter.read_progress(self.run_folder) > 0.1:
            self.clock.set(STEP_SECONDS)
            self.at_step = {server: applied(self.run_folder, server) for server in self.stale}
            print(f"set back by {-STEP_SECONDS} s, pushes applied: {self.at_step}", flush=True)
            for victim in ("coordinator-0", "worker-0"):
                pid = counter.read_processes(self.run_folder)[victim]["pid"]
                counter.check(counter.belongs_to(self.run_folder, pid), f"{victim} is gone")
                os.kill(pid, signal.SIGKILL)
        elif self.at_step is not None and self.stale:
            self.stale = {server for server in self.stale if applied(self.run_folder, server) <= self.at_step[server]}


def run(arguments, folder):
    manifest, programs = counter.prepare(arguments, SCENARIO, folder)
    clock = Clock(os.path.join(folder, "clock"))
    step = Step(clock, os.path.join(folder, "run"))
    environment = {"LD_PRELOAD": os.path.abspath(arguments.clock), "DOWNPOUR_WALL_CLOCK": clock.path}
    summary = counter.supervise(arguments, manifest, programs, folder, step, patience=PATIENCE_SECONDS, environment=environment)
    counter.check(step.at_step is not None, "it ended before the clock was set back")
    counter.check(not step.stale, f"metrics were not renewed after the clock was set back: {step.stale}")
    counter.check(0 < summary["totalSeconds"] < PATIENCE_SECONDS, f"it says that it took {summary['totalSeconds']} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--downpour", required=True, help="the command")
    parser.add_argument("--server", required=True, help="coordinator and parameter server")
    parser.add_argument("--worker", required=True, help="the worker that counts")
    parser.add_argument("--clock", required=True, help="the library to preload")
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="downpour-clock-")
    try:
        run(arguments, folder)
    except counter.Failure as failure:
        print(f"clock_step: {failure}\nThe run is kept in {folder}.", file=sys.stderr)
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
