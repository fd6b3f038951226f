"""What belongs to the whole machine: devices, control groups, kernel settings, locks, HTTP."""

import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import urllib.error
import urllib.request

from .base import ClusterError, run, wait_for

CGROUPS = pathlib.Path("/sys/fs/cgroup")
# The kubelet sets these for the whole machine; the last cluster that goes down sets them back to what is kept here.
KERNEL_BEFORE = pathlib.Path("/run/downpour-e2e-kernel.json")
KERNEL_SETTINGS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
                   "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes")


def lacks():
    """Why this machine cannot host a cluster, in words; empty if it can. Packages can be installed and are not asked
    for."""
    if os.geteuid() != 0:
        return [f"runs as user {os.geteuid()}, expected root"]
    found = []
    tries = {"make namespaces": "true",
             "mount overlay file systems": "mount -t tmpfs tmpfs /mnt && cd /mnt && mkdir a b c d && "
                                           "mount -t overlay overlay -o lowerdir=a,upperdir=b,workdir=c d"}
    if shutil.which("ip"):
        tries["make bridges and veth devices"] = ("ip link add name b type bridge && "
                                                  "ip link add name v type veth peer name w && ip link set v master b")
    if shutil.which("nft"):
        tries["use nftables"] = "nft add table ip t && nft add chain ip t c '{ type nat hook output priority 0; }'"
    for what, script in tries.items():
        done = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "sh", "-c", script],
                              capture_output=True, text=True, timeout=20, check=False)
        if done.returncode != 0:
            found.append(f"cannot {what}: {' '.join(done.stderr.split())}")
    if (CGROUPS / "cgroup.controllers").exists():
        found.append("has cgroup v2, with which this has not been tried")
    for controller in ("cpu", "cpuset", "memory", "pids"):
        folder = CGROUPS / controller / "downpour-e2e-check"
        try:
            folder.mkdir()
            folder.rmdir()
        except OSError as error:
            found.append(f"cannot make a control group for {controller}: {error.strerror}")
    return found


class Lock:
    """One command at a time for each file."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = open(self.path, "w")

        def taken():
            try:
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                return False

        # Longer than building the programs takes.
        wait_for(f"another command to leave {self.path}", taken, 1800)

    def __exit__(self, *error):
        self.file.close()


def has_device(name):
    return pathlib.Path("/sys/class/net", name).exists()


def device_alias(name):
    """None when there is no such device."""
    path = pathlib.Path("/sys/class/net", name, "ifalias")
    return path.read_text().strip() if path.exists() else None


def bridge_is_used(name, addresses):
    """Whether a cable is plugged in, or a program listens on one of these addresses."""
    return (any(pathlib.Path("/sys/class/net", name, "brif").iterdir()) or
            any(run(["ss", "-Hltn", "src", address]).strip() for address in addresses))


def wait_device_gone(name):
    """After a namespace has ended the kernel takes a moment to remove its devices."""
    wait_for(f"the device {name} to be gone", lambda: not has_device(name), 20)


def keep_kernel_settings():
    if not KERNEL_BEFORE.exists():
        paths = [pathlib.Path("/proc/sys", name) for name in KERNEL_SETTINGS]
        KERNEL_BEFORE.write_text(json.dumps({str(path): path.read_text().strip() for path in paths if path.exists()}))


def restore_kernel_settings():
    if KERNEL_BEFORE.exists():
        for path, value in json.loads(KERNEL_BEFORE.read_text()).items():
            pathlib.Path(path).write_text(value)
        KERNEL_BEFORE.unlink()


def cgroup_folders(name):
    """A control group's folders: one in each hierarchy of cgroup v1, or the one of cgroup v2."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS / name]
    return [hierarchy / name for hierarchy in sorted(CGROUPS.iterdir())
            if hierarchy.is_dir() and not hierarchy.is_symlink()]


def make_cgroup(name, child):
    for base in cgroup_folders(name):
        if base.parent.name == "unified":
            continue
        for folder in (base, base / child):
            folder.mkdir(exist_ok=True)
            for setting in ("cpuset.cpus", "cpuset.mems"):
                # With cgroup v1 a new cpuset is empty, and nothing can run in it.
                if (folder / setting).exists() and not (folder / setting).read_text().strip():
                    (folder / setting).write_text((folder.parent / setting).read_text())


def end_cgroup(name):
    for base in cgroup_folders(name):
        if base.exists():
            wait_for(f"the processes in {base} to end", lambda base=base: _is_empty(base), 20)
            for folder in sorted((path for path in base.rglob("*") if path.is_dir()), reverse=True):
                folder.rmdir()
            base.rmdir()


def processes(cgroup, inside, program):
    """The pids of this program in a control group whose path has both of these in it."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            groups = (folder / "cgroup").read_text().splitlines()
            if not any(cgroup in line and inside in line for line in groups):
                continue
            if os.path.basename(os.readlink(folder / "exe")) == program:
                found.append(int(folder.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError as error:
            raise ClusterError(f"the programs of pods can be ended by root only: {error}") from error
    return found


def _is_empty(base):
    """What still runs there is ended, for it can only be a container of this cluster."""
    left = [int(pid) for file in base.rglob("cgroup.procs") for pid in file.read_text().split()]
    for pid in left:
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass
    return True if not left else f"not yet: {left}"


def http_get(url, context):
    """(the answer's text, whether it was a good answer); what went wrong otherwise."""
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}),
                                             urllib.request.HTTPSHandler(context=context))
        with opener.open(url, timeout=5) as answer:
            return answer.read().decode(errors="replace").strip(), True
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}", False
    except (OSError, ValueError) as error:
        return str(error), False
