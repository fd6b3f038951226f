#!/usr/bin/env python3
"""The manifests of deploy/examples/programs through `downpour run`.

    programs.py --downpour build/release/bin/downpour [NAME...]             a few samples of each: it trains to the end, every
        update is applied once, and the loss falls
    programs.py --downpour build/release/bin/downpour --figures [NAME...]   all of it as the manifests say, and the tables of
        docs/programs.md, "What it reaches", printed; hours on two cores
"""

import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "deploy" / "examples" / "programs"
COMMAND = "#   downpour data generate "
TIMEOUT_SECONDS = 120
FIGURES_TIMEOUT_SECONDS = 6 * 3600


class Failure(Exception):
    pass


class Run:
    """What a run left: its summary, and the losses on the test set by epoch."""

    def __init__(self, folder, summary):
        self.folder = folder
        self.summary = summary
        self.first_loss = None
        self.evaluations = []
        with open(folder / "run" / "metrics.jsonl", encoding="utf-8") as lines:
            for point in map(json.loads, lines):
                if point["type"] == "evaluation":
                    self.evaluations.append(point)
                elif self.first_loss is None and point.get("loss") is not None:
                    self.first_loss = point["loss"]

    def losses(self):
        return [point["loss"] for point in self.evaluations]


def loss_falls(run):
    expect(run.losses()[-1] < run.losses()[0], f"the loss on the test set did not fall: {run.losses()}")


def ends_early(run):
    """No epoch is better than the first by as much as is wanted, so the second and the third end it."""
    loss_falls(run)
    reason = run.summary["stopReason"]
    expect(reason.startswith("stopped early after epoch 3:") and run.summary["message"] == reason, f"it ended for: {reason}")
    expect(3 <= run.summary["epochs"] < 100, f"{run.summary['epochs']} epochs")
    best = run.summary["best"]
    expect(best is not None, "no model is the best")
    least = min(point["loss"] for point in run.evaluations if point["epochs"] == best["epoch"])
    expect(all(least <= point["loss"] for point in run.evaluations if point["epochs"] <= 3),
           f"the best is said to be {best}, of {run.losses()}")
    file = pathlib.Path(best["path"])
    expect(file.name == "best.safetensors" and file.stat().st_size > 0, f"the best model: {best}")


def learns_texts(run):
    expect(run.losses()[-1] < 0.6, f"the loss on the test set is {run.losses()[-1]}, expected well below ln 2")


def learns_clothes(run):
    expect(run.losses()[-1] < 2.0, f"the loss on the test set is {run.losses()[-1]}, expected well below ln 10")


def keeps_best(run):
    loss_falls(run)
    file = pathlib.Path(run.summary["best"]["path"])
    expect(file.name == "best.safetensors" and file.stat().st_size > 0, f"the best model: {run.summary['best']}")
    expect(any((run.folder / "multi-worker-mirrored-logs").rglob("*tfevents*")), "there are no event files of TensorBoard")


# An epoch of all 60,000 takes this network minutes.
FEW_IMAGES = "{format: Synthetic, synthetic: {kind: Images, shape: [1, 28, 28], samples: 1000, testSamples: 200}}"

# By manifest: samples and test samples to generate (None: its data are not generated), what is set, and what must be seen.
PROGRAMS = {
    "cifar10-deep": ((1000, 200), {"training.earlyStopping": "{patience: 2, minDelta: 1000}"}, ends_early),
    "cifar10-horovod": ((1000, 200), {"training.epochs": 6}, loss_falls),
    "cifar10-one-cycle": ((2000, 200), {"training.epochs": 4}, loss_falls),
    "d2l-lenet": (None, {"training.epochs": 1}, learns_clothes),
    "fashion-mnist": (None, {"training.epochs": 1}, learns_clothes),
    "mirrored": (None, {"dataset": FEW_IMAGES, "training.epochs": 4}, loss_falls),
    "multi-worker-mirrored": (None, {"dataset": FEW_IMAGES, "training.epochs": 2}, keeps_best),
    "photos": ((90, 1), {"training.epochs": 8}, loss_falls),
    "sentiment": ((600, 100), {"training.epochs": 2}, learns_texts),
}


def expect(holds, problem):
    if not holds:
        raise Failure(problem)


def execute(command, folder, timeout):
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, timeout=timeout,
                          check=False)
    expect(done.returncode == 0, f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def train(downpour, name, folder, samples, settings, timeout):
    manifest = EXAMPLES / f"{name}.yaml"
    shutil.copy(manifest, folder)
    lines = [line for line in manifest.read_text(encoding="utf-8").splitlines() if line.startswith(COMMAND)]
    expect(len(lines) == (0 if PROGRAMS[name][0] is None else 1), f"{len(lines)} lines that generate data")
    for line in lines:
        words = line[len(COMMAND):].split()
        if samples is not None:
            words[words.index("--samples") + 1], words[words.index("--test-samples") + 1] = map(str, samples)
        execute([downpour, "data", "generate", *words], folder, timeout)
    command = [downpour, "run", manifest.name, "--run-dir", "run", "--output=json"]
    for path, value in settings.items():
        command += ["--set", f"{path}={value}"]
    run = Run(folder, json.loads(execute(command, folder, timeout)))
    ledger = run.summary["ledger"]
    exact = {**ledger, "applied": ledger["expected"], "skipped": 0, "duplicated": 0, "missing": 0}
    expect(ledger["expected"] > 0 and ledger == exact and run.summary["audit"] == "Exact",
           f"ledger {ledger}, audit {run.summary['audit']}")
    expect(run.evaluations and all(math.isfinite(loss) for loss in run.losses()), f"losses {run.losses()}")
    return run


def check(downpour, name, folder):
    samples, settings, seen = PROGRAMS[name]
    run = train(downpour, name, folder, samples, settings, TIMEOUT_SECONDS)
    expect(run.losses()[-1] < run.first_loss, f"loss {run.first_loss} in training at first, {run.losses()[-1]} at the end")
    seen(run)
    print(f"{name}: {run.summary['ledger']['applied']} updates, loss on the test set {run.losses()[0]:.4f} -> "
          f"{run.losses()[-1]:.4f}", flush=True)


def figures(downpour, name, folder):
    begun = time.monotonic()
    run = train(downpour, name, folder, None, {}, FIGURES_TIMEOUT_SECONDS)
    seconds = time.monotonic() - begun
    best = min(run.evaluations, key=lambda point: point["loss"])
    last = run.evaluations[-1]
    print(f"| {name} | {last['epochs']:g} | {last['accuracy']:.4f} | {last['loss']:.4f} | {best['epochs']:g} | "
          f"{best['accuracy']:.4f} | {best['loss']:.4f} | {run.summary['samplesPerSecond']:,.0f} | {seconds:,.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--downpour", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--figures", action="store_true", help="all of the data, all epochs")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    manifests = {manifest.stem for manifest in EXAMPLES.glob("*.yaml")}
    if manifests != set(PROGRAMS):
        sys.exit(f"programs: {EXAMPLES} has {sorted(manifests)}, this table has {sorted(PROGRAMS)}")
    unknown = set(options.names) - manifests
    if unknown:
        sys.exit(f"programs: there is no {', '.join(sorted(unknown))}; there are {', '.join(PROGRAMS)}")
    if options.figures:
        print("| manifest | epochs | accuracy | loss | best loss in epoch | accuracy there | loss there | samples/s | seconds |\n"
              "|---|---:|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    for name in options.names or PROGRAMS:
        with tempfile.TemporaryDirectory(prefix="downpour-programs-") as folder:
            try:
                (figures if options.figures else check)(options.downpour, name, pathlib.Path(folder))
            except (Failure, subprocess.TimeoutExpired) as problem:
                sys.exit(f"programs: {name}: {problem}")


if __name__ == "__main__":
    main()
