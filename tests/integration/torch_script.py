#!/usr/bin/env python3
"""TorchScript files that PyTorch made are trained by `downpour run`, and PyTorch loads back what was trained.

Usage: torch_script.py --downpour PROGRAM
Needs PyTorch 2.11, as Downpour's LibTorch is; without it the test is skipped (exit code 77). DOWNPOUR_PYTORCH_PYTHON
names a Python that has it.
"""

import argparse
import dataclasses
import gzip
import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
from typing import Any

if "DOWNPOUR_PYTORCH_PYTHON" in os.environ:
    interpreter = os.environ.pop("DOWNPOUR_PYTORCH_PYTHON")
    os.execvp(interpreter, [interpreter, *sys.argv])

SKIPPED = 77  # ctest's SKIP_RETURN_CODE
VERSION = "2.11."
try:
    import torch
    from torch import Tensor, nn
except (ImportError, OSError, ValueError) as error:  # the last two where its libraries are missing
    print(f"skipped: {sys.executable} cannot import torch, {VERSION}x expected: {str(error).splitlines()[0]}")
    sys.exit(SKIPPED)
if not torch.__version__.startswith(VERSION):
    print(f"skipped: {sys.executable} has PyTorch {torch.__version__}, {VERSION}x expected")
    sys.exit(SKIPPED)

FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")
TIMEOUT_SECONDS = 100
UPDATES = 50
COMPARED = 100  # samples
OUTPUT_LIMIT = 1e-5
ACCURACY_LIMIT = 5e-4
VOCABULARY = 30
MAX_WORDS = 60
TEXT_CLASSES = 3

IMAGES = {"format": "IDX", "path": str(FASHION_MNIST)}
TEXTS = {"format": "Synthetic",
         "synthetic": {"kind": "Text", "samples": 64 * UPDATES, "testSamples": 400, "classes": TEXT_CLASSES,
                       "vocabulary": VOCABULARY, "minLength": 5, "maxLength": MAX_WORDS}}
SMALL_IMAGES = {"format": "Synthetic", "synthetic": {"kind": "Images", "shape": [1, 28, 28], "samples": 100}}


class Images(nn.Module):
    def __init__(self, normalized: bool = False) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 8, 5)
        self.norm = nn.BatchNorm2d(8) if normalized else nn.Identity()
        self.dropout = nn.Dropout(0.25) if normalized else nn.Identity()
        self.classes = nn.Linear(8 * 12 * 12, 10)

    def forward(self, images: Tensor) -> Tensor:
        features = nn.functional.max_pool2d(torch.relu(self.norm(self.convolution(images))), 2)
        return self.classes(self.dropout(features.flatten(1)))


class Texts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 32)
        self.lstm = nn.LSTM(32, 32, batch_first=True)
        self.classes = nn.Linear(32, TEXT_CLASSES)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        vectors = self.embedding(words)
        packed = nn.utils.rnn.pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
        states = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]  # zero behind the end
        return self.classes(states.sum(1) / lengths[:, None])


@dataclasses.dataclass
class Case:
    name: str
    module: nn.Module
    script: torch.jit.ScriptModule
    dataset: dict[str, Any]
    batch_size: int
    learning_rate: float
    classes: int
    samples: tuple[Tensor, ...]  # arguments of forward
    labels: Tensor | None        # None: `samples` are not those of the data set


class Failure(Exception):
    pass


def check(condition: bool, message: str) -> None:
    if not condition:
        raise Failure(message)


def read_idx(name: str, header_bytes: int) -> Tensor:
    with gzip.open(FASHION_MNIST / f"{name}-ubyte.gz") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8, offset=header_bytes)


def read_model(path: pathlib.Path) -> dict[str, Tensor]:
    """docs/formats.md, "Model file"."""
    content = bytearray(path.read_bytes())
    length = struct.unpack_from("<Q", content)[0]
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        check(entry["dtype"] == "F32", f"{name} is {entry['dtype']}")
        begin, end = entry["data_offsets"]
        tensors[name] = torch.frombuffer(content, dtype=torch.float32, count=(end - begin) // 4,
                                         offset=8 + length + begin).reshape(entry["shape"])
    return tensors


def write_manifest(folder: pathlib.Path, archive: pathlib.Path, dataset: dict[str, Any], batch_size: int = 32,
                   learning_rate: float = 0.01) -> pathlib.Path:
    manifest = {"apiVersion": "training.downpour.dev/v1alpha1", "kind": "TrainingJob",
                "metadata": {"name": archive.stem},
                "spec": {"parameterServer": {"replicas": 2}, "worker": {"replicas": 2},
                         "model": {"torchScript": {"path": archive.name}}, "dataset": dataset,
                         "training": {"batchSize": batch_size, "device": "CPU"},
                         "update": {"optimizer": {"learningRate": learning_rate}}}}
    path = folder / f"{archive.stem}.json"
    path.write_text(json.dumps(manifest), encoding="utf-8")
    return path


def train(downpour: str, case: Case, folder: pathlib.Path) -> None:
    archive = folder / f"{case.name}.pt"
    torch.jit.save(case.script, archive)
    manifest = write_manifest(folder, archive, case.dataset, case.batch_size, case.learning_rate)
    run = folder / f"{case.name}-run"
    process = subprocess.run([downpour, "run", manifest, "--run-dir", run, "--output", "json"], stdout=subprocess.PIPE,
                             text=True, timeout=TIMEOUT_SECONDS, check=False)
    check(process.returncode == 0, f"{case.name}: downpour run ended with {process.returncode}")
    summary = json.loads(process.stdout)
    exact = {"expected": UPDATES, "applied": UPDATES, "missing": 0, "duplicated": 0, "skipped": 0}
    check(summary["ledger"] == exact, f"{case.name}: ledger: {summary['ledger']}")
    guessing = math.log(case.classes)  # about what an untrained network has
    check(summary["testLoss"] < 0.8 * guessing, f"{case.name}: test loss {summary['testLoss']}, of guessing {guessing}")

    trained = read_model(run / "model.safetensors")
    case.module.load_state_dict(trained, strict=True)  # num_batches_tracked becomes an integer again
    loaded = torch.jit.load(archive)
    for name, value in loaded.named_parameters():
        check(not torch.equal(value, trained[name]), f"{case.name}: {name} is as it was before training")
    loaded.load_state_dict(trained, strict=True)
    case.module.eval()
    loaded.eval()
    with torch.no_grad():
        outputs = case.module(*case.samples)
        some = [argument[:COMPARED] for argument in case.samples]
        difference = (loaded(*some) - case.module(*some)).abs().max().item()
    check(difference <= OUTPUT_LIMIT, f"{case.name}: outputs differ by {difference}")
    line = f"{case.name}: test loss {summary['testLoss']:.4f}, test accuracy {summary['testAccuracy']:.4f}"
    if case.labels is not None:
        accuracy = (outputs.argmax(1) == case.labels).double().mean().item()
        check(abs(accuracy - summary["testAccuracy"]) <= ACCURACY_LIMIT,
              f"{case.name}: test accuracy {summary['testAccuracy']}, in PyTorch {accuracy}")
        line += f", in PyTorch {accuracy:.4f}"
    print(f"{line}, outputs differ by {difference:.1e}", flush=True)


def check_refused(downpour: str, folder: pathlib.Path) -> None:
    tied = nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.Linear(10, 10), nn.Linear(10, 10))
    tied[3].weight = tied[2].weight
    frozen = torch.jit.freeze(torch.jit.script(Images(normalized=True).eval()))
    half = torch.jit.script(Images().half())
    for name, save, saved, reason in [("frozen", torch.jit.save, frozen, "has no parameters to train"),
                                      ("tied", torch.jit.save, torch.jit.script(tied), "tied weights"),
                                      ("half", torch.jit.save, half, "is Half, expected Float"),
                                      ("state", torch.save, Images().state_dict(), "is no TorchScript archive")]:
        archive = folder / f"{name}.pt"
        save(saved, archive)
        manifest = write_manifest(folder, archive, SMALL_IMAGES)
        process = subprocess.run([downpour, "validate", manifest], capture_output=True, text=True,
                                 timeout=TIMEOUT_SECONDS, check=False)
        message = process.stderr.removeprefix(f"{manifest}: ")
        print(f"{name}: {process.returncode}: {message}", end="", flush=True)
        check(process.returncode == 2, f"{name}: exit code {process.returncode}, expected 2")
        check(message.startswith("spec.model.torchScript.path: "), f"{name}: expected spec.model.torchScript.path")
        check(reason in message, f"{name}: expected \"{reason}\"")


def make_cases() -> list[Case]:
    torch.manual_seed(1)
    images = read_idx("t10k-images-idx3", 16).reshape(-1, 1, 28, 28).float() / 255
    labels = read_idx("t10k-labels-idx1", 8)
    lengths = torch.randint(5, MAX_WORDS + 1, (COMPARED,))
    words = torch.randint(1, VOCABULARY, (COMPARED, MAX_WORDS)) * (torch.arange(MAX_WORDS) < lengths[:, None])
    normalized, plain, texts = Images(normalized=True), Images(), Texts()
    return [Case("scripted", normalized, torch.jit.script(normalized), IMAGES, 1200, 0.1, 10, (images,), labels),
            Case("traced", plain, torch.jit.trace(plain, images[:2]), IMAGES, 1200, 0.1, 10, (images,), labels),
            Case("lstm", texts, torch.jit.script(texts), TEXTS, 64, 1.0, TEXT_CLASSES, (words, lengths), None)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--downpour", required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="downpour-torch-script-"))
    try:
        check_refused(options.downpour, folder)
        for case in make_cases():
            train(options.downpour, case, folder)
    except (Failure, subprocess.TimeoutExpired) as failure:
        print(f"torch_script: {failure}\nThe runs are kept in {folder}.", file=sys.stderr)
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
