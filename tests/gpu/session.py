"""What the parts have in common."""

import dataclasses
from pathlib import Path
from typing import Any, TypeVar

from report import Results
from runs import PACKED, Downpour, Failure
from steps import Steps

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Session:
    steps: Steps
    results: Results
    downpour: Downpour
    reference: str  # device
    device: str     # that is compared with it, or measured
    models: list[str]
    batches: dict[str, int]  # of peers, where not the usual ones
    precisions: list[str]    # of peers
    quick: bool

    @property
    def on_gpu(self) -> bool:
        return self.device == "CUDA"

    def size(self, whole: T, quick: T) -> T:
        return quick if self.quick else whole

    def on_device(self, device: str | None = None) -> dict[str, Any]:
        """Fields of a manifest."""
        device = device or self.device
        return {"training.device": device, "training.threads": self.results.machine["threads"] if device == "CPU" else 1}

    def fast_on_device(self, device: str | None = None) -> dict[str, Any]:
        """Where speed is measured: with TF32, on a GPU."""
        return {**self.on_device(device), "training.precision": fast_precision(device or self.device)}

    def target(self, holds: bool, expected: str) -> None:
        """What is said of GPUs alone, and of all there is to do."""
        if self.on_gpu and not self.quick and not holds:
            raise Failure(f"expected {expected}")


def fast_precision(device: str) -> str:
    return "tf32" if device == "CUDA" else "fp32"


def manifest(name: str) -> Path:
    return PACKED / "manifests" / name
