"""Runs the benchmarks, prints a table and writes a JSON list of
{name, ours, reference, ratio, unit, target, holds, runs, spread}.

Ours and the reference run in turn, pair by pair, on the same machine; `ratio` is the geometric mean over the pairs,
`spread` its 95 % confidence interval (Student's t on the logarithms). For limits (start-up, memory) `reference` is the
limit, `ratio` is ours / limit, and `spread` is the smallest and largest run as a share of the limit.

Usage: run.py --bin BINARIES --output FILE [--pairs N] [--only NAME]
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from recovery import recovery_rows
from rows import print_table, row_of_limit, row_of_pairs, write_rows

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATASET = "/usr/share/datasets/fashion-mnist"
RUN_TIMEOUT_SECONDS = 240
MEBIBYTE = 1 << 20

TRAINING = [
    # name, manifest, model, workers, batch size, training samples (None: of the manifest), dataset epochs of a run, target
    ("lenet-samples-per-second", "lenet", "LeNet", 3, 256, None, 2, 0.95),
    ("mlp-samples-per-second", "lenet", "MLP", 3, 128, None, 16, 0.5),
    ("acoustic-samples-per-second", "zoo/acoustic", "Acoustic", 2, 256, 20480, 1, 0.8),
    ("unet-samples-per-second", "zoo/unet", "UNet", 2, 2, 120, 1, 0.8),
]
SMALL = ("LeNet", "MLP")  # of which start-up and memory have limits
FASHION_MNIST_SAMPLES = 60000


def peak_resident_bytes(pid):
    """The most memory that the process ever had resident, and how much of that is its own (not files it maps)."""
    fields = {}
    with open(f"/proc/{pid}/status", encoding="utf-8") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            if value.endswith("kB\n"):
                fields[key] = int(value.split()[0]) * 1024
    return fields["VmHWM"]


def run_ours(binaries, manifest, model, workers, batch, samples, epochs, ps=1, factor=1, more=()):
    """One job. Returns steady samples/s, seconds to the first update, and memory."""
    folder = tempfile.mkdtemp(prefix="downpour-bench-")
    run = os.path.join(folder, "run")
    command = [os.path.join(binaries, "downpour"), "run", os.path.join(ROOT, f"deploy/examples/{manifest}.yaml"), "--run-dir", run,
               "--output", "json", "--set", f"model.name={model}", "--set", f"training.batchSize={batch}",
               "--set", f"training.epochs={epochs}", "--set", "training.evaluate=false",
               "--set", f"worker.replicas={workers}"]
    if ps > 0:
        command += ["--set", f"parameterServer.replicas={ps}", "--set", f"parameterServer.replicationFactor={factor}"]
    if samples:
        command += ["--set", f"dataset.synthetic.samples={samples}"]
    for setting in more:
        command += ["--set", setting]
    memory = {}
    with open(os.path.join(folder, "stderr"), "w", encoding="utf-8") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        deadline = time.monotonic() + RUN_TIMEOUT_SECONDS
        while process.poll() is None:
            if time.monotonic() > deadline:
                process.terminate()
                sys.exit(f"bench: {model}: no end within {RUN_TIMEOUT_SECONDS} s")
            try:
                with open(os.path.join(run, "status.json"), encoding="utf-8") as file:
                    for entry in json.load(file)["processes"]:
                        if entry["role"] in ("ps", "coordinator") and entry.get("finishTime") is None:
                            memory[entry["role"]] = max(memory.get(entry["role"], 0), peak_resident_bytes(entry["pid"]))
            except (FileNotFoundError, ProcessLookupError, KeyError, ValueError):
                pass  # not started yet, or just ended
            time.sleep(0.2)
        output = process.stdout.read()
    if process.returncode != 0:
        with open(os.path.join(folder, "stderr"), encoding="utf-8") as errors:
            sys.exit(f"bench: {model}: exit code {process.returncode}\n{errors.read()}")
    summary = json.loads(output)
    ledger = summary["ledger"]
    if ledger["missing"] or ledger["duplicated"] or ledger["applied"] != ledger["expected"]:
        sys.exit(f"bench: {model}: the ledger is not exact: {ledger}")
    # The steady part: from a second after the last worker joined to the last answer before the end.
    points = []
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as lines:
        for line in lines:
            point = json.loads(line)
            if point.get("type") == "progress":
                points.append(point)
    joined = next(p["seconds"] for p in points if p["workers"] == workers)
    samples = (samples or FASHION_MNIST_SAMPLES) * epochs
    steady = [p for p in points if p["seconds"] >= joined + 1 and p["samples"] < samples]
    if len(steady) < 5:
        sys.exit(f"bench: {model}: the run was too short to measure")
    rate = (steady[-1]["samples"] - steady[0]["samples"]) / (steady[-1]["seconds"] - steady[0]["seconds"])
    shutil.rmtree(folder)
    return rate, summary["firstUpdateSeconds"], memory


def run_reference(binaries, model, batch, seconds):
    output = subprocess.run(
        [os.path.join(binaries, "reference_trainer"), "--model", model, "--batch", str(batch), "--seconds", str(seconds),
         "--dataset", DATASET], stdout=subprocess.PIPE, text=True, check=True, timeout=RUN_TIMEOUT_SECONDS).stdout
    return json.loads(output)


def rows_of(binaries, program, *arguments):
    # Exit code 3: a target is missed; the rows say which.
    result = subprocess.run([os.path.join(binaries, program), *arguments], stdout=subprocess.PIPE, text=True, check=False,
                            timeout=2 * RUN_TIMEOUT_SECONDS)
    if result.returncode not in (0, 3):
        sys.exit(f"bench: {program}: exit code {result.returncode}")
    return json.loads(result.stdout)


def parameter_bytes(model):
    """Four bytes a weight of the model that the ps holds."""
    if model == "LeNet":
        weights = 20 * 9 + 20 + 50 * 20 * 25 + 50 + 800 * 128 + 128 + 128 * 10 + 10
    else:
        weights = 784 * 128 + 128 + 128 * 10 + 10
    return 4 * weights


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    rows = []
    first_updates, ps_memory, coordinator_memory = [], [], []

    for name, manifest, model, workers, batch, samples, epochs, target in TRAINING:
        if options.only and options.only not in name:
            continue
        ours, reference = [], []
        for pair in range(options.pairs):
            rate, first, memory = run_ours(options.bin, manifest, model, workers, batch, samples, epochs)
            ours.append(rate)
            if model in SMALL:
                first_updates.append(first)
                ps_memory.append((memory["ps"] - parameter_bytes(model)) / MEBIBYTE)
                coordinator_memory.append(memory["coordinator"] / MEBIBYTE)
            result = run_reference(options.bin, model, batch, 8)
            reference.append(result["samplesPerSecond"])
            print(f"{name}: pair {pair + 1}/{options.pairs}: ours {ours[-1]:,.0f}, reference {reference[-1]:,.0f} "
                  f"({result['layout']}, {result['threads']} threads)", file=sys.stderr, flush=True)
        rows.append(row_of_pairs(name, ours, reference, "samples/s", least=target))

    if first_updates:
        rows.append(row_of_limit("first-update", first_updates, 3, "s"))
        rows.append(row_of_limit("ps-memory-beyond-parameters", ps_memory, 40, "MiB"))
        rows.append(row_of_limit("coordinator-memory", coordinator_memory, 40, "MiB"))

    if not options.only or "transfer" in options.only:
        rows += rows_of(options.bin, "transfer_bench", "--json", "--pairs", str(max(25, options.pairs)))
        rows += rows_of(options.bin, "transfer_bench", "--json", "--pairs", str(options.pairs), "--transport", "shared-memory")
        for codec in ("bf16", "int8"):
            rows += rows_of(options.bin, "transfer_bench", "--json", "--pairs", str(options.pairs), "--codec", codec)
    if not options.only or "checkpoint" in options.only:
        rows += rows_of(options.bin, "checkpoint_bench", "--rounds", str(options.pairs),
                        "--folder", os.path.dirname(os.path.abspath(options.output)))

    if not options.only or options.only in "lenet-with-standbys":
        ours, reference = [], []
        for _ in range(options.pairs):
            for factor, rates in ((2, ours), (1, reference)):
                rates.append(run_ours(options.bin, "lenet", "LeNet", 3, 256, None, 2, ps=2, factor=factor)[0])
        rows.append(row_of_pairs("lenet-with-standbys", ours, reference, "samples/s", least=0.9))
    rows += recovery_rows(options.bin, lambda name: not options.only or options.only in name)

    print_table(rows)
    for row in rows:
        if "tcp" in row:
            print(f"beside {row['name']}: raw TCP copy of the same bytes, one connection, 1 MiB writes: {row['tcp']:,.0f} MB/s; "
                  f"bare gRPC that keeps freed memory as ours does: {row['tunedReference']:,.0f} MB/s "
                  f"(ratio {row['tunedRatio'][0]:.3f}, {row['tunedRatio'][1]:.3f} .. {row['tunedRatio'][2]:.3f})")
    sys.exit(0 if write_rows(rows, options.output) else 1)


if __name__ == "__main__":
    main()
