"""Whether the root file system of an image is whole and does what a pod needs, without a container: programs run in it
as the image's user, who can write to /tmp and /output alone. Needs root, or user namespaces."""

import json
import os
import pathlib
import shutil

from driver.base import ClusterError, run

# What the driver of a node with GPUs brings.
OF_THE_DRIVER = {"libcuda.so.1", "libnvidia-ml.so.1"}
# What others load by name alone.
LOADED_BY_NAME = ["libnccl.so.2", "libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libnvJitLink.so.13",
                  "libtorch_cuda_linalg.so", "libcudnn_graph.so.9", "libcudnn_ops.so.9", "libcudnn_cnn.so.9",
                  "libcudnn_adv.so.9", "libcudnn_heuristic.so.9", "libcudnn_engines_precompiled.so.9",
                  "libcudnn_engines_runtime_compiled.so.9"]
CUDA_PART = "/opt/libtorch/torch/lib/libtorch_cuda.so"
LOADER = "/lib64/ld-linux-x86-64.so.2"
MOUNTS = ('mount --rbind "$0" "$0" && mount -o remount,bind,ro "$0" && mount --rbind /proc "$0/proc" &&'
          ' mount --rbind /dev "$0/dev" && mount -t tmpfs tmpfs "$0/tmp" &&'
          ' if [ -d "$0/output" ]; then mount -t tmpfs tmpfs "$0/output"; fi && ')
USER = "65532"
CONFIG = {"jobUid": "0" * 32, "jobName": "check", "psReplicas": 1, "epochs": 1, "batchSize": 256, "evaluate": True,
          "model": {"name": "LeNet"}, "outputDirectory": "/output",
          "dataset": {"format": "IDX", "path": "/usr/share/datasets/fashion-mnist"}}


def apart():
    """Before a command that mounts for itself alone."""
    return ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]


class Root:
    """The layers, laid over each other below `folder`: hard links, of which nothing is written to."""

    def __init__(self, layers, folder):
        self.folder = pathlib.Path(folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        for layer in layers:
            run(["cp", "--archive", "--link", f"{layer}/.", self.folder])
        for mounted in ("proc", "dev"):  # as a container runtime does
            (self.folder / mounted).mkdir(exist_ok=True)

    def run(self, *argv, check=True, env=None, seconds=60):
        """(exit status, output) of a program."""
        words = [f"{name}={value}" for name, value in (env or {}).items()]
        inside = ["/usr/bin/env", "-i", "PATH=/usr/bin", "HOME=/tmp", *words, "/bin/sh", "-c",
                  '"$@" 2>&1; echo "status $?"', "sh", *argv]
        as_user = f'exec chroot --userspec={USER}:{USER} "$0" "$@"'
        if os.geteuid() != 0:
            as_user = f'exec unshare --user --map-user={USER} --map-group={USER} --root="$0" --wd=/ "$@"'
        said, _, status = run([*apart(), "sh", "-c", MOUNTS + as_user, self.folder, *inside],
                              seconds=seconds).rpartition("status ")
        if check and int(status) != 0:
            raise ClusterError(f"{self.folder.name}: exit status {status.strip()} of {' '.join(argv)}\n{said.strip()}")
        return int(status), said

    def libraries(self):
        """Every program and library, as the image names it."""
        found = []
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                with open(path, "rb") as file:
                    if file.read(4) == b"\x7fELF":
                        found.append("/" + str(path.relative_to(self.folder)))
        return found


def check_libraries(root, may_miss):
    """How many there are. Each finds what it is linked with, and so does every symbol; of those that others are linked
    with, with those."""
    files = root.libraries()
    loop = (f'for file; do echo "file $file"; LD_TRACE_LOADED_OBJECTS=1 LD_WARN=yes LD_BIND_NOW=yes {LOADER} "$file";'
            ' done')
    file, used, missing, undefined = "", set(), [], []
    for line in root.run("/bin/sh", "-c", loop, "sh", *files, check=False, seconds=300)[1].splitlines():
        words = line.split()
        if line.startswith("file "):
            file = line[5:]
        elif "undefined symbol" in line:
            undefined.append((file, " ".join(words)))
        elif "=> not found" in line and words[0] not in may_miss:
            missing.append(f"{file}: {' '.join(words)}")
        elif len(words) > 2 and words[1] == "=>":
            used.add(words[0])
    wrong = missing + [f"{file}: {line}" for file, line in undefined if pathlib.Path(file).name not in used]
    if wrong:
        raise ClusterError("\n".join([f"{root.folder.name}: libraries are not whole", *wrong[:20]]))
    return len(files)


def check_user(root, program):
    """The program starts, and nothing but /tmp and /output is its user's to write to."""
    root.run(f"/usr/bin/{program}", "--help")
    for path in root.folder.rglob("*"):
        name = str(path.relative_to(root.folder))
        if not path.is_symlink() and path.stat().st_mode & 0o002 and name not in ("tmp", "output"):
            raise ClusterError(f"{root.folder.name}: anybody can write to /{name}")


def check_worker(root):
    """It begins where it may, and says in one line why it does not."""
    def begin(device):
        environment = {"CONFIG": json.dumps({**CONFIG, "device": device})}
        status, said = root.run("/usr/bin/downpour-worker", "check", "--config", "env:CONFIG", env=environment,
                                check=False)
        return status, said, f"{root.folder.name}: a worker on {device} ends with {status}, it says\n{said}expected"

    for device in ("DEVICE_CPU", "DEVICE_AUTO"):
        status, said, message = begin(device)
        if status != 0 or "LeNet on cpu" not in said:
            raise ClusterError(f"{message} 0, on cpu")
    status, said, message = begin("DEVICE_CUDA")
    if status == 0 or len(said.splitlines()) != 1 or "device CUDA: no NVIDIA driver on this machine" not in said:
        raise ClusterError(f"{message} one line that says why it does not begin")


def check_cuda(root):
    names = {pathlib.Path(file).name for file in root.libraries()}
    missing = [name for name in LOADED_BY_NAME if name not in names]
    if missing:
        raise ClusterError(f"{root.folder.name}: has no {', '.join(missing)}")
    # What it does as it is loaded needs no driver.
    said = root.run("/usr/bin/downpour-worker", "--help", env={"LD_PRELOAD": CUDA_PART, "LD_BIND_NOW": "1"})[1]
    if "ld.so" in said:
        raise ClusterError(f"{root.folder.name}: LibTorch's CUDA part cannot be loaded\n{said}")
    status, said = root.run("/usr/bin/downpour-worker", "gpu", check=False)
    for wanted in ("device:  no NVIDIA driver on this machine", "kernels: /usr/lib/libdownpour_cuda.so, version ",
                   "NCCL:    can be used"):
        if wanted not in said:
            raise ClusterError(f"{root.folder.name}: `downpour-worker gpu` ends with {status}, it says\n{said}"
                               f"expected '{wanted}'")


def check(image, program, layers, folder):
    """What a person may want to know of it, in a few words."""
    try:
        run([*apart(), "mount", "-t", "tmpfs", "tmpfs", "/mnt"])
    except ClusterError as error:
        return f"not checked, as nothing can be mounted here: {str(error).splitlines()[-1]}"
    root = Root(layers, folder)
    try:
        libraries = check_libraries(root, OF_THE_DRIVER if image == "trainer-cuda" else set())
        check_user(root, program)
        if program == "downpour-worker":
            check_worker(root)
        if image == "trainer-cuda":
            check_cuda(root)
    finally:
        shutil.rmtree(root.folder, ignore_errors=True)
    return f"{libraries} programs and libraries are whole"
