"""Processes that outlive the command that started them, known by pid file."""

import json
import os
import pathlib
import signal
import subprocess
import time

from .base import ClusterError, wait_for


def start_time(pid):
    """When the process started, in ticks since boot; None when there is no such process or it is a zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(")") + 2:].split()
    return None if fields[0] in "ZX" else int(fields[19])


def children(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def tail(path, lines=8):
    try:
        return "\n".join(pathlib.Path(path).read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""


class Process:
    """A program with a pid file and a log. The pid file names the pid and when it started, so that a pid which the
    kernel has given to another program since is never taken for ours."""

    def __init__(self, name, folder, logs):
        self.name = name
        plain = name.replace("/", "-")
        self.pid_file = pathlib.Path(folder) / f"{plain}.pid"
        self.log = pathlib.Path(logs) / f"{plain}.log"

    def pid(self):
        """The pid while it runs, otherwise None."""
        try:
            known = json.loads(self.pid_file.read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ClusterError(f"{self.pid_file}: {error}; expected a pid file") from error
        return known["pid"] if start_time(known["pid"]) == known["started"] else None

    def start(self, argv, entered=False, env=None):
        """Starts it in a session of its own. `entered`: argv is nsenter, and the program is its child."""
        if self.pid():
            return
        self.pid_file.parent.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            child = subprocess.Popen([str(part) for part in argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     start_new_session=True, env={**os.environ, **(env or {})})
        pid = child.pid
        if entered:
            found = wait_for(f"{self.name} to start", lambda: children(child.pid) or child.poll() is not None, 10, 0.01)
            if found is True:
                raise ClusterError(f"{self.name} ended at once with {child.returncode}:\n{tail(self.log)}")
            pid = found[0]
        self.pid_file.write_text(json.dumps({"pid": pid, "started": start_time(pid)}))

    def must_run(self):
        """None while it runs; raises with the end of its log when it has ended."""
        if not self.pid():
            raise ClusterError(f"{self.name} has ended; the end of {self.log}:\n{tail(self.log)}")

    def stop(self, grace):
        """SIGTERM, `grace` seconds, SIGKILL. With grace 0, SIGKILL at once. Returns how long it took."""
        started = time.monotonic()
        if grace > 0 and self._signal(signal.SIGTERM):
            try:
                wait_for(f"{self.name} to end", lambda: not self.pid(), grace, 0.05)
            except ClusterError:
                pass
        if self._signal(signal.SIGKILL):
            wait_for(f"{self.name} to end after SIGKILL", lambda: not self.pid(), 20, 0.02)
        self.pid_file.unlink(missing_ok=True)
        return time.monotonic() - started

    def _signal(self, number):
        pid = self.pid()
        if not pid:
            return False
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True
