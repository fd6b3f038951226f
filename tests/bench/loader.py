"""Compares the loader with PyTorch's DataLoader and torchvision's ImageFolder, in turn, pair by pair: JPEG images of
150 x 150, turned at random and normalised, with two threads and two workers. Prints a table and writes a JSON list as run.py.

Usage: loader.py --bin BINARIES --output FILE [--pairs N] [--images N]; DOWNPOUR_PYTORCH_PYTHON is a Python with torch and
torchvision.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

from rows import print_table, row, row_of_pairs, write_rows

THREADS = 2
BATCH = 64
EPOCHS = 3
TIMEOUT_SECONDS = 300
MEBIBYTE = 1 << 20

REFERENCE = """
import json, sys, time
import torch
from torchvision import datasets, transforms
folder, workers, batch, epochs = sys.argv[1], *map(int, sys.argv[2:])
images = datasets.ImageFolder(folder, transforms.Compose([
    transforms.RandomHorizontalFlip(), transforms.ToTensor(),
    transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]))
loader = torch.utils.data.DataLoader(images, batch, shuffle=True, num_workers=workers, persistent_workers=True, prefetch_factor=2)
samples, seconds = 0, 0.0
for epoch in range(epochs + 1):  # the first one warms up
    begun = time.monotonic()
    count = sum(len(labels) for _, labels in loader)
    if epoch:
        samples, seconds = samples + count, seconds + time.monotonic() - begun
print(json.dumps({"samplesPerSecond": samples / seconds}))
"""


def run(command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT_SECONDS).stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--images", type=int, default=2000)
    options = parser.parse_args()
    python = os.environ.get("DOWNPOUR_PYTORCH_PYTHON")
    if not python:
        sys.exit("bench-loader: DOWNPOUR_PYTORCH_PYTHON is not set: expected a Python with torch and torchvision")
    program = os.path.join(options.bin, "loader_bench")
    ours, reference, growth = [], [], []
    with tempfile.TemporaryDirectory(prefix="downpour-bench-") as folder:
        run([program, folder, "--generate", str(options.images)])
        for pair in range(options.pairs):
            result = json.loads(run([program, folder, "--threads", str(THREADS), "--batch", str(BATCH), "--epochs", str(EPOCHS)]))
            ours.append(result["samplesPerSecond"])
            growth.append((result["peakAtEnd"] - result["peakAfterQuarter"]) / MEBIBYTE)
            reference.append(json.loads(run([python, "-c", REFERENCE, folder, str(THREADS), str(BATCH), str(EPOCHS)]))["samplesPerSecond"])
            phases = ", ".join(f"{phase} {spent:.0f}" for phase, spent in result["microseconds"].items())
            print(f"pair {pair + 1}/{options.pairs}: ours {ours[-1]:,.0f}, reference {reference[-1]:,.0f} samples/s; "
                  f"microseconds a sample: {phases}; most memory {result['peakAfterQuarter'] / MEBIBYTE:.1f} MiB after a quarter of "
                  f"an epoch, {result['peakAtEnd'] / MEBIBYTE:.1f} MiB at the end", file=sys.stderr, flush=True)
    rows = [row_of_pairs("loader-samples-per-second", ours, reference, "samples/s", least=1.5),
            row("loader-memory-growth", max(growth), "MiB", target="<= 16 MiB", holds=max(growth) <= 16, runs=len(growth))]
    print_table(rows)
    sys.exit(0 if write_rows(rows, options.output) else 1)


if __name__ == "__main__":
    main()
