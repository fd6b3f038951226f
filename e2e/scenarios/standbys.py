"""Parameter servers with standbys: what is lost costs nothing, and how many there are changes while a job trains."""

import contextlib
import os
import signal
import time

from driver.base import ClusterError, run, wait_for
from scenarios.checkpoints import saved, shared_folder, wait_checkpoint, wait_condition, wait_rolled_back
from scenarios.drains import drain
from scenarios.nodes import SECOND, nodes, tolerate_for
from world import DOWNPOUR, check, ends_exactly, fails_after, leader, operator_pods, read_ledger, scale_operator, scenario

WAIT = 180  # seconds for a replacement to be there and for standbys to be made anew


def wait_protected(world, seconds=WAIT):
    wait_condition(world, "Protected", "True", "InSync", seconds)


def trains_protected(world, servers=3, workers=2, epochs=10, parameter_server=None, **spec):
    """A job of which every slice has a standby. Returns the manifest and the pods."""
    parts = {"replicas": servers, "replicationFactor": 2, **(parameter_server or {})}
    manifest, _ = world.trains(workers=workers, epochs=epochs, parameterServer=parts,
                               failurePolicy=fails_after(1000, maxRestarts=1000, terminationTimeoutSeconds=5), **spec)
    wait_protected(world)
    return manifest, world.pods()


def check_nothing_lost(world):
    lost = world.condition("ParametersLost")
    check(lost is None or lost[1] == "ParametersKept", f"ParametersLost: {lost}")
    check("recovery" not in world.status() or "lostUpdates" not in world.status()["recovery"], f"{world.status().get('recovery')}")


def check_others_stay(before, after, *replaced):
    check({name for name in before if after.get(name) != before[name]} == set(replaced), f"{before} became {after}")


@scenario
def standby_ps_deleted(world):
    """A ps whose slices have standbys is deleted, twice: training goes on at once, nothing is rolled back, others take
    over as standbys; the ledger is exact."""
    manifest, before = trains_protected(world)
    for name in ("lenet-ps-0", "lenet-ps-2"):
        old = world.pods()[name]
        step = world.step()
        world.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--wait=false")
        begun = time.monotonic()
        world.wait("updates to be applied", lambda: world.step() > step, 60)
        told = time.monotonic() - begun
        world.wait_replaced(name, old, WAIT)
        wait_protected(world)
        world.note(**{f"{name}_progress_told_after_seconds": round(told, 1),
                      f"{name}_protected_after_seconds": round(time.monotonic() - begun, 1)})
    check(len(world.events("PsLost")) > 0, "no event PsLost")
    check_nothing_lost(world)
    check_others_stay(before, world.pods(), "lenet-ps-0", "lenet-ps-2")
    ends_exactly(world, manifest)


@scenario
def standby_node_lost(world):
    """The node of one of two ps is gone: the other goes on with all slices; the old one changes nothing any more."""
    driver = world.driver
    check(nodes(driver).get(SECOND), f"nodes: {nodes(driver)}; `cluster.py up --nodes 2` is needed")
    stays = {"spec": {"nodeSelector": {"kubernetes.io/hostname": "node-0"}, "terminationGracePeriodSeconds": 3,
                      "containers": [{"name": "trainer"}]}}
    moves = {"spec": {"tolerations": tolerate_for(3), "terminationGracePeriodSeconds": 3, "containers": [{"name": "trainer"}]}}
    manifest, _ = trains_protected(world, 2, 1, 8, {"template": moves}, worker={"replicas": 1, "template": stays},
                                   coordinator={"template": stays})
    placed = {name: world.get("pods", name)["spec"]["nodeName"] for name in ("lenet-ps-0", "lenet-ps-1")}
    check(sorted(placed.values()) == ["node-0", SECOND], f"ps are on {placed}: they are to be apart")
    name = next(name for name in placed if placed[name] == SECOND)
    old = world.pods()[name]
    try:
        driver.connect(SECOND, False)
        begun = time.monotonic()
        step = world.step()
        world.wait("updates to be applied without it", lambda: world.step() > step + 50, 60)
        world.note(progress_told_after_seconds=round(time.monotonic() - begun, 1))
        world.wait_replaced(name, old, 150)
        wait_protected(world)
        check(driver.pod_processes(old, "downpour-server"), "the old ps ended by itself")
    finally:
        driver.connect(SECOND, True)
    wait_for("the old ps to end", lambda: not driver.pod_processes(old, "downpour-server"), 120, 0.3)
    wait_for(f"{SECOND} to be Ready", lambda: nodes(driver)[SECOND], 120, 0.5)
    check_nothing_lost(world)
    ends_exactly(world, manifest)


@scenario
def standby_two_lost(world):
    """Two ps at once: the job is Degraded, and goes back to a checkpoint if a slice was on both; the ledger is exact."""
    with shared_folder() as folder:
        spec = saved(folder, 3)
        spec["parameterServer"]["replicationFactor"] = 2
        manifest = world.job(workers=2, epochs=10, failurePolicy=fails_after(1000, maxRestarts=1000), **spec)
        world.wait_ready(2, 150)
        wait_protected(world)
        before = wait_checkpoint(world, 100)
        with world.watched("trainingjob", "lenet", '--output=jsonpath={.status.conditions[?(@.type=="Protected")].reason}{"\\n"}') as lines:
            world.kubectl("delete", "pod", "lenet-ps-0", "lenet-ps-1", "--grace-period=0", "--force", "--wait=false")
            recovery = wait_rolled_back(world, before["updates"])
            wait_protected(world)
        check("Degraded" in lines, f"reasons of Protected: {lines}")
        world.note(lost_updates=recovery["lostUpdates"], recovery_seconds=recovery["lastDurationSeconds"])
        ends_exactly(world, manifest)


@contextlib.contextmanager
def without_operator(world):
    scale_operator(world.driver, 0)
    try:
        yield
    finally:
        scale_operator(world.driver, 2)
        world.wait("an operator to lead", lambda: leader(world.driver) in operator_pods(world.driver), 60)


@contextlib.contextmanager
def without_api_server(world):
    world.driver.stop("kube-apiserver", 0)
    try:
        yield
    finally:
        world.driver.start("kube-apiserver")


@scenario
def standby_nobody_looks(world):
    """A ps is killed while there is no operator, another while there is no API server: training goes on, as what decides
    is in the job; whoever comes back replaces them."""
    manifest, before = trains_protected(world, epochs=16)
    for away, name in ((without_operator, "lenet-ps-0"), (without_api_server, "lenet-ps-1")):
        uid = world.get("trainingjob", "lenet")["metadata"]["uid"]
        others = [address for server, address in world.servers().items() if server != name]

        def applied():
            try:
                return read_ledger(manifest, uid, others)["applied"]
            except ClusterError:
                return 0  # a slice is nobody's for a moment
        pids = world.driver.pod_processes(world.pods()[name], "downpour-server")
        with away(world):
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            begun = time.monotonic()
            before_that = world.wait("the tables of the others to hold every slice", applied, 30)
            world.wait("updates to be applied without it", lambda: applied() > before_that + 20, 60)
            world.note(**{f"{away.__name__}_updates_after_seconds": round(time.monotonic() - begun, 1)})
        world.wait_replaced(name, before[name], WAIT)
        wait_protected(world)
    check_nothing_lost(world)
    check_others_stay(before, world.pods(), "lenet-ps-0", "lenet-ps-1")
    ends_exactly(world, manifest)


@scenario
def standby_scaled(world):
    """The number of ps goes 2, 4, 3 by `downpour scale` and kubectl while it trains: no other pod is touched, those that
    leave hold nothing, nothing is rolled back; the ledger is exact."""
    manifest, before = trains_protected(world, 2)

    def wait_placed(count):
        def test():
            placed = world.status().get("slices", {}).get("parameterServers", [])
            pods = sum("-ps-" in name for name in world.pods())
            return len(placed) == count and pods == count or f"not yet: {placed} hold slices, {pods} pods"
        begun = time.monotonic()
        world.wait(f"{count} ps to hold slices", test, WAIT)
        wait_protected(world)
        world.note(**{f"to_{count}_ps_seconds": round(time.monotonic() - begun, 1)})

    said = run([DOWNPOUR, "scale", "lenet", "-n", world.namespace, "--kubeconfig", world.driver.kubeconfig, "--ps", "4"])
    check(said.strip() == "lenet: ps 2 -> 4", said)
    wait_placed(4)
    check_others_stay(before, world.pods())
    world.patch({"parameterServer": {"replicas": 3}})
    wait_placed(3)
    check_others_stay(before, world.pods())
    check_nothing_lost(world)
    check(world.status()["restarts"]["total"] == 0, f"restarts: {world.status()['restarts']}")
    try:
        world.patch({"parameterServer": {"replicas": 1}})
        check(False, "1 ps was accepted, of a job whose slices are to be on two")
    except ClusterError as refused:
        check("replicationFactor" in str(refused), str(refused))
    ends_exactly(world, manifest)


@scenario
def standby_drain(world):
    """The node of a ps is drained: what it holds goes elsewhere first, the drain ends soon, and costs nothing."""
    driver = world.driver
    check(nodes(driver).get(SECOND), f"nodes: {nodes(driver)}; `cluster.py up --nodes 2` is needed")
    manifest, before = trains_protected(world, 3)
    there = [name for name in before if "-ps-" in name and world.get("pods", name)["spec"]["nodeName"] == SECOND]
    check(there, f"no ps is on {SECOND}, though they are to be apart")
    try:
        world.wait("the budget", lambda: world.get("pdb", "lenet-ps"), 120)
        begun = time.monotonic()
        drain(world, 120)
        taken = time.monotonic() - begun
        step = world.step()
        world.wait("updates to be applied", lambda: world.step() > step, 60)
    finally:
        driver.kubectl("uncordon", SECOND)
    wait_protected(world)
    check_nothing_lost(world)
    world.note(drained_after_seconds=round(taken, 1), drained=len(there))
    ends_exactly(world, manifest)
