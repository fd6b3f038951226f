"""The operator and the API server fail."""

import random
import time

from world import SYSTEM, check, leader, operator_pods, scenario


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
    world.note(incarnations=incarnations)


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
    world.note(replaced_after_seconds=round(taken, 1))


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
    world.note(acts_after_seconds=round(taken, 1))
