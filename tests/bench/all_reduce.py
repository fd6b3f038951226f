"""Compares training by all-reduce with PyTorch's DistributedDataParallel over Gloo, in turn, pair by pair: two processes with
a thread each on the same cores, LeNet and the MLP on Fashion-MNIST, the same minibatches a process.

Usage: all_reduce.py --bin BINARIES --output FILE [--pairs N] [--only NAME]; DOWNPOUR_PYTORCH_PYTHON is a Python with torch.
"""

import argparse
import json
import os
import subprocess
import sys

from run import DATASET, run_ours
from rows import print_table, row_of_pairs, write_rows

WORKERS = 2
TIMEOUT_SECONDS = 240
MODELS = [
    # name, model, minibatch of a process, dataset epochs of a run of ours, seconds of one of the reference
    ("all-reduce-lenet", "LeNet", 256, 3, 15),
    ("all-reduce-mlp", "MLP", 128, 40, 15),
]

# As its users write it: all data in memory, shuffled anew every epoch, plain SGD, gradients in DDP's own buckets.
REFERENCE = """
import gzip, json, os, sys, time
import numpy, torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
rank, size, port, folder, model, batch, seconds = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5], int(sys.argv[6]), float(sys.argv[7])
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", rank=rank, world_size=size)
def read(name, header):
    path = os.path.join(folder, name)
    data = gzip.open(path + ".gz").read() if os.path.exists(path + ".gz") else open(path, "rb").read()
    return numpy.frombuffer(data, numpy.uint8, offset=header)
images = torch.from_numpy(read("train-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28).copy()).float() / 255
labels = torch.from_numpy(read("train-labels-idx1-ubyte", 8).astype(numpy.int64))
network = {
    "LeNet": lambda: nn.Sequential(nn.Conv2d(1, 20, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.ReLU(),
                                   nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10)),
    "MLP": lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)),
}[model]()
network = DistributedDataParallel(network)
optimizer = torch.optim.SGD(network.parameters(), 0.05)
loss = nn.CrossEntropyLoss()
generator = torch.Generator().manual_seed(rank)
steps, begun, order, at = 0, None, None, 0
while True:
    if order is None or at + batch > len(order):
        order, at = torch.randperm(len(images), generator=generator), 0
    chosen = order[at:at + batch]
    at += batch
    optimizer.zero_grad()
    loss(network(images[chosen]), labels[chosen]).backward()
    optimizer.step()
    steps += 1
    if steps == 20:  # all is warm
        begun = time.monotonic()
    if steps > 20 and steps % 20 == 0:
        over = torch.tensor([1.0 if time.monotonic() - begun >= seconds else 0.0])
        torch.distributed.all_reduce(over)
        if over.item() > 0:
            break
print(json.dumps({"samplesPerSecond": (steps - 20) * batch * size / (time.monotonic() - begun)}))
"""


def free_port():
    import socket
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_reference(python, model, batch, seconds):
    port = str(free_port())
    environment = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    processes = [subprocess.Popen([python, "-c", REFERENCE, str(rank), str(WORKERS), port, DATASET, model, str(batch), str(seconds)],
                                  stdout=subprocess.PIPE, text=True, env=environment) for rank in range(WORKERS)]
    outputs = [process.communicate(timeout=TIMEOUT_SECONDS)[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f"bench: the reference ended with {[process.returncode for process in processes]}")
    return json.loads(outputs[0])["samplesPerSecond"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    python = os.environ.get("DOWNPOUR_PYTORCH_PYTHON")
    if not python:
        sys.exit("bench-all-reduce: DOWNPOUR_PYTORCH_PYTHON is not set: expected a Python with torch")
    rows = []
    for name, model, batch, epochs, seconds in MODELS:
        if options.only not in name:
            continue
        ours, reference = [], []
        for pair in range(options.pairs):
            ours.append(run_ours(options.bin, "lenet-allreduce", model, WORKERS, batch, None, epochs, ps=0,
                                 more=[f"update.updatesPerStep={WORKERS}"])[0])
            reference.append(run_reference(python, model, batch, seconds))
            print(f"{name}: pair {pair + 1}/{options.pairs}: ours {ours[-1]:,.0f}, reference {reference[-1]:,.0f} samples/s",
                  file=sys.stderr, flush=True)
        rows.append(row_of_pairs(name, ours, reference, "samples/s", least=1.0))
    print_table(rows)
    sys.exit(0 if write_rows(rows, options.output) else 1)


if __name__ == "__main__":
    main()
