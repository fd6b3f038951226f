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

import json

from driver.base import ROOT, binaries, run, wait_for

SYSTEM = "downpour-system"
CHART = ROOT / "charts" / "downpour"
EXAMPLE = ROOT / "deploy" / "examples" / "lenet.yaml"
SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


class Failure(Exception):
    """What was promised does not hold."""


def check(condition, message):
    if not condition:
        raise Failure(message)


class World:
    """The cluster, and one namespace of it."""

    def __init__(self, driver, namespace):
        self.driver = driver
        self.namespace = namespace
        self.figures = {}

    def note(self, **figures):
        """What was measured: printed, and kept in build/e2e/results.json."""
        self.figures.update(figures)

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

    def job(self, name="lenet", workers=3, epochs=40, **spec):
        """LeNet on Fashion-MNIST, long enough to be disturbed."""
        self.apply({"apiVersion": "training.downpour.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
                    "spec": {"parameterServer": {"replicas": 1}, "worker": {"replicas": workers},
                             "model": {"name": "LeNet"},
                             "dataset": {"format": "IDX", "path": "/usr/share/datasets/fashion-mnist"},
                             "training": {"epochs": epochs, "batchSize": 64},
                             "update": {"optimizer": {"type": "SGD", "learningRate": 0.3}}, **spec}})

    def status(self, name="lenet"):
        found = self.get("trainingjob", name)
        return (found or {}).get("status", {})

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


def helm(driver, *arguments, check=True):
    return run([binaries() / "helm", f"--kubeconfig={driver.kubeconfig}", "-n", SYSTEM, *arguments], seconds=180,
               check=check)


def install(driver):
    driver.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CHART / "crds"))
    helm(driver, "upgrade", "--install", "downpour", str(CHART), "--create-namespace", "--set", "images.tag=e2e",
         "--set", "images.pullPolicy=Never", "--wait", "--timeout", "120s")


def uninstall(driver):
    helm(driver, "uninstall", "downpour", "--ignore-not-found", "--wait", "--timeout", "120s")


def operator_pods(driver):
    text = driver.kubectl("-n", SYSTEM, "get", "pods", "-l", "app.kubernetes.io/name=downpour", "-o", "json")
    return [pod["metadata"]["name"] for pod in json.loads(text)["items"] if pod["status"].get("phase") == "Running"]


def leader(driver):
    text = driver.kubectl("-n", SYSTEM, "get", "lease", "downpour-operator", "-o", "jsonpath={.spec.holderIdentity}",
                          check=False)
    return text.strip().split("_")[0]
