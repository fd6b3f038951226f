"""Somebody else stands in the way."""

from world import check, scenario


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
