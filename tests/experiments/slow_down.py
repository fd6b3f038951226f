"""Slows workers of a run down, by stopping their processes again and again."""

import itertools
import json
import os
import signal
import threading

POLL_SECONDS = 0.05


class SlowWorker(threading.Thread):
    """From the first update of the run to its end, or to finish(). Never leaves a process stopped."""

    def __init__(self, run_folder, slowdown):
        super().__init__(daemon=True)
        self.run_folder, self.slowdown = run_folder, slowdown
        self.over = threading.Event()

    def finish(self):
        self.over.set()
        self.join()

    def run(self):
        while not self.training():
            if self.over.wait(POLL_SECONDS):
                return
        while not self.over.is_set():  # another process, if the worker is replaced
            process = self.open_process()
            if process is not None:
                try:
                    self.stop_again_and_again(process)
                finally:
                    os.close(process)
            self.over.wait(POLL_SECONDS)

    def training(self):
        try:
            with open(os.path.join(self.run_folder, "metrics.jsonl"), encoding="utf-8") as lines:
                whole = itertools.takewhile(lambda line: line.endswith("\n"), lines)  # behind the rest of one it grows
                return any(json.loads(line).get("updates", 0) > 0 for line in whole)
        except FileNotFoundError:
            return False

    def open_process(self):
        """A descriptor of the worker's process: unlike a number, it is never that of another one. None: it does not run."""
        try:
            with open(os.path.join(self.run_folder, "status.json"), encoding="utf-8") as file:
                processes = json.load(file)["processes"]
            pid = next(p["pid"] for p in processes
                       if p["name"] == f"worker-{self.slowdown.worker}" and p.get("finishTime") is None)
            process = os.pidfd_open(pid)
            with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
                if os.path.abspath(self.run_folder) in file.read():
                    return process
            os.close(process)
        except (FileNotFoundError, ProcessLookupError, StopIteration):
            pass
        return None

    def stop_again_and_again(self, process):
        try:
            while not self.over.wait(self.slowdown.running):
                signal.pidfd_send_signal(process, signal.SIGSTOP)
                try:
                    self.over.wait(self.slowdown.stopped)
                finally:
                    signal.pidfd_send_signal(process, signal.SIGCONT)
        except ProcessLookupError:
            pass  # it has ended
