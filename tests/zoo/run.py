#!/usr/bin/env python3
"""Trains every manifest of deploy/examples/zoo, and LeNet's, for 100 updates or 200 with two workers, and says of each
whether the loss fell as far as is stated here, whether the model has as many parameters as stated, and whether every
update was applied once. Sizes are cut with --set where full ones take too long on two cores; the table shows how.

With --strategy AllReduce the same networks are trained without parameter servers. Two updates, one of each worker, are a step
then, so that each has half of the samples and there are twice as many: a step has the samples of an update of the other
strategy, and there are as many steps.

Usage: run.py --bin BINARIES [--only NAME[,NAME...]] [--strategy ParameterServer|AllReduce] [--output FILE]
"""

import argparse
import json
import math
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "deploy" / "examples"
UPDATES = 100
# With 100 its loss is in the steepest part of its fall, where the order of asynchronous updates decides how far it is.
MORE_UPDATES = {"bilstm": 200}
FASHION_MNIST_SAMPLES = 60000
RUN_TIMEOUT_SECONDS = 240
WORKERS = 2

# By manifest: the batch size, what is cut, the number of parameters with that (None: the one of docs/models.md), and by
# what factor the loss must fall from the first that is reported to that on the test set.
NETWORKS = {
    "lenet": (600, {}, None, 1.5),
    "mlp": (600, {}, None, 2.0),
    "layers": (600, {}, 28826, 2.0),
    "acoustic": (32, {"dataset.synthetic.classes": "16"}, 20838416, 1.03),
    "alexnet": (4, {}, None, 1.5),
    "bilstm": (32, {"dataset.synthetic.maxLength": "40"}, None, 3.0),
    "cifar-cnn": (64, {}, None, 3.0),
    "locally-connected": (8, {"dataset.synthetic.classes": "10"}, 28765754, 5.0),
    "photo-cnn": (8, {}, None, 2.0),
    "resnet18": (8, {"dataset.synthetic.shape": "[3, 64, 64]"}, None, 1.1),
    "text-transformer": (32, {"dataset.synthetic.maxLength": "40"}, None, 1.3),
    "unet": (2, {"dataset.synthetic.shape": "[12, 32, 32]"}, None, 5.0),
}
# With AllReduce a network this small may be nearly done when a loss is first reported. It began with that of a guess, or
# more.
GUESSES = {"mlp": math.log(10)}
# The running statistics of batch norm are in the exported model, but are no parameters.
BUFFERS = (".running_mean", ".running_var")


def manifest_of(name):
    return EXAMPLES / f"{name}.yaml" if name == "lenet" else EXAMPLES / "zoo" / f"{name}.yaml"


def without_parameter_servers(text):
    """The manifest with the strategy AllReduce. A field cannot be taken away with --set."""
    text = re.sub(r"^  strategy:.*\n", "", text, flags=re.MULTILINE)
    text, count = re.subn(r"^  parameterServer:.*\n(    .*\n)*", "  strategy: AllReduce\n", text, flags=re.MULTILINE)
    assert count == 1, text
    return text


def documented_parameters():
    """By name of the network: the count in docs/models.md."""
    counts = {}
    for line in (ROOT / "docs" / "models.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and re.fullmatch(r"[\d,]+", cells[4]):
            counts[cells[0].strip("`")] = int(cells[4].replace(",", ""))
    return counts


def count_parameters(path):
    """Of a safetensors file: u64 length of the header, then the header as JSON."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items()
               if name != "__metadata__" and not name.endswith(BUFFERS))


def first_loss(run):
    with open(run / "metrics.jsonl", encoding="utf-8") as lines:
        for line in lines:
            point = json.loads(line)
            if point["type"] == "progress" and point.get("loss") is not None:
                return point["loss"]
    raise SystemExit(f"zoo: {run}: no loss was reported")


def train(name, binaries, folder, all_reduce):
    """One row of the table."""
    batch, cut, parameters, factor = NETWORKS[name]
    updates = MORE_UPDATES.get(name, UPDATES)
    manifest = manifest_of(name)
    text = manifest.read_text(encoding="utf-8")
    network = re.search(r"model:\s*\{?\s*name: (\w+)", text)
    settings = {"worker.replicas": WORKERS, "training.epochs": 1, **cut}
    if all_reduce:
        batch, updates = batch // WORKERS, updates * WORKERS
        manifest = folder / f"{name}.yaml"
        manifest.write_text(without_parameter_servers(text), encoding="utf-8")
        settings["update.mode"] = "Synchronous"  # lenet.yaml names another one
    else:
        settings["parameterServer.replicas"] = 1
    settings["training.batchSize"] = batch
    if "format: Synthetic" in text:
        settings |= {"dataset.synthetic.samples": batch * updates, "dataset.synthetic.testSamples": 4 * NETWORKS[name][0]}
    else:
        assert batch * updates == FASHION_MNIST_SAMPLES
    run = folder / name
    command = [binaries / "downpour", "run", manifest, "--run-dir", run, "--output", "json"]
    for path, value in settings.items():
        command += ["--set", f"{path}={value}"]
    row = {"name": name, "network": network.group(1) if network else "a list of layers", "cut": cut, "batch": batch,
           "factor": factor, "problems": []}
    begun = time.monotonic()
    try:
        process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                                 timeout=RUN_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        logs = "".join(f"{log.name}: {log.read_text(encoding='utf-8')[-1000:]}\n" for log in sorted(run.glob("logs/*")))
        row["problems"].append(f"not done after {RUN_TIMEOUT_SECONDS} s; the ends of its logs:\n{logs}")
        return row
    finally:
        row["seconds"] = time.monotonic() - begun
    if process.returncode != 0:
        row["problems"].append(f"exit code {process.returncode}: {process.stderr.strip()}")
        return row
    summary = json.loads(process.stdout)
    ledger = summary["ledger"]
    if ledger["missing"] or ledger["duplicated"] or not ledger["applied"] == ledger["expected"] == updates:
        row["problems"].append(f"the ledger is not exact: {ledger}")
    row["parameters"] = count_parameters(run / "model.safetensors")
    expected = parameters or documented_parameters()[row["network"]]
    if row["parameters"] != expected:
        row["problems"].append(f"{row['parameters']:,} parameters, expected {expected:,}")
    row["first"] = max(first_loss(run), GUESSES.get(name, 0) if all_reduce else 0)
    row["last"] = summary["testLoss"]
    if not row["last"] * factor <= row["first"]:
        row["problems"].append(f"the loss fell from {row['first']:.4g} to {row['last']:.4g}, less than by {factor}")
    shutil.rmtree(run)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--only", default=",".join(NETWORKS))
    parser.add_argument("--strategy", choices=("ParameterServer", "AllReduce"), default="ParameterServer")
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()

    manifests = {path.stem for path in (EXAMPLES / "zoo").glob("*.yaml")} | {"lenet"}
    if manifests != set(NETWORKS):
        sys.exit(f"zoo: deploy/examples/zoo has {sorted(manifests)}, this table has {sorted(NETWORKS)}")
    unknown = set(options.only.split(",")) - manifests
    if unknown:
        sys.exit(f"zoo: there is no {', '.join(sorted(unknown))}; there are {', '.join(NETWORKS)}")

    rows = []
    print(f"{'manifest':<18} {'parameters':>12} {'batch':>6} {'loss':>17} {'factor':>7} {'least':>6} {'seconds':>8}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="downpour-zoo-"))
    try:
        for name in options.only.split(","):
            row = train(name, options.bin, folder, options.strategy == "AllReduce")
            rows.append(row)
            if "first" in row:
                loss = f"{row['first']:.4g} -> {row['last']:.4g}"
                cut = "".join(f"  {path}={value}" for path, value in row["cut"].items())
                print(f"{name:<18} {row['parameters']:>12,} {row['batch']:>6} {loss:>17} {row['first'] / row['last']:>7.2f} "
                      f"{row['factor']:>6} {row['seconds']:>8.1f}{cut}", flush=True)
            for problem in row["problems"]:
                print(f"{name}: {problem}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.output:
        options.output.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    good = [row for row in rows if not row["problems"]]
    print(f"{len(good)} of {len(rows)} trained as stated, in {sum(row['seconds'] for row in rows):.0f} s")
    sys.exit(0 if len(good) == len(rows) else 1)


if __name__ == "__main__":
    main()
