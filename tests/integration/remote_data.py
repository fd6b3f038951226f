#!/usr/bin/env python3
"""A job trains images from s3:// while a worker is killed and the store stalls and then refuses connections: each update is
applied once, none is skipped, and no log has the secret.

    remote_data.py --downpour build/release/bin/downpour --server ... --worker ...

The store is versitygw (e2e/cluster/build.sh versitygw) behind a proxy of this test. DOWNPOUR_S3_OUTAGE_SECONDS says for how
long it stalls, and then refuses (5). Exit code 77: skipped, there is no versitygw.
"""

import argparse
import os
import pathlib
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import checkpoint_processes as checkpoint
import counter_processes as counter
from checkpoint_processes import Failure, check

OUTAGE_SECONDS = float(os.environ.get("DOWNPOUR_S3_OUTAGE_SECONDS", "5"))
PATIENCE_SECONDS = 120 + 2 * OUTAGE_SECONDS
KEY, SECRET = "the-key", "a-secret-of-the-test"  # those of checkpoint_processes.S3Server
CHUNK = 1 << 16


class Proxy:
    """TCP from a port of its own to `target`, which passes, stalls or refuses."""

    def __init__(self, target):
        self.target = target
        self.lock = threading.Lock()
        self.passing = threading.Event()
        self.passing.set()
        self.pairs = set()
        self.listener = None
        self.address = None
        self.accept()

    def accept(self):
        """Takes connections again, those that stalled go on."""
        if self.listener is None:
            self.listener = socket.create_server(self.address or ("127.0.0.1", 0), backlog=64)
            self.address = self.listener.getsockname()
            threading.Thread(target=self.listen, args=(self.listener,), daemon=True).start()
        self.passing.set()

    def stall(self):
        """Connections stay, and new ones are taken, but nothing moves."""
        self.passing.clear()

    def refuse(self):
        """Connections are reset, and there are no new ones."""
        listener, self.listener = self.listener, None
        listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        listener.close()
        with self.lock:
            pairs = list(self.pairs)
        for one in pairs:
            for side in one:
                try:
                    side.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self.passing.set()

    def listen(self, listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client:
            self.passing.wait()
            try:
                server = socket.create_connection(self.target, timeout=10)
            except OSError:
                return
            pair = (client, server)
            with self.lock:
                self.pairs.add(pair)
            try:
                with server:
                    self.copy(client, server)
            except OSError:
                pass
            finally:
                with self.lock:
                    self.pairs.discard(pair)

    def copy(self, client, server):
        with selectors.DefaultSelector() as ready:
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in ready.select():
                    self.passing.wait()
                    data = key.fileobj.recv(CHUNK)
                    if not data:
                        return
                    key.data.sendall(data)


def manifest_spec():
    """Without a cache, so that each sample is asked of the store."""
    return {"parameterServer": {"replicas": 1}, "worker": {"replicas": 3},
            "model": {"layers": [{"type": "flatten"}, {"type": "dense", "units": 4}]},
            "dataset": {"format": "ImageFolder", "path": "s3://bucket/images/train",
                        "transforms": [{"type": "Resize", "height": 8, "width": 8}, {"type": "Normalize", "mean": [0.5], "std": [0.5]}]},
            "training": {"epochs": 6, "batchSize": 10, "evaluate": False},
            "update": {"optimizer": {"learningRate": 0.05}}}


def check_no_secret(folder, server_folder):
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file() and not path.is_symlink() and server_folder not in path.parents:
            check(SECRET.encode() not in path.read_bytes(), f"{path} has the secret")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("downpour", "server", "worker"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    arguments.downpour = os.path.abspath(arguments.downpour)
    arguments.counter_worker = arguments.worker
    with tempfile.TemporaryDirectory(prefix="downpour-remote-data-") as folder:
        store_folder = os.path.join(folder, "s3")
        try:
            server = checkpoint.S3Server(store_folder)
        except checkpoint.Skip as reason:
            print(f"skipped: {reason}")
            sys.exit(checkpoint.SKIPPED)
        try:
            subprocess.run([arguments.downpour, "data", "generate", "--kind", "Images", "--shape", "3,12,12", "--classes", "4",
                            "--samples", "600", "--test-samples", "40", "--format", "ImageFolder",
                            os.path.join(store_folder, "data", "bucket", "images")], check=True, timeout=60)
            server.start()
            host, port = server.address.split(":")
            proxy = Proxy((host, int(port)))
            endpoint = f"http://127.0.0.1:{proxy.address[1]}"
            environment = {"AWS_ENDPOINT_URL_S3": endpoint, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
                           "AWS_REGION": "us-east-1"}
            job = checkpoint.Job(arguments, folder, "remote-data", manifest_spec(), counting=False,
                                 environment=environment)
            with job.start() as run:
                run.deadline = time.monotonic() + PATIENCE_SECONDS
                run.until(lambda: run.progress() > 0.1, "the first updates")
                victim = counter.read_processes(run.folder)["worker-0"]["pid"]
                check(counter.belongs_to(run.folder, victim), f"{victim} is no worker of this run")
                os.kill(victim, signal.SIGKILL)
                proxy.stall()
                time.sleep(OUTAGE_SECONDS)  # the length of the fault
                proxy.refuse()
                at = run.progress()
                check(at < 1, "the job ended before the store was away")
                time.sleep(OUTAGE_SECONDS)  # likewise
                proxy.accept()
                summary = run.end()
            ledger = summary["ledger"]
            exact = {**ledger, "applied": ledger["expected"], "skipped": 0, "duplicated": 0, "missing": 0}
            check(ledger["expected"] > 0 and ledger == exact and summary["audit"] == "Exact",
                  f"ledger {ledger}, audit {summary['audit']}")
            check_no_secret(folder, pathlib.Path(store_folder))
            print(f"away at {at:.0%} for 2 x {OUTAGE_SECONDS:g} s; {ledger['applied']} updates, each once", flush=True)
        except Failure as problem:
            sys.exit(f"remote_data: {problem}")
        finally:
            server.kill()


if __name__ == "__main__":
    main()
