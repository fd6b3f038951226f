#!/usr/bin/env python3
"""A job whose processes have IPv6 addresses alone, and one that listens on all addresses.

Coordinator, parameter servers and workers are started by hand, as pods are. Every update must be applied once, which
`downpour ledger` reads from the parameter servers; metrics answer at both kinds of address where they listen on all. An
address that could be read in two ways is refused at the start.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error

import counter_processes as counter

PATIENCE_SECONDS = 90
JOB_UID = "0123456789abcdef0123456789abcdef"


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError as error:
        print(f"skipped: this machine has no IPv6 loopback: {error}")
        return False


def check_refused(arguments, config):
    """Before anything starts, in words that name the flag."""
    server = [arguments.server, "ps", "--config", config, "--incarnation", "1", "--index", "0"]
    worker = [arguments.worker, "--config", config, "--incarnation", "1", "--index", "0"]
    for command, flag, value in [(server + ["--coordinator", "[::1]:1"], "--advertise", "::1:17071"),
                                 (server + ["--coordinator", "[::1]:1"], "--listen", "::1:17071"),
                                 (server + ["--coordinator", "[::1]:1"], "--metrics-listen", "::1:17071"),
                                 (server + ["--coordinator", "[::1]:1"], "--advertise-host", "[::1]:17071"),
                                 (server, "--coordinator", "::1:17071"), (worker, "--coordinator", "::1:17071")]:
        done = subprocess.run([*command, flag, value], capture_output=True, text=True, timeout=30, check=False)
        print(f"{flag} {value}: {done.returncode}: {done.stderr.splitlines()[:1]}")
        counter.check(done.returncode == 2, f"{flag} {value}: exit code {done.returncode}, expected 2")
        counter.check(f"{flag}: \"{value}\"" in done.stderr, f"{flag} {value}: {done.stderr}")


class Job:
    """The processes, each with its log and the files into which it writes its addresses."""

    def __init__(self, folder, config, deadline):
        self.folder = folder
        self.config = config
        self.deadline = deadline
        self.processes = {}

    def path(self, name, what):
        return os.path.join(self.folder, f"{name}.{what}")

    def start(self, name, command, *flags):
        with open(self.path(name, "log"), "wb") as log:
            self.processes[name] = subprocess.Popen(
                [*command, "--config", self.config, "--incarnation", "1", "--metrics-address-file",
                 self.path(name, "metrics"), *flags], stdout=log, stderr=log,
                env=dict(os.environ, DOWNPOUR_COUNTER_SAMPLES=str(counter.SAMPLES)))

    def address(self, name, what):
        return self.wait(f"the {what} of {name}", lambda: self.read(name, what))

    def read(self, name, what):
        try:
            with open(self.path(name, what), encoding="utf-8") as file:
                return file.readline().strip()
        except FileNotFoundError:
            return None

    def wait(self, what, look):
        while True:
            for name, process in self.processes.items():
                counter.check(process.poll() is None, f"{name} ended with {process.returncode}")
            found = look()
            if found:
                return found
            counter.check(time.monotonic() < self.deadline, f"waited in vain for {what}")
            time.sleep(counter.POLL_SECONDS)

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()


def run(arguments, folder):
    manifest, _ = counter.prepare(arguments, {"seed": 1, "ps": 2}, folder)
    config = os.path.join(folder, "config.json")
    with open(config, "w", encoding="utf-8") as file:
        json.dump({"jobUid": JOB_UID, "jobName": "counter", "psReplicas": 2, "model": {"name": "MLP"},
                   "dataset": {"format": "IDX", "path": os.path.join(folder, "data")}, "epochs": counter.EPOCHS,
                   "batchSize": counter.BATCH_SIZE, "updatesPerShard": 5, "mode": "ASYNC",
                   "optimizer": {"type": "SGD", "learningRate": 1}, "outputDirectory": folder}, file)
    check_refused(arguments, config)
    job = Job(folder, config, time.monotonic() + PATIENCE_SECONDS)
    try:
        job.start("coordinator", [arguments.server, "coordinator"], "--listen", "[::1]:0", "--metrics-listen", "[::]:0",
                  "--address-file", job.path("coordinator", "address"))
        coordinator = job.address("coordinator", "address")
        counter.check(coordinator.startswith("[::1]:"), f"the coordinator's address is {coordinator}")
        # One as in a pod: it listens on all addresses, and is told its own.
        places = [["--listen", "[::]:0", "--advertise-host", "::1"], ["--listen", "[::1]:0"]]
        for index, place in enumerate(places):
            job.start(f"ps-{index}", [arguments.server, "ps"], "--index", str(index), "--coordinator", coordinator,
                      "--address-file", job.path(f"ps-{index}", "address"), "--metrics-listen", "[::1]:0", *place)
        for index in range(counter.WORKERS):
            job.start(f"worker-{index}", [arguments.worker], "--index", str(index), "--coordinator", coordinator,
                      "--metrics-listen", "[::1]:0")
        updates = counter.UPDATES
        port = job.address("coordinator", "metrics").rpartition(":")[2]
        job.wait(f"{updates} updates", lambda: counter.metric(f"[::1]:{port}", "downpour_updates_applied_total") == updates)
        counter.check(counter.metric(f"127.0.0.1:{port}", "downpour_updates_applied_total") == updates, "metrics over IPv4")
        counter.check(counter.metric(job.address("worker-0", "metrics"), "downpour_worker_steps_total") > 0, "worker-0 idled")
        all_port = job.address("ps-0", "address").rpartition(":")[2]
        for first in (f"[::1]:{all_port}", f"127.0.0.1:{all_port}"):
            ledger = subprocess.run(
                [arguments.downpour, "ledger", manifest, "--job-uid", JOB_UID, "--ps", first, "--ps",
                 job.address("ps-1", "address"), "--output", "json"], capture_output=True, text=True, timeout=30, check=False)
            print(first, ledger.stdout, ledger.stderr, flush=True)
            counter.check(ledger.returncode == 0 and json.loads(ledger.stdout)["exact"], "the ledger is not exact")
    finally:
        job.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--downpour", required=True, help="the command")
    parser.add_argument("--server", required=True, help="coordinator and parameter server")
    parser.add_argument("--worker", required=True, help="the worker that counts")
    arguments = parser.parse_args()
    if not has_ipv6():
        sys.exit(77)  # ctest's SKIP_RETURN_CODE
    folder = tempfile.mkdtemp(prefix="downpour-ipv6-")
    try:
        run(arguments, folder)
    except (counter.Failure, urllib.error.URLError) as failure:
        print(f"ipv6: {failure}\nThe logs are kept in {folder}.", file=sys.stderr)
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
