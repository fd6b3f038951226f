"""A network of the user's own, in an image of its own."""

import json
import pathlib
import shutil
import tempfile

from driver import oci
from driver.base import ROOT, run
from world import check, check_accuracy, downpour_run, one_worker, scenario

PLUGIN = ROOT / "deploy" / "examples" / "plugin"
IMAGE = "downpour.dev/own-network:e2e"


def build_plugin(folder):
    """The template project, built outside of the tree against an installed package, as its README says."""
    project, prefix = folder / "project", folder / "prefix"
    shutil.copytree(PLUGIN, project)
    run(["cmake", "--install", ROOT / "build" / "release", "--prefix", prefix, "--component", "plugin"], seconds=60)
    run(["cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={prefix}"], seconds=120)
    run(["cmake", "--build", project / "build"], seconds=600)
    return project / "build" / "net.so"


def load_image(driver, library, folder):
    """What the Dockerfile of the template says: the trainer's image, and the library at /models/net.so."""
    tree = folder / "tree"
    (tree / "models").mkdir(parents=True)
    shutil.copy(library, tree / "models" / "net.so")
    archive = folder / "own-network.tar"
    trainer = ROOT / "build" / "images" / "trainer.tar"
    oci.extend_archive(trainer, archive, IMAGE, tree, folder)
    driver.load_image(archive)


@scenario
def own_model(world):
    """A plug-in that was built against the installed package trains under `downpour run` and, in an image of its own,
    on the cluster; in an image that does not have it the job fails and says so."""
    with tempfile.TemporaryDirectory(prefix="downpour-own-model-") as text:
        folder = pathlib.Path(text)
        library = build_plugin(folder)
        manifest = folder / "project" / "manifest.yaml"
        local = downpour_run(manifest, "--set", f"model.plugin.path={library}", "--set", "training.epochs=1")
        load_image(world.driver, library, folder)

        job = {"name": "own-network", "workers": 2, "epochs": 1,
               "model": {"plugin": {"path": "/models/net.so", "name": "Net", "parameters": {"filters": 16, "dropout": 0.25}},
                         "loss": {"type": "Focal"}, "metrics": ["Accuracy", "Top2Accuracy"]},
               "update": {"optimizer": {"learningRate": 0.1}},
               "worker": one_worker({"image": IMAGE, "imagePullPolicy": "Never"}) | {"replicas": 2}}
        world.job(**job)
        world.wait_phase("Succeeded", 300, name="own-network")
        progress = world.status("own-network")["progress"]
        check(progress["step"] == progress["totalSteps"], f"progress: {progress}")
        world.note(updates=progress["step"])
        check_accuracy(world, local, 0.6, name="own-network")

    # The trainer's own image has no such file.
    gives_up = {"rules": [{"name": "bad-input", "onExitCodes": {"operator": "In", "values": [2]}, "action": "FailJob"}]}
    world.job(**job | {"name": "without", "worker": {"replicas": 1}, "failurePolicy": gives_up})
    world.wait_phase("Failed", 120, name="without")
    told = json.dumps(world.status("without"))
    check("spec.model.plugin.path: no file /models/net.so" in told, f"the status of the job without a plug-in: {told}")
