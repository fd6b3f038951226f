"""Kills two workers of a local run with SIGKILL, in the middle of an epoch each. Usage: kill_workers.py RUN_FOLDER

Only processes that the run's own status lists are ended.
"""

import json
import os
import signal
import sys
import time

FAULTS = [(1.5, "worker-1"), (3.5, "worker-2")]  # (epochs done, who)
PATIENCE_SECONDS = 600


def epochs_done(folder):
    """The newest progress, in fractional epochs."""
    done = 0.0
    try:
        with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as lines:
            for line in lines:
                if line.endswith("\n"):
                    done = json.loads(line).get("epochs", done)
    except FileNotFoundError:
        pass
    return done


def pid_of(folder, name):
    with open(os.path.join(folder, "status.json"), encoding="utf-8") as file:
        processes = json.load(file)["processes"]
    alive = [p for p in processes if p["name"] == name and p.get("finishTime") is None]
    return alive[-1]["pid"] if alive else None


def main():
    folder = sys.argv[1]
    deadline = time.monotonic() + PATIENCE_SECONDS
    for epochs, name in FAULTS:
        while epochs_done(folder) < epochs:
            if time.monotonic() > deadline:
                sys.exit(f"kill_workers: epoch {epochs} was not reached within {PATIENCE_SECONDS} s")
            time.sleep(0.1)
        pid = pid_of(folder, name)
        if pid is None:
            sys.exit(f"kill_workers: {name} does not run")
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
