"""What scenarios are made of: the cluster with a namespace of it, checks, and the operator's installation.

A scenario is a function with one argument, a World, in a file of e2e/scenarios/ that run.py imports:

    from world import check, scenario

    @scenario
    def name(world):
        '''What is promised, in one line: it is what --list prints.'''
        world.job()
        world.wait_ready(3)
        check(condition, "what was found, and what was expected")
        world.note(figure=1.5)

It raises Failure (check) or ClusterError (a command, a deadline) when the promise does not hold."""

import contextlib
import datetime
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

from driver.base import ROOT, ClusterError, binaries, build, host_port, run, wait_for
from driver.samples import samples, total

SYSTEM = "downpour-system"
CHART = ROOT / "charts" / "downpour"
EXAMPLE = ROOT / "deploy" / "examples" / "lenet.yaml"
DOWNPOUR = ROOT / "build" / "release" / "bin" / "downpour"
CONTROL_PORT = 7070
CRASHES = {132: "SIGILL", 134: "SIGABRT", 135: "SIGBUS", 136: "SIGFPE", 139: "SIGSEGV"}  # by exit code
SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


class Failure(Exception):
    """What was promised does not hold."""


def check(condition, message):
    if not condition:
        raise Failure(message)


def one_worker(container=None, **pod):
    """spec.worker of a manifest: what its container and its pod have beyond what the operator gives them."""
    return {"replicas": 1, "template": {"spec": {**pod, "containers": [{"name": "trainer", **(container or {})}]}}}


def fails_after(restarts, **more):
    """spec.failurePolicy of a manifest: after so many restarts of a replica, within seconds."""
    return {"maxRestartsPerReplica": restarts, "backoff": {"initialSeconds": 1, "maxSeconds": 1}, **more}


def read_ledger(manifest, uid, servers):
    """What the ps at these addresses say; needs no API server."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(manifest, file)
        file.flush()
        addresses = [f"--ps={server}" for server in servers]
        done = subprocess.run([DOWNPOUR, "ledger", file.name, "--job-uid", uid, *addresses, "--output=json"],
                              capture_output=True, text=True, timeout=30, check=False)
    if not done.stdout.strip():
        raise ClusterError(f"the ledger cannot be read: {done.stderr.strip()}")
    return json.loads(done.stdout)


class World:
    """The cluster, and one namespace of it."""

    def __init__(self, driver, namespace):
        self.driver = driver
        self.namespace = namespace
        self.figures = {}
        self.begun = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

    def note(self, **figures):
        """What was measured: printed, and kept in build/e2e/results.json."""
        self.figures.update(figures)

    def check_nothing_crashed(self):
        """Neither the operator's processes nor those of jobs: what replaces them would hide it. Those that were gone
        before they were looked at count if a job's status tells."""
        for namespace in (SYSTEM, self.namespace):
            for pod in json.loads(self.driver.kubectl("-n", namespace, "get", "pods", "-o", "json"))["items"]:
                for container in pod["status"].get("containerStatuses", []):
                    for state in (container["state"], container["lastState"]):
                        ended = state.get("terminated", {})
                        signal_name = CRASHES.get(ended.get("exitCode"))
                        # An operator that crashed in a scenario before was told there.
                        check(not signal_name or ended["finishedAt"] < self.begun,
                              f"{namespace}/{pod['metadata']['name']} crashed: {signal_name}")
        for job in json.loads(self.kubectl("get", "trainingjobs", "-o", "json"))["items"]:
            for failure in job.get("status", {}).get("failures", []):
                check(failure.get("exitCode") not in CRASHES, f"{job['metadata']['name']}: {failure}")

    def end(self):
        """Removes the namespace and everything in it."""
        self.driver.kubectl("delete", "namespace", self.namespace, "--ignore-not-found", "--wait=true",
                            "--timeout=120s", seconds=130, check=False)

    def kubectl(self, *arguments, **options):
        return self.driver.kubectl("-n", self.namespace, *arguments, **options)

    def get(self, kind, name=None, selector=None):
        """One object, or the list of them; nothing if there is none."""
        arguments = ["get", kind, *([name] if name else []), *(["-l", selector] if selector else []),
                     "--ignore-not-found", "-o", "json"]
        text = self.kubectl(*arguments)
        if name:
            return json.loads(text) if text.strip() else None
        return json.loads(text)["items"] if text.strip() else []

    def apply(self, manifest):
        self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    @staticmethod
    def manifest(name="lenet", workers=3, epochs=40, **spec):
        """LeNet on Fashion-MNIST, long enough to be disturbed."""
        return {"apiVersion": "training.downpour.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
                "spec": {"parameterServer": {"replicas": 1}, "worker": {"replicas": workers},
                         "model": {"name": "LeNet"},
                         "dataset": {"format": "IDX", "path": "/usr/share/datasets/fashion-mnist"},
                         "training": {"epochs": epochs, "batchSize": 64},
                         "update": {"optimizer": {"type": "SGD", "learningRate": 0.3}}, **spec}}

    def job(self, name="lenet", workers=3, epochs=40, **spec):
        """Applies that manifest, and returns it."""
        manifest = self.manifest(name, workers, epochs, **spec)
        self.apply(manifest)
        return manifest

    def trains(self, name="lenet", workers=3, epochs=40, **spec):
        """Applies that manifest, and waits until updates are applied. Returns the manifest and the pods."""
        manifest = self.job(name, workers, epochs, **spec)
        self.wait_ready(workers, name=name)
        self.wait_progress(name)
        return manifest, self.pods(name)

    def patch(self, spec, name="lenet"):
        self.kubectl("patch", "trainingjob", name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def status(self, name="lenet"):
        found = self.get("trainingjob", name)
        return (found or {}).get("status", {})

    def wait_gone(self, seconds):
        """Until nothing of any job is left."""
        self.wait("everything to go", lambda: not any(map(self.get, ("pods", "services", "endpointslices", "pdb"))), seconds)

    def condition(self, kind, name="lenet"):
        """(status, reason, message) of one condition; nothing if it is not there."""
        for one in self.status(name).get("conditions", []):
            if one["type"] == kind:
                return one["status"], one["reason"], one["message"]
        return None

    def step(self, name="lenet"):
        return self.status(name).get("progress", {}).get("step", 0)

    def pods(self, name="lenet"):
        """uid by name."""
        return {pod["metadata"]["name"]: pod["metadata"]["uid"]
                for pod in self.get("pods", selector=f"training.downpour.dev/job-name={name}")}

    def wait(self, what, test, seconds=60):
        return wait_for(what, test, seconds, 0.3)

    def wait_phase(self, phase, seconds=90, name="lenet"):
        def test():
            found = self.status(name).get("phase", "")
            return True if found == phase else f"not yet: {found}"
        self.wait(f"{name} to be {phase}", test, seconds)

    def wait_ready(self, workers, seconds=90, name="lenet"):
        def test():
            found = self.status(name).get("worker", {}).get("summary", "")
            return True if found == f"{workers}/{workers}" else f"not yet: workers {found}"
        self.wait(f"{workers} workers of {name} to be ready", test, seconds)

    def wait_progress(self, name="lenet", seconds=60):
        """Until more updates are applied than now."""
        before = self.step(name)
        self.wait("updates to be applied", lambda: self.step(name) > before, seconds)

    def events(self, reason):
        return [event for event in self.get("events") if event["reason"] == reason]

    def check_told_once(self, reason, name="lenet"):
        """One event object of this reason about the job, and it was recorded once. It may come after the status."""
        def events():
            return [(event.get("count", 1), event["message"]) for event in self.events(reason)
                    if event["involvedObject"]["name"] == name]
        found = self.wait(f"an event {reason} of {name}", events, 10)
        check([count for count, _ in found] == [1], f"events {reason} of {name}: {found}")

    def wait_replaced(self, pod, before, seconds=60, name="lenet"):
        """Until a pod of this name is there that is not the one with the uid `before`."""
        self.wait(f"{pod} to be replaced", lambda: self.pods(name).get(pod, before) != before, seconds)

    def ledger(self, manifest, name="lenet"):
        """What the tables of the parameter servers say, read by a program that shares no code with the trainer: it
        talks to the pods' own addresses, which this machine can reach."""
        role = "worker" if manifest["spec"].get("strategy") == "AllReduce" else "ps"
        return read_ledger(manifest, self.get("trainingjob", name)["metadata"]["uid"], self.servers(name, role).values())

    def servers(self, name="lenet", role="ps"):
        """host:port by name of each pod whose tables can be read: of a ps or, in a job that has none, of a worker."""
        pods = self.get("pods", selector=f"training.downpour.dev/job-name={name},training.downpour.dev/role={role}")
        return {pod["metadata"]["name"]: host_port(pod["status"].get("podIP", ""), CONTROL_PORT) for pod in pods}

    @contextlib.contextmanager
    def watched(self, *arguments):
        """The lines that `kubectl get ARGUMENTS --watch` prints within the block, whole at the end of it."""
        lines = []
        with tempfile.TemporaryFile("w+") as output:
            watch = subprocess.Popen([*self.driver.kubectl_command(), "-n", self.namespace, "get", *arguments, "--watch"],
                                     stdout=output, stderr=subprocess.DEVNULL)
            try:
                yield lines
            finally:
                watch.kill()
                watch.wait(10)
            output.seek(0)
            lines += output.read().splitlines()

    @contextlib.contextmanager
    def pod_history(self):
        """Every pod of the namespace that exists within the block, also those that are gone again, as a list of
        (name, uid, incarnation) that is whole at the end of it."""
        seen = []
        label = "training.downpour.dev/incarnation"
        columns = "{.metadata.name} {.metadata.uid} {.metadata.labels." + label.replace(".", "\\.") + '}{"\\n"}'
        pods = {(meta["name"], meta["uid"], meta.get("labels", {}).get(label))
                for meta in (pod["metadata"] for pod in self.get("pods"))}  # those that go before the watch begins
        with self.watched("pods", f"--output=jsonpath={columns}") as lines:
            yield seen
        pods.update(tuple(line.split()) for line in lines if len(line.split()) == 3)
        seen += sorted(pods)


def helm(driver, *arguments, check=True):
    build("helm")
    return run([binaries() / "helm", f"--kubeconfig={driver.kubeconfig}", "-n", SYSTEM, *arguments], seconds=180,
               check=check)


def install(driver):
    driver.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CHART / "crds"))
    helm(driver, "upgrade", "--install", "downpour", str(CHART), "--create-namespace", "--set",
         "images.pullPolicy=Never", "--wait", "--timeout", "120s")


def uninstall(driver):
    helm(driver, "uninstall", "downpour", "--ignore-not-found", "--wait", "--timeout", "120s")


def manifests():
    """deploy/operator.yaml with the images that were loaded, and no others."""
    return (ROOT / "deploy" / "operator.yaml").read_text().replace("IfNotPresent", "Never")


def install_with_kubectl(driver):
    """The operator as those install it who do not use Helm."""
    driver.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "deploy" / "crd.yaml"))
    driver.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifests())
    driver.kubectl("-n", SYSTEM, "rollout", "status", "deployment/downpour-operator", "--timeout=120s", seconds=130)


def uninstall_with_kubectl(driver):
    driver.kubectl("delete", "--ignore-not-found", "--wait=true", "-f", "-", stdin=manifests(), seconds=120)


def operator_pod_objects(driver):
    text = driver.kubectl("-n", SYSTEM, "get", "pods", "-l", "app.kubernetes.io/name=downpour", "-o", "json")
    return [pod for pod in json.loads(text)["items"] if pod["status"].get("phase") == "Running"]


def operator_pods(driver):
    return [pod["metadata"]["name"] for pod in operator_pod_objects(driver)]


def kill_operator(driver, pods=None):
    """SIGKILL to the processes of these operator pods, or of all, as by a machine that runs out of memory. The pods stay.
    Returns how many processes there were."""
    killed = 0
    for pod in operator_pod_objects(driver):
        if pods is None or pod["metadata"]["name"] in pods:
            for pid in driver.pod_processes(pod["metadata"]["uid"], "downpour-operator"):
                os.kill(pid, signal.SIGKILL)
                killed += 1
    return killed


def kill_operator_pods(driver, pods):
    """SIGKILL to their processes, and then the pods go: no back-off of the kubelet holds up those that come after.
    Without the first, a process would be told to end, and give its lease back. Returns how many processes there were."""
    killed = kill_operator(driver, pods)
    driver.kubectl("-n", SYSTEM, "delete", "pod", *pods, "--grace-period=0", "--force", "--wait=false")
    return killed


def scale_operator(driver, replicas):
    """With 0, nobody looks after jobs; returns when that is so."""
    driver.kubectl("-n", SYSTEM, "scale", "deployment/downpour-operator", f"--replicas={replicas}")
    if replicas == 0:
        wait_for("the operator to be gone", lambda: not operator_pod_objects(driver), 60, 0.3)
    else:
        driver.kubectl("-n", SYSTEM, "rollout", "status", "deployment/downpour-operator", "--timeout=120s", seconds=130)


def exact_ledger(world, manifest, seconds, name="lenet"):
    """Waits for the end of the training, and reads the tables of the ps. Only afterwards is the job let end."""
    # Without an operator nobody tells the ps to end when all is applied.
    scale_operator(world.driver, 0)
    try:
        def all_applied():
            found = world.ledger(manifest, name)
            return found if found["missing"] == 0 else f"not yet: {found}"
        found = world.wait("every update to be on every slice", all_applied, seconds)
    finally:
        scale_operator(world.driver, 2)
    check(found["exact"] and found["duplicated"] == 0 and found["applied"] == found["expected"], f"ledger {found}")
    return found


def ends_exactly(world, manifest, name="lenet"):
    """To the end of a training that is still under way: each update is applied once. Returns how many there are."""
    progress = world.status(name)["progress"]
    check(progress["step"] < progress["totalSteps"], f"it was over before all was done to it: {progress}")
    found = exact_ledger(world, manifest, 600, name)
    check(found["expected"] == progress["totalSteps"], f"ledger {found}, {progress['totalSteps']} updates expected")
    world.wait_phase("Succeeded", 120, name)
    world.note(**{key: found[key] for key in ("expected", "applied", "missing", "duplicated")})
    return found["applied"]


def downpour_run(manifest, *options):
    """The summary of `downpour run` of this file on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        return json.loads(run([DOWNPOUR, "run", manifest, "--run-dir", pathlib.Path(folder, "run"), "--output=json",
                               *options], seconds=600))


def check_accuracy(world, local, least=0.0, tolerance=1.0, name="lenet"):
    """Of a test: a job that is over and `local`, a summary of `downpour run`, have about the same, and at least that."""
    accuracy, here = float(world.status(name)["progress"]["testAccuracy"]), local["testAccuracy"]
    check(min(accuracy, here) >= least and abs(accuracy - here) <= tolerance,
          f"test accuracy {accuracy}, under `downpour run` {here}; each at least {least}, at most {tolerance} apart")
    world.note(accuracy=accuracy, accuracy_of_downpour_run=round(here, 4))


def metric(driver, name, **labels):
    """The sum of a metric over the operator's pods and over all labels but these."""
    return sum(total(samples(f"http://{host_port(pod['status']['podIP'], 8080)}/metrics", name), labels)
               for pod in operator_pod_objects(driver))


def rates_a_minute(driver, seconds, **names):
    """How fast metrics grow in the next `seconds`: a dictionary of figures. Each argument is (metric, labels)."""
    before = {key: metric(driver, name, **labels) for key, (name, labels) in names.items()}
    begun = time.monotonic()
    time.sleep(seconds)  # how long is measured
    minutes = (time.monotonic() - begun) / 60
    return {key: round((metric(driver, name, **labels) - before[key]) / minutes, 1)
            for key, (name, labels) in names.items()}


def leader(driver):
    text = driver.kubectl("-n", SYSTEM, "get", "lease", "downpour-operator", "-o", "jsonpath={.spec.holderIdentity}",
                          check=False)
    return text.strip().split("_")[0]
