#!/usr/bin/env python3
"""The wall clock is set back by ten minutes while a job runs: nothing waits for it.

`downpour run` and all its processes have their wall clock from a file, by a preloaded library. Once training is under
way the clock is set back, and the coordinator and a worker are killed: that the parameter servers find the new one, that
the worker's shards go to others, and that the metrics are renewed, are matters of timers. What waits for the wall clock
would wait for ten minutes.
"""

import argparse
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

import counter_processes as counter

STEP_SECONDS = -600
PATIENCE_SECONDS = 90
SCENARIO = {"seed": 1, "ps": 2}


def applied(folder, server):
    """What the metrics of a parameter server say has been applied."""
    with open(os.path.join(folder, "metrics", server), encoding="utf-8") as file:
        address = file.readline().strip()
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith('downpour_ps_pushes_total{result="applied"}')), 0.0)


class Clock:
    def __init__(self, path):
        self.path = path
        self.set(0)

    def set(self, seconds):
        with open(self.path, "r+b" if os.path.exists(self.path) else "wb") as file:
            file.write(struct.pack("=q", seconds * 10**9))


def run(arguments, folder):
    manifest, programs = counter.prepare(arguments, SCENARIO, folder)
    clock = Clock(os.path.join(folder, "clock"))
    run_folder = os.path.join(folder, "run")
    environment = dict(os.environ, DOWNPOUR_BINARY_DIR=programs, DOWNPOUR_COUNTER_SAMPLES=str(counter.SAMPLES),
                       LD_PRELOAD=os.path.abspath(arguments.clock), DOWNPOUR_WALL_CLOCK=clock.path)
    deadline = time.monotonic() + PATIENCE_SECONDS
    at_step = None  # by parameter server
    stale = {"ps-0", "ps-1"}
    output_path = os.path.join(folder, "summary")
    with open(output_path, "wb") as output:
        process = subprocess.Popen([arguments.downpour, "run", manifest, "--run-dir", run_folder, "--output", "json"],
                                   stdout=output, env=environment)
        try:
            while process.poll() is None:
                counter.check(time.monotonic() < deadline,
                              f"not done within {PATIENCE_SECONDS} s, at {counter.read_progress(run_folder):.0%}")
                if at_step is None and counter.read_progress(run_folder) > 0.1:
                    clock.set(STEP_SECONDS)
                    at_step = {server: applied(run_folder, server) for server in stale}
                    print(f"set back by {-STEP_SECONDS} s, pushes applied: {at_step}", flush=True)
                    for victim in ("coordinator-0", "worker-0"):
                        pid = counter.read_processes(run_folder)[victim]["pid"]
                        counter.check(counter.belongs_to(run_folder, pid), f"{victim} is gone")
                        os.kill(pid, signal.SIGKILL)
                elif at_step is not None and stale:
                    stale = {server for server in stale if applied(run_folder, server) <= at_step[server]}
                time.sleep(counter.POLL_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()  # the kernel ends its processes with it
            process.wait()
    counter.check(process.returncode == 0, f"downpour run ended with {process.returncode}")
    counter.check(at_step is not None, "it ended before the clock was set back")
    counter.check(not stale, f"metrics were not renewed after the clock was set back: {stale}")
    with open(output_path, encoding="utf-8") as file:
        summary = json.load(file)
    updates = counter.EPOCHS * -(-counter.SAMPLES // counter.BATCH_SIZE)
    exact = {"expected": updates, "applied": updates, "missing": 0, "duplicated": 0, "skipped": 0}
    counter.check(summary["ledger"] == exact, f"ledger: {summary['ledger']}")
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
