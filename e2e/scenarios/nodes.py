"""Nodes fail."""

import time

from driver.base import wait_for
from world import check, scenario

SECOND = "node-1"


def nodes(driver):
    """Ready, by name."""
    text = driver.kubectl("get", "nodes", "-o", 'jsonpath={range .items[*]}{.metadata.name} '
                          '{.status.conditions[?(@.type=="Ready")].status}{"\\n"}{end}')
    return {line.split()[0]: line.split()[1] == "True" for line in text.splitlines()}


def tolerate_for(seconds):
    return [{"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute",
             "tolerationSeconds": seconds} for what in ("unreachable", "not-ready")]


@scenario
def node_lost(world):
    """Nobody reaches a node any more: its worker is replaced elsewhere, and when it is back, the old one ends."""
    driver = world.driver
    check(nodes(driver).get(SECOND), f"nodes: {nodes(driver)}; `cluster.py up --nodes 2` is needed")
    pod = {"spec": {"tolerations": tolerate_for(3), "terminationGracePeriodSeconds": 3,
                    "containers": [{"name": "trainer"}]}}
    try:
        driver.kubectl("cordon", SECOND)
        manifest = world.job(worker={"replicas": 2, "template": pod},
                             failurePolicy={"terminationTimeoutSeconds": 5})
        world.wait_ready(2)
        driver.kubectl("cordon", "node-0")
        driver.kubectl("uncordon", SECOND)
        world.kubectl("scale", "trainingjob/lenet", "--replicas=3")
        world.wait_ready(3)
        driver.kubectl("uncordon", "node-0")
        before = world.pods()
        zombie = world.get("pods", "lenet-worker-2")
        check(zombie["spec"]["nodeName"] == SECOND, f"worker-2 is on {zombie['spec']['nodeName']}")
        pids = driver.pod_processes(zombie["metadata"]["uid"], "downpour-worker")
        check(len(pids) == 1, f"processes of worker-2: {pids}")
        begun = time.monotonic()
        driver.connect(SECOND, False)
        world.wait_progress(seconds=30)  # the others train on
        world.wait_replaced("lenet-worker-2", zombie["metadata"]["uid"], 150)
        replaced = time.monotonic() - begun
        check(world.get("pods", "lenet-worker-2")["spec"]["nodeName"] == "node-0", "replaced on a node that is lost")
        world.wait_ready(3)
        check(driver.pod_processes(zombie["metadata"]["uid"], "downpour-worker") == pids, "the zombie ended by itself")
    finally:
        driver.connect(SECOND, True)
        driver.kubectl("uncordon", "node-0", SECOND)
    wait_for("the zombie to end", lambda: not driver.pod_processes(zombie["metadata"]["uid"], "downpour-worker"), 120,
             0.3)
    wait_for(f"{SECOND} to be Ready", lambda: nodes(driver)[SECOND], 120, 0.5)
    world.wait_progress()
    after = world.pods()
    check({name for name in after if after[name] != before[name]} == {"lenet-worker-2"}, f"{before} became {after}")
    status = world.status()
    check([(one["index"], one["counted"]) for one in status["failures"]] == [(2, False)], f"{status['failures']}")
    found = world.ledger(manifest)
    check(found["applied"] > 0 and found["duplicated"] == 0, f"ledger: {found}")
    world.note(cause=status["failures"][0]["cause"], replaced_after_seconds=round(replaced, 1),
               duplicated=found["duplicated"])
