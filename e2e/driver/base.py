"""What every driver shares: errors, waiting with deadlines, running commands, and the verbs themselves."""

import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ROOT / "e2e" / "cluster"


class ClusterError(Exception):
    """Something a person has to look at; the message says what was found and what was expected."""


def host_port(host, port):
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def say(text):
    print(f"cluster: {text}", file=sys.stderr, flush=True)


def binaries():
    """The folder with the programs that e2e/cluster/build.sh builds."""
    return pathlib.Path(os.environ.get("DOWNPOUR_E2E_CACHE") or pathlib.Path.home() / ".cache/downpour-e2e/bin")


def build(*names):
    """Builds what is missing of these programs: minutes, the first time."""
    done = subprocess.run([SOURCES / "build.sh", *names], check=False)
    if done.returncode != 0:
        raise ClusterError(f"exit status {done.returncode} of {SOURCES / 'build.sh'} {' '.join(names)}")


def image_name(image):
    """What images.py calls an image: what the chart asks for, so that it can be installed as it stands."""
    chart = (ROOT / "charts" / "downpour" / "Chart.yaml").read_text()
    version = re.search(r'^appVersion: "(.+)"$', chart, re.MULTILINE)[1]
    return f"downpour.dev/{image}:{version}"


def wait_for(what, check, seconds, interval=0.1):
    """Calls check() until it returns something true, which it hands back. check() may say in a string that starts
    with "not yet: " how far it is; the error at the deadline repeats it."""
    deadline = time.monotonic() + seconds
    while True:
        found = check()
        if found and not (isinstance(found, str) and found.startswith("not yet: ")):
            return found
        if time.monotonic() >= deadline:
            detail = f"; {found}" if found else ""
            raise ClusterError(f"waited {seconds} s for {what}{detail}")
        time.sleep(interval)


def run(argv, seconds=60, stdin=None, check=True, env=None):
    """Runs a command to its end and returns its standard output."""
    argv = [str(part) for part in argv]
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=seconds,
                              env={**os.environ, **(env or {})})
    except FileNotFoundError as error:
        raise ClusterError(f"{argv[0]} is not installed; docker/setup.sh e2e installs what is needed") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"waited {seconds} s for: {' '.join(argv)}") from error
    if check and done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise ClusterError(f"exit status {done.returncode} of: {' '.join(argv)}\n{said}")
    return done.stdout


class Driver:
    """A cluster. Verbs that one driver cannot carry out raise ClusterError."""

    unfit = ()  # the scenarios that need such a verb

    def __init__(self, state):
        self.state = pathlib.Path(state).resolve()
        self.kubeconfig = self.state / "kubeconfig"

    def build(self, nodes):
        raise ClusterError("this driver builds nothing")

    def up(self, nodes):
        raise NotImplementedError

    def down(self):
        raise NotImplementedError

    def status(self):
        """Lines (name, what it is doing, whether that is fine)."""
        raise NotImplementedError

    def load_image(self, archive):
        """Imports a docker or OCI archive into every node."""
        raise NotImplementedError

    def stop(self, name, grace):
        raise NotImplementedError

    def start(self, name):
        raise NotImplementedError

    def fake_nodes(self, count, taint):
        """Adds nodes that only claim to run their pods (KWOK)."""
        raise NotImplementedError

    def connect(self, name, connected):
        raise ClusterError("this driver cannot pull a node's cable")

    def enter(self, name):
        raise ClusterError("this driver cannot enter a node")

    def pod_processes(self, uid, program):
        """The pids on this machine of a pod's processes that run this program."""
        raise ClusterError("this driver cannot find the processes of a pod")

    def images(self):
        raise ClusterError("this driver cannot list images")

    def kubectl(self, *arguments, stdin=None, seconds=60, check=True):
        return run([*self.kubectl_command(), *arguments], seconds=seconds, stdin=stdin, check=check)

    def kubectl_command(self):
        """The beginning of a command line; nothing is kept outside of the state folder."""
        return [self.kubectl_program(), f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.state / 'kubectl'}"]

    def kubectl_program(self):
        return binaries() / "kubectl"
