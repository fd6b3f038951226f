"""What was trained outlives those who hold it: losses, suspensions, drains and new jobs go on from a checkpoint.

They go to a folder of this machine, which every node sees: as a file system that all nodes of a cluster mount."""

import contextlib
import json
import pathlib
import signal
import subprocess
import tempfile

from driver.base import ROOT, run, wait_for
from scenarios.cli import why
from scenarios.drains import drain
from scenarios.nodes import SECOND, nodes, tolerate_for
from scenarios.output import volume_for
from world import DOWNPOUR, check, exact_ledger, one_worker, scenario

MOUNT = "/checkpoints"
RARE = 3600  # seconds from one checkpoint to the next: only those that something asks for


@contextlib.contextmanager
def shared_folder():
    with tempfile.TemporaryDirectory(prefix="downpour-checkpoints-", ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        folder.chmod(0o777)  # pods are nobody on this machine
        yield folder


def pod_with(folder, **pod):
    """A pod template that mounts it."""
    return {"spec": {"terminationGracePeriodSeconds": 3, **pod,
                     "containers": [{"name": "trainer", "volumeMounts": [{"name": "checkpoints", "mountPath": MOUNT}]}],
                     "volumes": [{"name": "checkpoints", "hostPath": {"path": str(folder), "type": "Directory"}}]}}


def saved(folder, servers=2, pod=None, interval=3, **checkpoint):
    """spec.coordinator, parameterServer and checkpoint of a manifest. `pod`: what the pods of the ps have beyond."""
    return {"coordinator": {"template": pod_with(folder)},
            "parameterServer": {"replicas": servers, "template": pod_with(folder, **(pod or {}))},
            "checkpoint": {"uri": MOUNT, "intervalSeconds": interval, **checkpoint}}


def wait_checkpoint(world, more_than=0, name="lenet"):
    """status.checkpoint, once it holds more updates than that."""
    def newest():
        found = world.status(name).get("checkpoint", {})
        return found if found.get("updates", 0) > more_than else f"not yet: {found}"
    return world.wait("a checkpoint", newest, 60)


def wait_condition(world, kind, status, reason, seconds=90, name="lenet"):
    """The message of a condition, once it is so."""
    def message():
        found = world.condition(kind, name)
        return found[2] if found and found[:2] == (status, reason) else f"not yet: {found}"
    return world.wait(f"{kind} to be {status}, {reason}", message, seconds)


def updates_in(message):
    """The number behind "update" in a message about a checkpoint."""
    return int(message.split("update ")[1].split()[0].rstrip(",;)"))


def wait_rolled_back(world, least, told=1):
    """status.recovery, once training went on from a checkpoint of at least so many updates, and this is told.

    `told`: how many losses there were."""
    message = wait_condition(world, "ParametersLost", "False", "RolledBack", 180)
    check("training went on from /checkpoints/lenet/" in message and "under generation" in message,
          f"RolledBack: {message}")
    check(updates_in(message) >= least, f"{message}; the newest checkpoint before held {least} updates")

    def ended():
        found = world.status().get("recovery", {})
        return found if "lastDurationSeconds" in found else f"not yet: {found}"
    recovery = world.wait("the end of the recovery", ended, 60)
    # Of a checkpoint that only a coordinator knew that is lost as well, nobody can say how old it is.
    seconds = f", {recovery['lostSeconds']} s of training" if "lostSeconds" in recovery else ""
    check(f"{recovery['restoredFrom']} (update " in message
          and f"; lost {recovery['lostUpdates']} updates{seconds})" in message, f"{recovery}, but {message}")
    check(set(recovery["phases"]) >= {"schedule", "start", "restore"} and not recovery.get("skipped"),
          f"status.recovery: {recovery}")
    events = world.wait("the events RolledBack", lambda: [event["message"] for event in world.events("RolledBack")], 10)
    check(len(events) == told and message in events, f"events RolledBack: {events}, the condition says {message}")
    why(world, "lenet", "training went on from /checkpoints/lenet/")
    return recovery


def check_exact(world, manifest, accuracy=None):
    """To the end of the training."""
    found = exact_ledger(world, manifest, 300)
    world.wait_phase("Succeeded", 120)
    if accuracy:
        reached = float(world.status()["progress"]["testAccuracy"])
        check(reached >= accuracy, f"test accuracy {reached}, expected at least {accuracy}")
        world.note(accuracy=reached)
    world.note(ledger=found["applied"])


@scenario
def checkpoint_claim(world):
    """The example with checkpoints in a claim: its ps is deleted, and training goes on from the newest one."""
    with volume_for(world, "lenet-checkpoints", "ReadWriteMany"):
        example = (ROOT / "deploy" / "examples" / "lenet-checkpoints.yaml").read_text()
        world.kubectl("apply", "-f", "-", stdin=example.replace("epochs: 20", "epochs: 3").replace(
            "intervalSeconds: 60", "intervalSeconds: 2"))
        world.wait_ready(3, 150)
        before = wait_checkpoint(world, 100)
        check(not world.condition("CheckpointTemporary"), f"{world.condition('CheckpointTemporary')}")
        world.kubectl("delete", "pod", "lenet-ps-0", "--wait=false")
        recovery = wait_rolled_back(world, before["updates"])
        world.wait_phase("Succeeded", 200)
        progress = world.status()["progress"]
        check(progress["step"] == progress["totalSteps"], f"{progress}")
        world.note(lost_updates=recovery["lostUpdates"], recovery_seconds=recovery["lastDurationSeconds"],
                   accuracy=progress["testAccuracy"])


@scenario
def checkpoint_ps_lost(world):
    """One of two ps is deleted, then all pods: it goes on from the newest checkpoint each time; the ledger is exact."""
    with shared_folder() as folder:
        manifest = world.job(workers=2, epochs=6, **saved(folder))
        world.wait_ready(2, 150)
        before = wait_checkpoint(world, 100)
        check(not world.condition("CheckpointTemporary"), f"{world.condition('CheckpointTemporary')}")
        old = world.pods()
        world.kubectl("delete", "pod", "lenet-ps-1", "--wait=false")
        recovery = wait_rolled_back(world, before["updates"])
        check("lostSeconds" in recovery, f"status.recovery: {recovery}")
        world.note(ps_lost_updates=recovery["lostUpdates"], ps_seconds=recovery["lastDurationSeconds"])
        new = world.pods()
        moved = {pod for pod in new if new[pod] != old.get(pod)}
        check(moved == {"lenet-ps-1"}, f"replaced were {sorted(moved)}")

        before = wait_checkpoint(world, before["updates"] + 1)
        world.kubectl("delete", "pod", "--all", "--wait=false")
        recovery = wait_rolled_back(world, before["updates"], 2)
        world.note(all_lost_updates=recovery["lostUpdates"], all_seconds=recovery["lastDurationSeconds"])
        check(not set(new.values()) & set(world.pods().values()), "a pod that was deleted is still there")
        check_exact(world, manifest, 0.85)
        wait_checkpoint(world, before["updates"])


@scenario
def checkpoint_node_lost(world):
    """The node of a ps is gone: it is replaced elsewhere, from the checkpoint; the old one changes nothing any more."""
    driver = world.driver
    check(nodes(driver).get(SECOND), f"nodes: {nodes(driver)}; `cluster.py up --nodes 2` is needed")
    prefers = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "preference": {"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [SECOND]}]}}]}}
    stays = {"nodeSelector": {"kubernetes.io/hostname": "node-0"}}
    with shared_folder() as folder:
        spec = saved(folder, 1, {"affinity": prefers, "tolerations": tolerate_for(3)})
        spec["coordinator"]["template"]["spec"].update(stays)
        try:
            manifest = world.job(epochs=6, worker=one_worker(**stays),
                                 failurePolicy={"terminationTimeoutSeconds": 5}, **spec)
            world.wait_ready(1, 150)
            before = wait_checkpoint(world, 100)
            zombie = world.get("pods", "lenet-ps-0")
            check(zombie["spec"]["nodeName"] == SECOND, f"ps-0 is on {zombie['spec']['nodeName']}")
            old = zombie["metadata"]["uid"]
            driver.connect(SECOND, False)
            world.wait_replaced("lenet-ps-0", old, 150)
            recovery = wait_rolled_back(world, before["updates"])
            check(world.get("pods", "lenet-ps-0")["spec"]["nodeName"] == "node-0", "replaced on a node that is lost")
            check(driver.pod_processes(old, "downpour-server"), "the old ps ended by itself")
            after = wait_checkpoint(world, before["updates"] + 1)
        finally:
            driver.connect(SECOND, True)
        wait_for("the old ps to end", lambda: not driver.pod_processes(old, "downpour-server"), 120, 0.3)
        wait_for(f"{SECOND} to be Ready", lambda: nodes(driver)[SECOND], 120, 0.5)
        check(world.status()["restarts"] == {"total": 1, "counted": 0}, f"restarts: {world.status()['restarts']}")
        check_exact(world, manifest, 0.85)
        wait_checkpoint(world, after["updates"])
        world.note(lost_updates=recovery["lostUpdates"], recovery_seconds=recovery["lastDurationSeconds"])


@scenario
def checkpoint_suspend(world):
    """A job that is suspended makes a checkpoint first; resumed or made anew it goes on from it, unless it must not."""
    def suspend(wanted):
        world.patch({"suspend": wanted})

    with shared_folder() as folder:
        manifest = world.job(workers=2, epochs=5, **saved(folder, interval=RARE))
        world.wait_ready(2, 150)
        world.wait("500 updates", lambda: world.step() > 500, 90)
        before = world.step()
        suspend(True)
        message = wait_condition(world, "Suspended", "True", "SuspendRequested", 60)
        made = world.status()["checkpoint"]
        check(message == f"the job is suspended; it goes on from {made['newest']} (update {made['updates']})", message)
        check(made["updates"] >= before, f"{made}, but {before} updates were applied before")
        world.wait("all pods to go", lambda: not world.pods(), 60)
        why(world, "lenet", f"it goes on from {made['newest']} (update {made['updates']})")
        world.note(updates_before=before, updates_saved=made["updates"])

        suspend(False)
        resumed = wait_condition(world, "Resumed", "True", "FromCheckpoint", 150)
        check(resumed == f"resumed from {made['newest']} at update {made['updates']}", f"{resumed}, expected {made}")
        world.check_told_once("Resumed")
        world.wait("updates beyond it", lambda: world.step() > made["updates"], 60)
        check(world.status()["restarts"]["total"] == 0, f"restarts: {world.status()['restarts']}")

        # Nothing is lost with a coordinator, and its replacement tells the same.
        old = world.pods()["lenet-coordinator-0"]
        world.kubectl("delete", "pod", "lenet-coordinator-0", "--wait=false")
        world.wait_replaced("lenet-coordinator-0", old)
        wait_condition(world, "Recovering", "False", "Recovered")
        world.wait_progress()
        check(world.condition("Resumed")[2] == resumed, f"{world.condition('Resumed')}, it was {resumed}")
        world.check_told_once("Resumed")

        # Another job, of the same name.
        world.kubectl("delete", "trainingjob", "lenet", "--wait=true", "--timeout=60s")
        world.wait_gone(90)
        world.apply(manifest)
        resumed = wait_condition(world, "Resumed", "True", "FromCheckpoint", 150)
        check(resumed == f"resumed from {made['newest']} at update {made['updates']}", f"{resumed}, expected {made}")
        check_exact(world, manifest, 0.85)

        world.kubectl("delete", "trainingjob", "lenet", "--wait=true", "--timeout=60s")
        world.wait_gone(90)
        world.job(workers=2, epochs=5, **saved(folder, interval=RARE, resumeFrom="Never"))
        world.wait_ready(2, 150)
        first = world.wait("updates", world.step, 60)
        check(first < made["updates"] and not world.condition("Resumed"),
              f"{first} updates, Resumed: {world.condition('Resumed')}")
        check("checkpoint" not in world.status(), f"status.checkpoint: {world.status().get('checkpoint')}")


@scenario
def checkpoint_drain(world):
    """Each node is drained in turn: a checkpoint is made first, and the ps that comes elsewhere goes on from it."""
    driver = world.driver
    check(nodes(driver).get(SECOND), f"nodes: {nodes(driver)}; `cluster.py up --nodes 2` is needed")
    timeout = 60
    with shared_folder() as folder:
        try:
            driver.kubectl("cordon", "node-0")
            world.job(workers=1, **saved(folder, 1, interval=RARE, onDisruption={"timeoutSeconds": timeout}))
            world.wait_ready(1, 150)
            driver.kubectl("uncordon", "node-0")
            at = 0
            for number, node in enumerate((SECOND, "node-0"), 1):
                world.wait("the budget", lambda: world.get("pdb", "lenet-ps"), 120)
                check(world.get("pods", "lenet-ps-0")["spec"]["nodeName"] == node, f"the ps is not on {node}")
                before = world.step()
                drain(world, 2 * timeout, node)
                message = wait_condition(world, "ParametersLost", "False", "RolledBack", 150)
                at = updates_in(message)
                check(at >= before, f"{message}; {before} updates were applied before the drain")
                driver.kubectl("uncordon", node)
                wait_rolled_back(world, before, number)
                told = [event["message"] for event in world.events("DrainLetThrough")]
                check(len(told) == number and any("the checkpoint before the drain is made, /checkpoints/lenet/" in one
                                                  for one in told), f"DrainLetThrough: {told}")
                recovery = world.status()["recovery"]
                world.note(**{f"{node}_lost_updates": recovery["lostUpdates"]})
                world.wait_ready(1, 150)
        finally:
            driver.kubectl("uncordon", "node-0", SECOND)
        waits = [event["message"] for event in world.events("DrainWaits")]
        check(len(waits) == 2 and all("a checkpoint is made first" in one for one in waits), f"DrainWaits: {waits}")


@scenario
def checkpoint_moves(world):
    """A run of this machine goes on as a job of the cluster, on other numbers of ps, and back; the ledger is exact."""
    with shared_folder() as folder, tempfile.TemporaryDirectory() as scratch:
        # The API server does not look into it.
        for name, point in (("sometimes", "Sometimes"), ("relative", {"uri": "elsewhere"})):
            world.job(name, **saved(folder, resumeFrom=point))
            refused = wait_condition(world, "SpecInvalid", "True", "Unreadable", 30, name)
            check("spec.checkpoint.resumeFrom" in refused and not world.pods(name), f"{name}: {refused}")
        world.kubectl("delete", "trainingjob", "sometimes", "relative", "--wait=true", "--timeout=60s")

        manifest = world.manifest(workers=1, epochs=4)
        manifest["spec"].update(checkpoint={"uri": str(folder), "intervalSeconds": 2})
        here = pathlib.Path(scratch, "here.json")
        here.write_text(json.dumps(manifest))

        def stored():
            """The newest checkpoint, as the command tells it."""
            listed = run([DOWNPOUR, "checkpoints", "ls", folder / "lenet", "--output=json"], check=False)
            return next((one for one in json.loads(listed or "[]") if one["complete"]), {})

        # Whoever may write in the folder may go on there, so what the run makes must be everybody's as well.
        process = subprocess.Popen([DOWNPOUR, "run", here, "--run-dir", pathlib.Path(scratch, "first")], umask=0,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for("a checkpoint of the run", lambda: stored().get("updates", 0) > 100, 90, 0.3)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        first = stored()

        on_cluster = world.job(workers=1, epochs=4, **saved(folder, interval=2))
        resumed = wait_condition(world, "Resumed", "True", "FromCheckpoint", 150)
        check(updates_in(resumed) == first["updates"], f"{resumed}, the run left {first}")
        wait_checkpoint(world, first["updates"] + 100)
        world.kubectl("delete", "trainingjob", "lenet", "--wait=true", "--timeout=60s")
        world.wait_gone(90)
        second = stored()

        summary = json.loads(run([DOWNPOUR, "run", here, "--run-dir", pathlib.Path(scratch, "second"), "--output=json"],
                                 seconds=300))
        check(summary["resumedFrom"].endswith(second["name"]), f"{summary['resumedFrom']}, the job left {second}")
        check(summary["audit"] == "Exact", f"ledger: {summary['ledger']}")
        world.note(run=first["updates"], cluster=second["updates"], applied=summary["ledger"]["applied"])
