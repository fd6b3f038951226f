#!/usr/bin/env python3
"""The model of one run as initial weights of another, through `downpour run`: its last layer is another, its first one is
frozen. The first layer comes out bit for bit as it went in, and what does not fit is said before anything starts.

    fine_tuning.py --downpour build/release/bin/downpour
"""

import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

TIMEOUT_SECONDS = 120
STEPS = 37
CHANCE = 0.1
LAYERS = [{"type": "flatten"}, {"type": "dense", "name": "first", "units": 48}, {"type": "relu"},
          {"type": "dense", "name": "second", "units": 24}, {"type": "relu"}]
LAST = {"type": "dense", "name": "last", "units": 10}
OTHER_LAST = [{"type": "dense", "name": "more", "units": 16}, {"type": "relu"},
              {"type": "dense", "name": "head", "units": 10}]


class Failure(Exception):
    pass


def check(condition, message):
    if not condition:
        raise Failure(message)


def read_model(path):
    """Names and bytes."""
    content = path.read_bytes()
    length = struct.unpack_from("<Q", content)[0]
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    return {name: content[8 + length:][slice(*entry["data_offsets"])] for name, entry in header.items()}


def write_manifest(folder, name, layers, training, **model):
    manifest = {"apiVersion": "training.downpour.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
                "spec": {"parameterServer": {"replicas": 2}, "worker": {"replicas": 2},
                         "model": {"layers": layers, **model},
                         "dataset": {"format": "Synthetic",
                                     "synthetic": {"kind": "Images", "shape": [1, 16, 16], "classes": 10,
                                                   "samples": 4000, "testSamples": 1000}},
                         "training": {"batchSize": 50, "device": "CPU", **training},
                         "update": {"optimizer": {"learningRate": 0.1}}}}
    path = folder / f"{name}.json"
    path.write_text(json.dumps(manifest), encoding="utf-8")
    return path


def downpour(program, *words):
    return subprocess.run([str(word) for word in (program, *words)], capture_output=True, text=True,
                          timeout=TIMEOUT_SECONDS, check=False)


def train(program, manifest, updates):
    folder = manifest.with_suffix("")
    done = downpour(program, "run", manifest, "--run-dir", folder, "--output=json")
    check(done.returncode == 0, f"{manifest.stem}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    summary = json.loads(done.stdout)
    exact = {"expected": updates, "applied": updates, "missing": 0, "duplicated": 0, "skipped": 0}
    check(summary["ledger"] == exact, f"{manifest.stem}: ledger {summary['ledger']}, expected {exact}")
    check(summary["audit"] == "Exact", f"{manifest.stem}: audit {summary['audit']}")
    print(f"{manifest.stem}: {updates} updates, test accuracy {summary['testAccuracy']}", flush=True)
    return read_model(folder / "model.safetensors"), summary


def check_refused(program, manifest, reason):
    for command in (["validate", manifest], ["run", manifest, "--run-dir", manifest.with_suffix("")]):
        done = downpour(program, *command)
        check(done.returncode == 2, f"{command[0]}: exit code {done.returncode}, expected 2\n{done.stderr}")
        check("spec.model.initialWeights.path: " in done.stderr and reason in done.stderr,
              f"{command[0]}: expected \"{reason}\", got {done.stderr}")
    print(f"{manifest.stem}: refused", flush=True)


def run(program, folder):
    before, summary = train(program, write_manifest(folder, "before", LAYERS + [LAST], {"epochs": 3}), 240)
    check(summary["testAccuracy"] > 3 * CHANCE, f"before: test accuracy {summary['testAccuracy']}")
    file = "before/model.safetensors"
    tuned, summary = train(
        program, write_manifest(folder, "tuned", LAYERS + OTHER_LAST, {"steps": STEPS}, frozen=["first.*"],
                                initialWeights={"path": file, "strict": False}), STEPS)
    for name in ("first.weight", "first.bias"):
        check(tuned[name] == before[name], f"{name} is frozen, and not as in {file}")
    check(tuned["second.weight"] != before["second.weight"], "second.weight was not trained")
    # One update with a rate of nearly nothing: what it begins with is what is measured.
    again = write_manifest(folder, "again", LAYERS + [LAST], {"steps": 1}, initialWeights={"path": file})
    manifest = json.loads(again.read_text(encoding="utf-8"))
    manifest["spec"]["update"]["optimizer"]["learningRate"] = 1e-9
    again.write_text(json.dumps(manifest), encoding="utf-8")
    _, summary = train(program, again, 1)
    check(summary["testAccuracy"] > 3 * CHANCE, f"again: it began with a test accuracy of {summary['testAccuracy']}")

    weights = {"path": file}
    check_refused(program, write_manifest(folder, "strict", LAYERS + OTHER_LAST, {}, initialWeights=weights),
                  "4 missing (more.weight, more.bias, head.weight, head.bias), 2 unexpected (last.weight, last.bias)")
    wider = [*LAYERS[:3], {**LAYERS[3], "units": 25}, LAYERS[4], LAST]
    check_refused(program, write_manifest(folder, "wider", wider, {}, initialWeights=weights),
                  "tensor \"second.weight\": found the shape [24, 48], expected [25, 48]")
    (folder / "text.safetensors").write_text("no tensors at all", encoding="utf-8")
    check_refused(program, write_manifest(folder, "text", LAYERS, {}, initialWeights={"path": "text.safetensors"}),
                  "no safetensors file")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--downpour", type=lambda text: pathlib.Path(text).resolve(), required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="downpour-fine-tuning-") as folder:
        try:
            run(options.downpour, pathlib.Path(folder))
        except (Failure, subprocess.TimeoutExpired) as problem:
            sys.exit(f"fine_tuning: {problem}")


if __name__ == "__main__":
    main()
