"""A job from beginning to end: training, scaling, suspending, deleting."""

from world import EXAMPLE, check, check_accuracy, downpour_run, ends_exactly, scenario

# Of the test accuracy: what the manifest promises at least, and how far two runs of it may lie apart. Asynchronous
# training is not the same bit by bit: 0.89 and 0.90 were seen, and after fewer epochs once 0.04 less than usual.
ACCURACY, TOLERANCE = 0.85, 0.04


@scenario
def train(world):
    """The example as it is, on the cluster and under `downpour run`: the same number of updates, the same accuracy."""
    with world.watched("trainingjobs") as lines:
        world.kubectl("apply", "-f", str(EXAMPLE))
        world.wait_phase("Succeeded", 600)
    complete = world.condition("Complete")
    check(complete and complete[0] == "True", f"Complete: {complete}")
    # NAME PHASE WORKERS PS STEP RESTARTS AGE
    rows = [line.split() for line in lines]
    steps = {row[4] for row in rows if len(row) == 7 and row[1] == "Running"}
    check(rows[0][1] == "PHASE" and len(steps) >= 2, f"kubectl get trainingjobs -w: {lines}")
    progress = world.status()["progress"]
    local = downpour_run(EXAMPLE)
    check(progress["step"] == progress["totalSteps"] == local["ledger"]["applied"],
          f"{progress['step']} of {progress['totalSteps']} updates, under `downpour run` {local['ledger']}")
    world.note(updates=progress["step"])
    check_accuracy(world, local, ACCURACY, TOLERANCE)
    writer = f"lenet-worker-{world.status()['output']['worker']}"
    world.wait("all pods but that of the model to be removed", lambda: list(world.pods()) == [writer], 60)


@scenario
def scale(world):
    """3, 5 and 1 workers while it trains: no other pod moves, the tables of the ps have each update exactly once."""
    manifest, before = world.trains(epochs=4)
    world.kubectl("scale", "trainingjob/lenet", "--replicas=5")
    world.wait_ready(5)
    grown = world.pods()
    check(len(grown) == 7 and all(grown[name] == uid for name, uid in before.items()), f"{before} became {grown}")
    world.kubectl("scale", "trainingjob/lenet", "--replicas=1")
    world.wait("four workers to go", lambda: len(world.pods()) == 3, 60)
    shrunk = world.pods()
    check(all(grown[name] == uid for name, uid in shrunk.items()), f"{grown} became {shrunk}")
    check(world.status()["restarts"]["total"] == 0, f"restarts: {world.status()['restarts']}")
    ends_exactly(world, manifest)


@scenario
def suspend(world):
    """Suspending takes all pods, resuming brings them back, deleting leaves nothing, not even the disruption budget."""
    world.job(workers=2)
    world.wait_ready(2)
    world.patch({"suspend": True})
    world.wait_phase("Suspended")
    world.wait("all pods to go", lambda: not world.pods(), 60)
    world.patch({"suspend": False})
    world.wait_ready(2)
    world.wait_progress()
    world.wait("evictions of the ps to be held up", lambda: world.get("pdb"), 90)
    world.kubectl("delete", "trainingjob", "lenet", "--wait=true", "--timeout=60s")
    world.wait_gone(90)
