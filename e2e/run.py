#!/usr/bin/env python3
"""End-to-end scenarios: the operator, installed with Helm, on the cluster that is up (e2e/cluster.py up), with the
images of e2e/images.py --load.

    run.py                 all of them
    run.py train scale     some
    run.py --list          their names

Each scenario has a namespace of its own and removes it. The operator stays installed until the last one is over."""

import argparse
import json
import random
import sys
import time

from driver.bare import BareDriver
from driver.base import ROOT, ClusterError, binaries, run, wait_for

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


def operator_pods(driver):
    text = driver.kubectl("-n", SYSTEM, "get", "pods", "-l", "app.kubernetes.io/name=downpour", "-o", "json")
    return [pod["metadata"]["name"] for pod in json.loads(text)["items"] if pod["status"].get("phase") == "Running"]


def leader(driver):
    text = driver.kubectl("-n", SYSTEM, "get", "lease", "downpour-operator", "-o", "jsonpath={.spec.holderIdentity}",
                          check=False)
    return text.strip().split("_")[0]


# ---- scenarios


@scenario
def train(world):
    """The manifest that `downpour run` takes, unchanged: Complete, with the accuracy in the status."""
    world.kubectl("apply", "-f", str(EXAMPLE))
    world.wait_phase("Succeeded", 600)
    accuracy = float(world.status()["progress"]["testAccuracy"])
    check(accuracy >= 0.85, f"test accuracy {accuracy}, expected at least 0.85")
    progress = world.status()["progress"]
    check(progress["step"] == progress["totalSteps"], f"{progress['step']} of {progress['totalSteps']} updates")
    world.wait("the pods to be removed", lambda: not world.pods(), 60)
    return f"accuracy {accuracy}"


@scenario
def scale(world):
    """Scaling moves no other pod; suspending and resuming; deleting leaves nothing."""
    world.job()
    world.wait_ready(3)
    world.wait_progress()
    before = world.pods()
    world.kubectl("scale", "trainingjob/lenet", "--replicas=5")
    world.wait_ready(5)
    grown = world.pods()
    check(len(grown) == 7 and all(grown[name] == uid for name, uid in before.items()), f"{before} became {grown}")
    world.kubectl("scale", "trainingjob/lenet", "--replicas=1")
    world.wait("four workers to go", lambda: len(world.pods()) == 3, 60)
    shrunk = world.pods()
    check(all(grown[name] == uid for name, uid in shrunk.items()), f"{grown} became {shrunk}")
    check(world.status()["restarts"]["total"] == 0, f"restarts: {world.status()['restarts']}")
    world.wait_progress()
    world.kubectl("patch", "trainingjob", "lenet", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    world.wait_phase("Suspended")
    world.wait("all pods to go", lambda: not world.pods(), 60)
    world.kubectl("patch", "trainingjob", "lenet", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    world.wait_ready(1)
    world.kubectl("delete", "trainingjob", "lenet", "--wait=true", "--timeout=60s")
    world.wait("everything to go", lambda: not (world.pods() or world.get("services") or world.get("pdb")), 90)
    return ""


@scenario
def worker_failures(world):
    """A pod deleted and one evicted: replaced, told apart, not counted; nobody else restarts."""
    world.job()
    world.wait_ready(3)
    before = world.pods()
    world.kubectl("delete", "pod", "lenet-worker-0", "--wait=false")
    world.wait("worker-0 to be replaced", lambda: world.pods().get("lenet-worker-0", before["lenet-worker-0"]) !=
               before["lenet-worker-0"], 60)
    world.wait_ready(3)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": "lenet-worker-1", "namespace": world.namespace}}
    world.kubectl("create", "--raw", f"/api/v1/namespaces/{world.namespace}/pods/lenet-worker-1/eviction", "-f", "-",
                  stdin=json.dumps(eviction))
    world.wait("worker-1 to be replaced", lambda: world.pods().get("lenet-worker-1", before["lenet-worker-1"]) !=
               before["lenet-worker-1"], 60)
    world.wait_ready(3)
    status = world.status()
    causes = {failure["index"]: failure["cause"] for failure in status["failures"]}
    check(causes == {0: "Deleted", 1: "DisruptionTarget"}, f"causes: {causes}")
    check(status["restarts"] == {"total": 2, "counted": 0}, f"restarts: {status['restarts']}")
    after = world.pods()
    for name in ("lenet-coordinator-0", "lenet-ps-0", "lenet-worker-2"):
        check(after[name] == before[name], f"{name} was restarted")
    check(len(world.events("WorkerLost")) == 2, f"{len(world.events('WorkerLost'))} events WorkerLost, expected 2")
    world.wait_progress()
    return f"recovery {status.get('recovery', {}).get('lastDurationSeconds')} s"


@scenario
def exit_codes(world):
    """Workers that exit 3, that are killed for memory, whose image is not there, that fit on no node."""
    quick = {"failurePolicy": {"maxRestartsPerReplica": 1, "backoff": {"initialSeconds": 1, "maxSeconds": 1}}}

    def template(container=None, **pod):
        return {"replicas": 1, "template": {"spec": {**pod, "containers": [{"name": "trainer", **(container or {})}]}}}

    world.job("exits", worker=template({"command": ["sh", "-c", "echo the reason; exit 3"]}), **quick)
    world.job("greedy", worker=template({"resources": {"limits": {"memory": "40Mi"}}}), **quick)
    world.job("noimage", worker=template({"image": "downpour.dev/none:e2e"}))
    world.job("nonode", worker=template(nodeSelector={"no": "such"}))
    world.wait_phase("Failed", 120, "exits")
    failure = world.status("exits")["failures"][0]
    check(failure["exitCode"] == 3 and failure["counted"] and "the reason" in failure["message"], f"{failure}")
    check(world.condition("Failed", "exits")[1] == "RestartLimitExceeded", f"{world.condition('Failed', 'exits')}")
    world.wait_phase("Failed", 120, "greedy")
    cause = world.status("greedy")["failures"][0]["cause"]
    check(cause == "OOMKilled", f"cause {cause}, expected OOMKilled")
    for name, expected in (("noimage", ("ErrImageNeverPull", "ImagePullBackOff", "ErrImagePull")),
                           ("nonode", ("Unschedulable",))):
        def test():
            found = world.condition("Scheduled", name)
            return True if found and found[0] == "False" and found[1] in expected else f"not yet: {found}"
        world.wait(f"{name} to say why it waits", test, 90)
    return ""


@scenario
def operator_killed(world):
    """The operator is killed at 20 random points while a job starts, trains and loses pods: no pod twice, no restart."""
    chance = random.Random(4)
    world.job(workers=2)
    for kill in range(20):
        time.sleep(chance.uniform(0, 1.5))  # the moment is what is random here
        pods = operator_pods(world.driver)
        if pods:
            world.driver.kubectl("-n", SYSTEM, "delete", "pod", *pods, "--grace-period=0", "--force", "--wait=false")
        if kill == 10:
            world.kubectl("delete", "pod", "lenet-worker-1", "--wait=false", check=False)
    world.wait_ready(2, 180)
    world.wait_progress()
    names = sorted(world.pods())
    check(names == ["lenet-coordinator-0", "lenet-ps-0", "lenet-worker-0", "lenet-worker-1"], f"{names}")
    incarnations = world.status()["incarnations"]
    check(incarnations["ps-0"] == 1 and incarnations["coordinator-0"] == 1, f"{incarnations}")
    return f"incarnations {incarnations}"


@scenario
def leader_fails(world):
    """The leader dies: the other one leads, and a pod that is lost then is replaced."""
    world.job(workers=2)
    world.wait_ready(2)
    first = leader(world.driver)
    before = world.pods()
    begun = time.monotonic()
    world.driver.kubectl("-n", SYSTEM, "delete", "pod", first, "--grace-period=0", "--force", "--wait=false")
    world.kubectl("delete", "pod", "lenet-worker-0", "--wait=false")
    world.wait("the pod to be replaced by the next leader",
               lambda: world.pods().get("lenet-worker-0", before["lenet-worker-0"]) != before["lenet-worker-0"], 60)
    taken = time.monotonic() - begun
    check(leader(world.driver) != first, "the leader did not change")
    world.wait_ready(2)
    return f"replaced {taken:.1f} s after the leader died"


@scenario
def api_server_restarts(world):
    """The API server is away for a while: training goes on, and the operator is back within 15 s of its return."""
    world.job(workers=2)
    world.wait_ready(2)
    before = world.pods()
    world.driver.stop("kube-apiserver", 0)  # as by a crash: in good order it takes its address out of the service first
    time.sleep(10)  # how long it is away
    world.driver.start("kube-apiserver")
    begun = time.monotonic()
    # Something that only the operator has to see: a pod that ends has to be seen by the kubelet too, which may take
    # a minute to come back.
    world.kubectl("scale", "trainingjob/lenet", "--replicas=3")
    world.wait("the new worker's pod to be made", lambda: "lenet-worker-2" in world.pods(), 60)
    taken = time.monotonic() - begun
    check(taken <= 15, f"{taken:.1f} s, expected at most 15 s")
    world.wait_ready(3, 150)
    after = world.pods()
    check(all(after[name] == before[name] for name in before), "another pod was restarted")
    world.wait_progress(seconds=90)
    return f"acts {taken:.1f} s after its return"


@scenario
def obstacles(world):
    """A name that somebody else owns, a quota: a clear condition, and it goes on when the obstacle is gone."""
    world.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lenet-worker-0"},
                 "spec": {"terminationGracePeriodSeconds": 0,
                          "containers": [{"name": "other", "image": "downpour.dev/server:e2e",
                                          "imagePullPolicy": "Never", "command": ["sh", "-c", "sleep 3600"]}]}})
    world.job(workers=1)

    def blocked(reason):
        found = world.condition("Blocked")
        return True if found and found[:2] == ("True", reason) else f"not yet: {found}"
    world.wait("a NameConflict", lambda: blocked("NameConflict"), 60)
    world.kubectl("delete", "pod", "lenet-worker-0", "--wait=true")
    world.wait_ready(1, 120)
    check(world.status()["restarts"]["total"] == 0, f"restarts: {world.status()['restarts']}")
    world.kubectl("delete", "trainingjob", "lenet", "--wait=true", "--timeout=60s")
    world.wait("its pods to go", lambda: not world.pods(), 60)
    world.kubectl("create", "quota", "small", "--hard=pods=2")
    world.job(workers=1)
    world.wait("QuotaExceeded", lambda: blocked("QuotaExceeded"), 60)
    world.kubectl("delete", "quota", "small")
    world.wait_ready(1, 150)
    return ""


@scenario
def upgrade(world):
    """helm upgrade while a job trains: it goes on, and no pod of it is restarted."""
    world.job(workers=2)
    world.wait_ready(2)
    before = world.pods()
    helm(world.driver, "upgrade", "downpour", str(CHART), "--set", "images.tag=e2e", "--set", "images.pullPolicy=Never",
         "--set", "workers=4", "--wait", "--timeout", "120s")
    world.wait_progress()
    check(world.pods() == before, "a pod of the job was restarted")
    return ""


def run_one(driver, name):
    world = World(driver, "e2e-" + name.replace("_", "-"))
    driver.kubectl("create", "namespace", world.namespace)
    begun = time.monotonic()
    try:
        detail = SCENARIOS[name](world)
        print(f"ok      {name} ({time.monotonic() - begun:.0f} s) {detail}", flush=True)
        return True
    except (ClusterError, Failure, KeyError, IndexError) as error:
        print(f"FAILED  {name} ({time.monotonic() - begun:.0f} s): {type(error).__name__}: {error}", flush=True)
        print(world.kubectl("get", "trainingjobs,pods", check=False), flush=True)
        print(driver.kubectl("-n", SYSTEM, "logs", "-l", "app.kubernetes.io/name=downpour", "--tail=8", check=False),
              flush=True)
        return False
    finally:
        driver.kubectl("delete", "namespace", world.namespace, "--wait=true", "--timeout=120s", seconds=130,
                       check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO")
    parser.add_argument("--list", action="store_true", help="print their names")
    parser.add_argument("--state", default=str(ROOT / "build" / "e2e"), metavar="FOLDER", help="of the cluster")
    arguments = parser.parse_args()
    if arguments.list:
        for name, function in SCENARIOS.items():
            print(f"{name:20} {function.__doc__}")
        return 0
    unknown = [name for name in arguments.scenarios if name not in SCENARIOS]
    if unknown:
        parser.error(f"no scenario {unknown[0]}; there are {', '.join(SCENARIOS)}")
    driver = BareDriver(arguments.state)
    install(driver)
    names = arguments.scenarios or list(SCENARIOS)
    passed = sum(run_one(driver, name) for name in names)
    print(f"{passed} of {len(names)} scenarios hold")
    helm(driver, "uninstall", "downpour", "--wait", check=False)
    return 0 if passed == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
