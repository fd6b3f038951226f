"""Jobs without parameter servers: workers come and go, and each update is in every worker's model, once."""

import time

from driver.base import wait_for
from scenarios.checkpoints import pod_with, shared_folder, wait_condition
from scenarios.cli import why
from scenarios.nodes import SECOND, nodes, tolerate_for
from world import check, ends_exactly, fails_after, scenario

WAIT = 120  # seconds for a ring to be as wanted


def ring_job(world, workers, epochs, optimizer=None, **spec):
    """LeNet's, which goes on with one worker. Returns the manifest."""
    spec = {"elastic": {"minReplicas": 1, "maxReplicas": 4}, **spec}
    manifest = world.manifest(workers=workers, epochs=epochs, strategy="AllReduce",
                              failurePolicy=fails_after(1000, maxRestarts=1000, terminationTimeoutSeconds=5), **spec)
    del manifest["spec"]["parameterServer"]
    manifest["spec"]["update"] = {"updatesPerStep": 2, "optimizer": optimizer or {"type": "SGD", "learningRate": 0.1}}
    world.apply(manifest)
    return manifest


def wait_ring(world, members, seconds=WAIT):
    """Until so many workers are in a ring, and train. Returns after how many seconds."""
    begun = time.monotonic()

    def formed():
        ring = world.status().get("ring", {})
        return True if ring.get("formed") and ring.get("members") == members else f"not yet: {ring}"
    world.wait(f"a ring of {members}", formed, seconds)
    world.wait_progress()
    return round(time.monotonic() - begun, 1)


def check_kept(world):
    lost = world.condition("ParametersLost")
    check(lost is None or lost[1] == "ParametersKept", f"ParametersLost: {lost}")


@scenario
def all_reduce_workers(world):
    """Scaled up and down, a worker deleted, one killed, the coordinator deleted: nothing begins anew, the ledger is exact."""
    manifest = ring_job(world, 2, 30)
    wait_ring(world, 2)
    check(not world.servers(role="ps"), f"parameter servers: {world.servers(role='ps')}")
    figures = {}
    for workers in (3, 2):
        world.kubectl("scale", "trainingjob/lenet", f"--replicas={workers}")
        figures[f"ring_of_{workers}_after_seconds"] = wait_ring(world, workers)
    old = world.pods()["lenet-worker-1"]
    world.kubectl("delete", "pod", "lenet-worker-1", "--grace-period=0", "--force", "--wait=false")
    world.wait_replaced("lenet-worker-1", old)
    figures["ring_after_a_deletion_after_seconds"] = wait_ring(world, 2)
    old = world.pods()["lenet-coordinator-0"]
    world.kubectl("delete", "pod", "lenet-coordinator-0", "--wait=false")
    world.wait_replaced("lenet-coordinator-0", old)
    wait_ring(world, 2)
    why(world, "lenet", "ring of 2/2")
    world.note(**figures)
    check_kept(world)
    ends_exactly(world, manifest)


@scenario
def all_reduce_divided(world):
    """Two workers have each part of the optimizer's state: scaled up and down, one killed, nothing begins anew."""
    manifest = ring_job(world, 3, 30, optimizer={"type": "Adam", "learningRate": 0.001},
                        elastic={"minReplicas": 1, "maxReplicas": 4, "stateCopies": 2})
    wait_ring(world, 3)
    figures = {}
    for workers in (4, 2):
        world.kubectl("scale", "trainingjob/lenet", f"--replicas={workers}")
        figures[f"ring_of_{workers}_after_seconds"] = wait_ring(world, workers)
    old = world.pods()["lenet-worker-0"]
    world.kubectl("delete", "pod", "lenet-worker-0", "--grace-period=0", "--force", "--wait=false")
    world.wait_replaced("lenet-worker-0", old)
    figures["ring_after_a_deletion_after_seconds"] = wait_ring(world, 2)
    why(world, "lenet", "ring of 2/2")
    world.note(**figures)
    check_kept(world)
    ends_exactly(world, manifest)


@scenario
def all_reduce_node_lost(world):
    """The node of one of two workers is gone: the other goes on at once; the old worker changes nothing any more."""
    driver = world.driver
    check(nodes(driver).get(SECOND), f"nodes: {nodes(driver)}; `cluster.py up --nodes 2` is needed")
    stays = {"spec": {"nodeSelector": {"kubernetes.io/hostname": "node-0"}}}
    moves = {"spec": {"tolerations": tolerate_for(3), "terminationGracePeriodSeconds": 3, "containers": [{"name": "trainer"}]}}
    try:
        driver.kubectl("cordon", SECOND)
        manifest = ring_job(world, 1, 40, worker={"replicas": 1, "template": moves}, coordinator={"template": stays})
        wait_ring(world, 1)
        driver.kubectl("cordon", "node-0")
        driver.kubectl("uncordon", SECOND)
        world.kubectl("scale", "trainingjob/lenet", "--replicas=2")
        wait_ring(world, 2)
        driver.kubectl("uncordon", "node-0")
        zombie = world.get("pods", "lenet-worker-1")
        check(zombie["spec"]["nodeName"] == SECOND, f"worker-1 is on {zombie['spec']['nodeName']}")
        pids = driver.pod_processes(zombie["metadata"]["uid"], "downpour-worker")
        begun = time.monotonic()
        driver.connect(SECOND, False)
        world.wait_replaced("lenet-worker-1", zombie["metadata"]["uid"], 150)
        wait_ring(world, 2)
        world.note(whole_again_after_seconds=round(time.monotonic() - begun, 1))
        check(driver.pod_processes(zombie["metadata"]["uid"], "downpour-worker") == pids, "the zombie ended by itself")
    finally:
        driver.connect(SECOND, True)
        driver.kubectl("uncordon", "node-0", SECOND)
    wait_for("the zombie to end", lambda: not driver.pod_processes(zombie["metadata"]["uid"], "downpour-worker"), 120, 0.3)
    wait_for(f"{SECOND} to be Ready", lambda: nodes(driver)[SECOND], 120, 0.5)
    check_kept(world)
    ends_exactly(world, manifest)


@scenario
def all_reduce_suspend(world):
    """Suspended it makes a checkpoint first; resumed it goes on from it; all workers lost at once, from the newest."""
    with shared_folder() as folder:
        manifest = ring_job(world, 2, 24, coordinator={"template": pod_with(folder)},
                            worker={"replicas": 2, "template": pod_with(folder)},
                            checkpoint={"uri": "/checkpoints", "intervalSeconds": 5})
        wait_ring(world, 2)
        world.wait("200 updates", lambda: world.step() > 200, 90)
        before = world.step()
        world.patch({"suspend": True})
        wait_condition(world, "Suspended", "True", "SuspendRequested", 60)
        made = world.status()["checkpoint"]
        check(made["updates"] >= before, f"{made}, but {before} updates were applied before")
        world.wait("all pods to go", lambda: not world.pods(), 60)
        world.patch({"suspend": False})
        resumed = wait_condition(world, "Resumed", "True", "FromCheckpoint", 150)
        check(resumed == f"resumed from {made['newest']} at update {made['updates']}", f"{resumed}, expected {made}")
        world.wait("another checkpoint", lambda: world.status()["checkpoint"]["updates"] > made["updates"], 60)
        world.kubectl("delete", "pod", "lenet-worker-0", "lenet-worker-1", "--grace-period=0", "--force", "--wait=false")
        world.wait("it to go back", lambda: (world.condition("ParametersLost") or ("", ""))[1] == "RolledBack", 60)
        wait_ring(world, 2)
        world.note(lost_updates=world.status()["recovery"]["lostUpdates"])
        ends_exactly(world, manifest)
