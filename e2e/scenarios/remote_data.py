"""Data that lie in an S3 server, which is away for a while."""

import json
import os
import pathlib
import secrets
import signal
import tempfile
import time

from driver.base import binaries, build, image_name, run
from scenarios.training import TOLERANCE
from world import DOWNPOUR, check, check_accuracy, downpour_run, ends_exactly, scenario

OUTAGE_SECONDS = 30
BUCKET, PORT = "bucket", 7071
DATA, CONTROL = "/srv/s3", "/run/versitygw"
# Of the test accuracy. Classes of generated images are easily told apart.
ACCURACY = 0.9


def key_from(secret_key):
    return {"valueFrom": {"secretKeyRef": {"name": "s3", "key": secret_key}}}


class Store:
    """versitygw in a pod, as the service s3 of the namespace, over a folder of this machine."""

    def __init__(self, world, folder):
        build("versitygw")
        self.world, self.secret = world, secrets.token_hex(20)
        world.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s3"}, "stringData": {
            "AWS_ACCESS_KEY_ID": "the-key", "AWS_SECRET_ACCESS_KEY": self.secret}})
        world.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s3"}, "spec": {
            "selector": {"app": "s3"}, "ports": [{"port": PORT}]}})
        world.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "s3"}, "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "s3"}},
            "template": {"metadata": {"labels": {"app": "s3"}}, "spec": self.pod_spec(folder)}}})
        self.wait_ready()

    @staticmethod
    def pod_spec(folder):
        # Any image would do: the program needs no library.
        container = {
            "name": "s3", "image": image_name("server"), "imagePullPolicy": "Never",
            "command": ["/versitygw", "--port", f":{PORT}", "--keep-alive", "--iam-dir", f"{CONTROL}/users", "posix",
                        "--sidecar", f"{CONTROL}/metadata", DATA],
            "env": [{"name": "ROOT_ACCESS_KEY", **key_from("AWS_ACCESS_KEY_ID")},
                    {"name": "ROOT_SECRET_KEY", **key_from("AWS_SECRET_ACCESS_KEY")}],
            "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
            "securityContext": {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False,
                                "capabilities": {"drop": ["ALL"]}},
            "volumeMounts": [{"name": "program", "mountPath": "/versitygw", "readOnly": True},
                             {"name": "data", "mountPath": DATA, "readOnly": True},
                             {"name": "users", "mountPath": f"{CONTROL}/users"},
                             {"name": "metadata", "mountPath": f"{CONTROL}/metadata"}]}
        return {"terminationGracePeriodSeconds": 1, "containers": [container],
                "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532},
                "volumes": [{"name": "program", "hostPath": {"path": str(binaries() / "versitygw"), "type": "File"}},
                            {"name": "data", "hostPath": {"path": str(folder), "type": "Directory"}},
                            {"name": "users", "emptyDir": {}}, {"name": "metadata", "emptyDir": {}}]}

    def scale(self, replicas):
        self.world.kubectl("scale", "deployment/s3", f"--replicas={replicas}")

    def wait_ready(self):
        self.world.kubectl("rollout", "status", "deployment/s3", "--timeout=60s", seconds=70)

    def signal(self, number):
        pods = self.world.get("pods", selector="app=s3")
        pids = [pid for pod in pods for pid in self.world.driver.pod_processes(pod["metadata"]["uid"], "versitygw")]
        check(pids, f"no process versitygw in {[pod['metadata']['name'] for pod in pods]}")
        for pid in pids:
            os.kill(pid, number)

    def stall(self):
        """Connections stay, and the kernel takes new ones, but nobody answers."""
        self.signal(signal.SIGSTOP)

    def refuse(self):
        """Connections are reset, and there is nobody behind the service: new ones are refused."""
        self.scale(0)
        self.world.wait("the store to be gone", lambda: not self.world.get("pods", selector="app=s3"), 30)

    def accept(self):
        if self.world.get("pods", selector="app=s3"):
            self.signal(signal.SIGCONT)
        else:
            self.scale(1)
        self.wait_ready()


def generate(folder):
    """Archives of images, 40 MB for training: more than a worker may keep."""
    data = folder / BUCKET / "images"
    data.parent.mkdir()
    run([DOWNPOUR, "data", "generate", "--kind", "Images", "--classes", "4", "--samples", "8000", "--test-samples",
         "800", "--format", "WebDataset", data], seconds=60)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)  # pods are nobody on this machine


def spec_of(where, **dataset):
    """spec.model, dataset, training and update of a manifest, of data in this folder or URI."""
    return {"model": {"name": "CifarCNN", "parameters": {"filters": 8}},
            "dataset": {"format": "WebDataset", "path": f"{where}/images/train", "testPath": f"{where}/images/test",
                        "fields": [{"column": "image"}, {"column": "label", "role": "Target", "classes": 4}],
                        "transforms": [{"type": "Resize", "height": 32, "width": 32}],
                        "shuffle": "Blocks", "shuffleBlock": 128, **dataset},
            "training": {"epochs": 40, "batchSize": 50},
            "update": {"optimizer": {"type": "SGD", "learningRate": 0.05}}}


def workers(count):
    """spec.worker of a manifest: what the store asks for from a Secret, and a cache."""
    container = {"name": "trainer", "envFrom": [{"secretRef": {"name": "s3"}}],
                 "env": [{"name": "AWS_ENDPOINT_URL_S3", "value": f"http://s3:{PORT}"}],
                 "volumeMounts": [{"name": "cache", "mountPath": "/cache"}]}
    return {"replicas": count, "template": {"spec": {
        "containers": [container], "volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "64Mi"}}]}}}


def check_waits(world, manifest):
    """The store is away: what the workers have is soon used up, and nothing is applied any more until it is back."""
    time.sleep(OUTAGE_SECONDS / 2)  # the length of the fault
    before = world.ledger(manifest, "remote")["applied"]
    time.sleep(OUTAGE_SECONDS / 2)  # likewise
    found = world.ledger(manifest, "remote")
    check(0 < found["applied"] == before < found["expected"],
          f"{before} updates after half of the outage and {found['applied']} of {found['expected']} at its end, "
          f"expected as many, and some that are missing: nothing was read meanwhile, or all was over before")
    return found["applied"]


def check_pods(world):
    for pod in world.get("pods"):
        container = pod["spec"]["containers"][0]
        check(pod["spec"]["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"],
              f"{pod['metadata']['name']}: {pod['spec']['securityContext']}, {container['securityContext']}")


def check_no_secret(world, secret):
    """Neither what the job's pods said nor what anybody can read of it has the secret."""
    logs = {name: world.kubectl("logs", name, "--all-containers") for name in world.pods("remote")}
    check(all(logs.values()), f"empty logs: {[name for name, text in logs.items() if not text]}")
    logs["objects"] = world.kubectl("get", "trainingjobs,pods,events,configmaps,services", "-o", "yaml")
    told = [name for name, text in logs.items() if secret in text]
    check(not told, f"the secret is in {told}")


@scenario
def remote_data(world):
    """Images of an S3 server that stalls and later refuses for 30 s, a worker lost in each: each update is applied once.

    The accuracy is that of `downpour run` on the same files, nobody else restarts, and nothing tells the secret."""
    with tempfile.TemporaryDirectory(prefix="downpour-s3-", ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        generate(folder)
        store = Store(world, folder)
        # Room for the four places of the data that a window of Blocks has, and no more: a worker reads every second.
        manifest, before = world.trains("remote", worker=workers(3), **spec_of(
            f"s3://{BUCKET}", cache={"directory": "/cache", "size": "24Mi"}))
        check_pods(world)

        store.stall()
        world.kubectl("delete", "pod", "remote-worker-0", "--wait=false")
        stalled_at = check_waits(world, manifest)
        store.accept()
        world.wait_replaced("remote-worker-0", before["remote-worker-0"], name="remote")
        world.wait_ready(3, 60, "remote")
        world.wait_progress("remote")

        before = world.pods("remote")
        store.refuse()
        for pid in world.driver.pod_processes(before["remote-worker-1"], "downpour-worker"):
            os.kill(pid, signal.SIGKILL)
        refused_at = check_waits(world, manifest)
        store.accept()
        world.wait_replaced("remote-worker-1", before["remote-worker-1"], name="remote")
        world.wait_ready(3, 60, "remote")
        check_no_secret(world, store.secret)

        # Nobody else was restarted: they waited.
        causes = sorted(failure["cause"] for failure in world.status("remote")["failures"])
        check(causes == ["Deleted", "Killed by signal 9"], f"causes: {causes}")
        applied = ends_exactly(world, manifest, "remote")
        local = {**manifest, "spec": {**manifest["spec"], "worker": {"replicas": 3}, **spec_of(folder / BUCKET)}}
        (folder / "local.json").write_text(json.dumps(local))
        here = downpour_run(folder / "local.json")
    check(applied == here["ledger"]["applied"], f"{applied} updates, under `downpour run` {here['ledger']}")
    check_accuracy(world, here, ACCURACY, TOLERANCE, "remote")
    world.note(stalled_at=stalled_at, refused_at=refused_at)
