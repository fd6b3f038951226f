"""What was measured, as JSON and as Markdown for docs/benchmarks.md."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


@dataclasses.dataclass
class Results:
    """What is known so far; written after every step, so that whatever ends this leaves what it had."""

    folder: Path
    machine: Row = dataclasses.field(default_factory=dict)
    rows: dict[str, list[Row]] = dataclasses.field(default_factory=dict)  # by table
    steps: list[Row] = dataclasses.field(default_factory=list)
    not_reached: list[str] = dataclasses.field(default_factory=list)  # parts
    complete: bool = False

    def add(self, table: str, row: Row) -> None:
        self.rows.setdefault(table, []).append(row)

    @property
    def failures(self) -> list[Row]:
        return [step for step in self.steps if step["failure"] is not None]

    @property
    def holds(self) -> bool:
        return self.complete and not self.failures and not self.not_reached

    def write(self) -> None:
        known = {key: value for key, value in vars(self).items() if key != "folder"}
        (self.folder / "results.json").write_text(json.dumps({"holds": self.holds, **known}, indent=2) + "\n")
        (self.folder / "results.md").write_text(to_markdown(self))


def known(value: Any, form: str = "{}") -> str:
    return form.format(value) if value is not None else "not known"


def share(value: Any) -> str:
    return known(value, "{:.0%}")


def milliseconds(value: Any) -> str:
    return known(value, "{:.2f} ms")


def memory(row: Row) -> str:
    return known(row["gpuMemoryMiB"], "{:,} MiB") if row["device"] == "CUDA" else ""


def ratio(row: Row, key: str) -> str:
    return f"{row[key] / row['alone']:.2f}" if row.get(key) is not None else "not known"


def growth(before_and_after: Any) -> str:
    if before_and_after is None or None in before_and_after:
        return known(None)
    return "{:,} to {:,} MiB".format(*before_and_after)


def equality(row: Row) -> list[str]:
    worst = max(tensor["relative"] for tensor in row["tensors"])
    return [row["model"], " and ".join(row["devices"]), str(row["seed"]), str(row["updates"]), str(len(row["tensors"])),
            f"{worst:.1e}", f"{row['limit']:.0e}", "yes" if row["holds"] else "NO"]


# By the name of the rows: the columns, and what a row has in them. The first column is text, the others are numbers.
TABLES: dict[str, tuple[list[str], Callable[[Row], list[str]]]] = {
    "lenet": (
        ["LeNet, all of Fashion-MNIST, 1 worker and 1 ps", "batch", "epochs", "an epoch, with its evaluation", "test accuracy",
         "first update", "most GPU memory"],
        lambda row: [row["device"], str(row["batch"]), str(row["epochs"]), f"{row['secondsAnEpoch']:.2f} s",
                     known(row["accuracy"], "{:.4f}"), known(row["firstUpdateSeconds"], "{:.1f} s"), memory(row)]),
    "peers": (
        ["model", "device", "batch", "precision", "parameters and buffers", "a step of PyTorch alone", "with a ps", "ratio",
         "all-reduce of one", "ratio"],
        lambda row: [row["model"], row["device"], f"{row['batch']:,}", row["precision"], known(row.get("values"), "{:,}"),
                     milliseconds(row.get("alone")), milliseconds(row.get("byPs")), ratio(row, "byPs"),
                     milliseconds(row.get("byAllReduce")), ratio(row, "byAllReduce")]),
    "busy": (
        ["model, with a ps", "the GPU works", "with kernels", "with copies", "kernels/s", "by nvidia-smi"],
        lambda row: [row["model"], share(row.get("busy")), share(row.get("kernels")), share(row.get("copies")),
                     known(row.get("kernelsASecond"), "{:,.0f}"), share(row["byNvidiaSmi"])]),
    "equality": (
        ["model", "compared", "seed", "updates", "tensors", "largest difference", "limit", "holds"], equality),
    "checkpoints": (
        ["checkpoint of", "begun on", "resumed on", "compared with one life on", "largest difference", "holds"],
        lambda row: [row["model"], row["first"], row["second"], row["reference"], f"{row['relative']:.1e}",
                     "yes" if row["holds"] else "NO"]),
    "counter": (
        ["counter test on", "workers", "updates", "kills", "restarts", "seconds"],
        lambda row: [row["device"], str(row["workers"]), f"{row['updates']:,}", str(row["kills"]), str(row["restarts"]),
                     f"{row['totalSeconds']:.1f}"]),
    "memory": (
        ["memory on", "steps", "from step", "GPU", "worker", "ps"],
        lambda row: [row["device"], f"{row['steps']:,}", f"{row['from']:,}", growth(row["deviceMiB"]),
                     *(growth(row["hostMiB"].get(name)) for name in ("worker-0", "ps-0"))]),
    "outOfMemory": (
        ["what does not fit, on", "is told", "after"],
        lambda row: [row["device"], row["line"].replace("|", "/"), f"{row['totalSeconds']:.1f} s"]),
    "nccl": (
        ["NCCL", "GPU memory before", "most in the first half", "most in the second"],
        lambda row: [f"{row['tests']} tests", *(known(row[key], "{:,} MiB")
                                                for key in ("memoryBeforeMiB", "firstHalfMiB", "secondHalfMiB"))]),
    "kernels": (
        ["kernel", "values", "time", "GB/s", "of the copy"],
        lambda row: [row["kernel"], f"{row['elements']:,}", f"{row['microseconds']:,.1f} us", f"{row['gbPerSecond']:,.0f}",
                     f"{row['ofCopy']:.0%}"]),
    "demo": (
        ["demo", "workers", "epochs", "test accuracy", "samples/s", "most GPU memory", "updates", "ledger"],
        lambda row: [f"LeNet on {row['device']}", str(row["workers"]), str(row["epochs"]), known(row["testAccuracy"], "{:.3f}"),
                     known(row["samplesPerSecond"], "{:,.0f}"), memory(row), str(row["ledger"]["expected"]), row["audit"]]),
    "rates": (
        ["model", "device", "threads", "samples/s", "first update", "most GPU memory"],
        lambda row: [row["model"], row["device"], str(row["threads"]), f"{row['samplesPerSecond']:,.0f}",
                     known(row["firstUpdateSeconds"], "{:.1f} s"), memory(row)]),
}


def table(columns: list[str], rows: list[list[str]]) -> list[str]:
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines] + [""]


def to_markdown(results: Results) -> str:
    machine = {key: known(results.machine.get(key))
               for key in ("gpu", "driver", "cuda", "torch", "cpu", "cores", "commit")}
    lines = ["{gpu}, driver {driver}, CUDA {cuda}, PyTorch {torch}; {cpu}, {cores} cores; Downpour {commit}."
             .format(**machine), ""]
    for name, (columns, cells) in TABLES.items():
        if name in results.rows:
            lines += table(columns, [cells(row) for row in results.rows[name]])
    lines += [f"FAILED: {step['name']}: {step['failure'].splitlines()[0]}" for step in results.failures]
    if results.not_reached:
        lines.append(f"Not reached: {', '.join(results.not_reached)}.")
    if not results.complete:
        lines.append("Not complete.")
    return "\n".join(lines).rstrip() + "\n"
