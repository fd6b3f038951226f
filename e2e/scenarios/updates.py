"""How updates are applied: another mode while a job trains, and Sandblaster L-BFGS."""

from driver.base import ROOT, ClusterError
from world import check, check_accuracy, downpour_run, ends_exactly, scenario

LBFGS = ROOT / "deploy" / "examples" / "lbfgs.yaml"


@scenario
def update_mode(world):
    """A job in three modes one after another, a worker lost on the way: each update is applied once, no other pod moves."""
    manifest, before = world.trains(epochs=20)

    def change(update, expected):
        world.patch({"update": update})
        world.wait(f"updates to be applied in the mode {expected}",
                   lambda: world.status().get("update") == expected or f"not yet: {world.status().get('update')}")
        world.wait_progress()

    change({"mode": "Synchronous", "updatesPerStep": 3}, {"mode": "Synchronous", "updatesPerStep": 3})
    world.kubectl("delete", "pod", "lenet-worker-0", "--wait=false")
    world.wait_replaced("lenet-worker-0", before["lenet-worker-0"])
    world.wait_ready(3)
    world.wait_progress()
    change({"mode": "BoundedStaleness", "updatesPerStep": None, "staleness": 2},
           {"mode": "BoundedStaleness", "staleness": 2})
    for update in ({"mode": "Sandblaster", "staleness": None}, {"codec": "int8"}):
        try:
            world.patch({"update": update})
        except ClusterError as refusal:
            check("spec.update" in str(refusal), f"{update} was refused: {refusal}")
        else:
            check(False, f"{update} was taken while the job trains")
    after = world.pods()
    moved = {name for name, uid in after.items() if before.get(name) != uid}
    check(moved == {"lenet-worker-0"}, f"{before} became {after}")
    ends_exactly(world, manifest)
    told = sum(event.get("count", 1) for event in world.events("UpdateModeChanged"))
    check(told == 2, f"{told} events UpdateModeChanged, expected 2")


@scenario
def lbfgs(world):
    """The example of Sandblaster L-BFGS, a worker lost in the search: the accuracy of `downpour run`."""
    world.kubectl("apply", "-f", str(LBFGS))
    world.wait_ready(3, name="lbfgs")
    world.wait_progress("lbfgs")
    before = world.pods("lbfgs")
    world.kubectl("delete", "pod", "lbfgs-worker-1", "--wait=false")
    world.wait_replaced("lbfgs-worker-1", before["lbfgs-worker-1"], name="lbfgs")
    world.wait_progress("lbfgs")
    world.wait_phase("Succeeded", 300, "lbfgs")
    world.note(updates=world.step("lbfgs"))
    check_accuracy(world, downpour_run(LBFGS), tolerance=1e-4, name="lbfgs")
