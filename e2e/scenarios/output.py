"""Where the model is when a job is over."""

import contextlib
import json
import pathlib
import tempfile

from driver.base import ROOT
from world import check, scenario

MODEL = "/output/model.safetensors"


@scenario
def output_temporary(world):
    """A model in no volume is told of at the start, stays readable for a while after the end, and then goes."""
    world.job(epochs=1, output={"keepSeconds": 45})
    told = world.wait("OutputTemporary", lambda: world.condition("OutputTemporary"), 60)
    check(told[:2] == ("True", "NoVolume") and "45 s" in told[2], f"OutputTemporary: {told}")
    world.wait_phase("Succeeded", 200)
    status = world.status()
    check(status["output"]["path"] == MODEL and status["output"].get("keptUntil"), f"status.output: {status['output']}")
    pod = f"lenet-worker-{status['output']['worker']}"
    world.wait("all other pods to go", lambda: list(world.pods()) == [pod], 30)
    found = world.kubectl("exec", pod, "-c", "trainer", "--", "grep", "-c", "__metadata__", MODEL).strip()
    check(found == "1", f"{MODEL} is no safetensors file: {found}")
    world.check_told_once("OutputTemporary")
    world.check_told_once("ModelKept")
    world.wait("the pod to go", lambda: not world.pods(), 90)
    check(world.condition("OutputTemporary")[1] == "Gone", f"{world.condition('OutputTemporary')}")
    check(world.status()["restarts"]["total"] == 0, f"restarts: {world.status()['restarts']}")


@contextlib.contextmanager
def volume_for(world, claim, mode):
    """A folder of this machine, which is the volume of this claim of the job lenet."""
    with tempfile.TemporaryDirectory(prefix="downpour-claim-", ignore_cleanup_errors=True) as folder:
        pathlib.Path(folder).chmod(0o777)  # pods are nobody on this machine
        volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": world.namespace},
                  "spec": {"capacity": {"storage": "1Gi"}, "accessModes": [mode],
                           "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "",
                           "claimRef": {"namespace": world.namespace, "name": claim}, "hostPath": {"path": folder}}}
        world.apply(volume)
        try:
            yield pathlib.Path(folder)
        finally:
            world.kubectl("delete", "trainingjob", "lenet", "--ignore-not-found")
            world.kubectl("delete", "pvc", claim, "--ignore-not-found", "--wait=false")
            world.driver.kubectl("delete", "pv", world.namespace, "--ignore-not-found", "--wait=false")


@scenario
def output_claim(world):
    """The first example of the docs keeps its model in a claim; nothing is told of it."""
    with volume_for(world, "lenet-output", "ReadWriteOnce") as folder:
        example = (ROOT / "deploy" / "examples" / "lenet-claim.yaml").read_text()
        world.kubectl("apply", "-f", "-", stdin=example.replace("epochs: 20", "epochs: 1"))
        world.wait_phase("Succeeded", 200)
        check(not world.condition("OutputTemporary"), f"{world.condition('OutputTemporary')}")
        world.wait("the pods to go", lambda: not world.pods(), 30)
        model = folder / "model.safetensors"
        check(model.exists(), f"{folder}: {[path.name for path in folder.iterdir()]}")
        header = model.read_bytes()
        tensors = json.loads(header[8:8 + int.from_bytes(header[:8], "little")])
        check("conv1.weight" in tensors or len(tensors) > 4, f"tensors: {sorted(tensors)}")
