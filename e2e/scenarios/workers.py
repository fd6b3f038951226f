"""Workers that fail, and that cannot start."""

import json

from world import check, scenario


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
    world.note(recovery_seconds=status.get("recovery", {}).get("lastDurationSeconds"))


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
