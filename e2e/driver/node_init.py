"""Process 1 of a node: a node of the bare cluster is a network, a mount and a pid namespace, like a container.

Whatever containerd, the kubelet and the pods mount or start is inside, so that ending this one process takes the node
away as a power cut would, with nothing left on the machine. Usage: node_init.py READY_FILE"""

import os
import pathlib
import signal
import subprocess
import sys

# Programs write there whatever their options say. Nobody but the node sees these.
HIDDEN = ("/run", "/var/lib", "/var/log")


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True, timeout=10)


def main():
    ready = pathlib.Path(sys.argv[1])
    for path in HIDDEN:
        if os.path.isdir(path):
            mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", path)
    # Volumes that the kubelet mounts must reach containers.
    mount("--make-rshared", "/")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=10)
    pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    ready.write_text("ready\n")
    # Orphans become children of process 1.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            signal.sigtimedwait([signal.SIGCHLD], 1)


if __name__ == "__main__":
    main()
