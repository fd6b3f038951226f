"""Nodes are drained."""

from driver.base import wait_for
from scenarios.nodes import SECOND, nodes
from world import check, scenario

PS = "lenet-ps-0"


def train_with_ps_on_second(world, **parameter_server):
    """A job that trains, its ps on the second node; the ps's uid."""
    driver = world.driver
    check(nodes(driver).get(SECOND), f"nodes: {nodes(driver)}; `cluster.py up --nodes 2` is needed")
    pod = {"spec": {"nodeSelector": {"kubernetes.io/hostname": SECOND}, "terminationGracePeriodSeconds": 3,
                    "containers": [{"name": "trainer"}]}}
    world.job(workers=1, parameterServer={"replicas": 1, "template": pod, **parameter_server})
    world.wait_ready(1, 150)
    return world.pods()[PS]


def drain(world, seconds, node=SECOND):
    """Of the job's pods alone, as the operator may run there too."""
    world.driver.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force",
                         "--pod-selector=training.downpour.dev/job-name=lenet", f"--timeout={seconds}s",
                         seconds=seconds + 15)


@scenario
def drain_allow(world):
    """A drain of the node of a ps waits and is told; it goes through as soon as somebody allows it."""
    uid = train_with_ps_on_second(world)
    try:
        world.wait("the budget", lambda: world.get("pdb", "lenet-ps"), 120)
        world.driver.kubectl("cordon", SECOND)
        told = world.wait("DrainWaits", lambda: world.condition("DrainWaits"), 30)
        check(told[:2] == ("True", "NodeCordoned") and "all progress" in told[2], f"DrainWaits: {told}")
        check(world.pods()[PS] == uid, "the ps was evicted while it was protected")
        world.patch({"parameterServer": {"disruption": "Allow"}})
        drain(world, 90)
        wait_for("the ps to be replaced", lambda: world.pods().get(PS, uid) != uid, 60, 0.3)
    finally:
        world.driver.kubectl("uncordon", SECOND)
    world.wait_ready(1, 150)
    world.check_told_once("DrainWaits")
    world.note(drain_waits=told[2])


@scenario
def drain_protect(world):
    """A drain of the node of a ps that nobody allows ends all the same, after maxProtectSeconds."""
    uid = train_with_ps_on_second(world, maxProtectSeconds=30)
    try:
        world.wait("the budget", lambda: world.get("pdb", "lenet-ps"), 120)
        drain(world, 150)
        wait_for("the ps to be replaced", lambda: world.pods().get(PS, uid) != uid, 60, 0.3)
    finally:
        world.driver.kubectl("uncordon", SECOND)
    world.wait_ready(1, 150)
    for reason in ("DrainWaits", "DrainLetThrough"):
        world.check_told_once(reason)
    world.wait("the budget to be back", lambda: world.get("pdb", "lenet-ps"), 120)
