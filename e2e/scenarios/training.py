"""A job from beginning to end: training, scaling, suspending, deleting."""

from world import EXAMPLE, check, scenario


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
    world.note(accuracy=accuracy)


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
