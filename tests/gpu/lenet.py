"""LeNet on all of Fashion-MNIST, as "Dive into Deep Learning" trains it on one GPU and on two (section 12.5)."""

from typing import Any

from runs import PACKED, Failure, evaluations_of
from session import Session, manifest

SAMPLES = 60000
FEW_SAMPLES = 100
EPOCHS = 15
MOST_SECONDS = 1.0
LEAST_ACCURACY = 0.85


def seconds_an_epoch(progress: list[dict[str, Any]], samples: int) -> float:
    """Of those after the first, which waits for what happens once. `samples`: of an epoch."""
    later = [point for point in progress if point["samples"] >= samples]
    if not later or later[-1]["samples"] - later[0]["samples"] < samples:
        raise Failure("the run was too short to measure")
    return float(samples * (later[-1]["seconds"] - later[0]["seconds"]) / (later[-1]["samples"] - later[0]["samples"]))


def uses_shared_memory(log: str) -> bool:
    return "its data go through shared memory" in log


def train(session: Session) -> str:
    epochs = session.size(EPOCHS, 400)
    batch = session.size(256, 10)
    run = session.downpour.run(manifest("lenet.yaml"), {
        **session.fast_on_device(), "training.epochs": epochs, "training.batchSize": batch,
        "dataset.path": str(PACKED / session.size("images", "few-images"))})
    if not uses_shared_memory(run.log("worker-0")):
        raise Failure("worker-0 used the network alone")
    seconds = seconds_an_epoch(run.progress, session.size(SAMPLES, FEW_SAMPLES))
    accuracy = run.summary["testAccuracy"]
    session.results.add("lenet", {
        "device": session.device, "batch": batch, "epochs": epochs, "secondsAnEpoch": seconds, "accuracy": accuracy,
        "accuracies": [point["accuracy"] for point in evaluations_of(run.folder)],
        "firstUpdateSeconds": run.summary["firstUpdateSeconds"], "totalSeconds": run.summary["totalSeconds"],
        "gpuMemoryMiB": run.gpu_memory, "target": MOST_SECONDS, "leastAccuracy": LEAST_ACCURACY})
    said = f"{seconds:.2f} s an epoch, test accuracy {accuracy:.4f} after {epochs}"
    session.target(seconds <= MOST_SECONDS and accuracy >= LEAST_ACCURACY,
                   f"{MOST_SECONDS} s an epoch at most and {LEAST_ACCURACY} at least, got {said}")
    return said


def lenet(session: Session) -> None:
    session.steps.do(f"lenet: seconds an epoch on {session.device}", lambda: train(session))
