"""Reads model files (docs/formats.md) and compares them tensor by tensor."""

import array
import dataclasses
import json
import math
import operator
from pathlib import Path

# Of the largest value of a tensor, and of the largest change that training made to it: without the second, two models
# that were hardly trained would be alike.
DIFFERENCE_LIMIT = 1e-4
CHANGE_LIMIT = 1e-2


@dataclasses.dataclass(frozen=True)
class Tensor:
    shape: list[int]
    values: "array.array[float]"


@dataclasses.dataclass(frozen=True)
class Comparison:
    name: str
    largest: float     # |value| of the reference
    change: float      # |value - value at the start| of the reference
    difference: float  # |value - value of the other|

    @property
    def relative(self) -> float:
        return self.difference / self.largest if self.largest > 0 else math.inf

    @property
    def holds(self) -> bool:
        return (0 < self.change and self.difference <= DIFFERENCE_LIMIT * self.largest
                and self.difference <= CHANGE_LIMIT * self.change)


def read(path: Path) -> dict[str, Tensor]:
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    tensors = {}
    for name, entry in json.loads(content[8:8 + size]).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "F32":
            raise ValueError(f"{path}: {name}: got {entry['dtype']}, expected F32")
        begin, end = entry["data_offsets"]
        values = array.array("f", content[8 + size + begin:8 + size + end])
        if not all(map(math.isfinite, values)):
            raise ValueError(f"{path}: {name}: holds values that are not finite")
        tensors[name] = Tensor(entry["shape"], values)
    if not tensors:
        raise ValueError(f"{path}: holds no tensor")
    return tensors


def largest_difference(one: Tensor, other: Tensor) -> float:
    return max(map(abs, map(operator.sub, one.values, other.values)), default=0.0)


def compare(start: dict[str, Tensor], reference: dict[str, Tensor], other: dict[str, Tensor]) -> list[Comparison]:
    """ValueError: they are not of the same network."""
    def shapes(tensors: dict[str, Tensor]) -> dict[str, list[int]]:
        return {name: tensor.shape for name, tensor in tensors.items()}

    for tensors in (start, other):
        if shapes(tensors) != shapes(reference):
            raise ValueError(f"got tensors {shapes(tensors)}, expected {shapes(reference)}")
    return [Comparison(name, max(map(abs, tensor.values), default=0.0), largest_difference(tensor, start[name]),
                       largest_difference(tensor, other[name])) for name, tensor in reference.items()]
