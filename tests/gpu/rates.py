"""Samples/s on either device, and the demo."""

from runs import PACKED, WARM_UP_SECONDS, steady_rate
from session import Session, manifest

MEASURED_SECONDS = 8
DEMO = {"worker.replicas": 2, "training.epochs": 2, "training.evaluate": "true"}


def demo(session: Session) -> str:
    fields = {**session.fast_on_device(), **DEMO, "dataset.path": str(PACKED / session.size("images", "few-images"))}
    run = session.downpour.run(manifest("measure/lenet.yaml"), fields)
    kept = ("testAccuracy", "samplesPerSecond", "totalSeconds", "restarts", "ledger", "audit")
    session.results.add("demo", {
        "device": session.device, "workers": DEMO["worker.replicas"], "epochs": DEMO["training.epochs"],
        "gpuMemoryMiB": run.gpu_memory, **{key: run.summary[key] for key in kept}})
    updates = run.summary["ledger"]["applied"]
    return f"test accuracy {run.summary['testAccuracy']}, {updates} updates, the ledger is exact"


def measure(session: Session, model: str, device: str) -> str:
    fields = session.fast_on_device(device)
    run = session.downpour.run(manifest(f"measure/{model}.yaml"), {**fields, "training.epochs": 100000},
                               measured_seconds=WARM_UP_SECONDS + session.size(MEASURED_SECONDS, 3))
    rate = steady_rate(run.progress)
    session.results.add("rates", {
        "model": model, "device": device, "threads": fields["training.threads"], "samplesPerSecond": rate,
        "firstUpdateSeconds": run.summary["firstUpdateSeconds"], "gpuMemoryMiB": run.gpu_memory})
    return f"{rate:,.0f} samples/s"


def rates(session: Session) -> None:
    session.steps.do(f"demo on {session.device}", lambda: demo(session))
    for model in session.models:
        for device in dict.fromkeys((session.device, session.reference)):
            session.steps.do(f"{model}: samples/s on {device}", lambda: measure(session, model, device))
