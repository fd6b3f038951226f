"""What was measured, as JSON and as Markdown for docs/benchmarks.md."""

import dataclasses
import json
from pathlib import Path
from typing import Any


@dataclasses.dataclass
class Results:
    """What is known so far; written after every step, so that whatever ends this leaves what it had."""

    folder: Path
    machine: dict[str, Any] = dataclasses.field(default_factory=dict)
    comparisons: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    resumed: dict[str, Any] | None = None
    demo: dict[str, Any] | None = None
    kernels: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    rates: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    steps: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    complete: bool = False

    @property
    def failures(self) -> list[dict[str, Any]]:
        return [step for step in self.steps if step["failure"] is not None]

    @property
    def holds(self) -> bool:
        return self.complete and not self.failures

    def write(self) -> None:
        known = {key: value for key, value in vars(self).items() if key != "folder"}
        (self.folder / "results.json").write_text(json.dumps({"holds": self.holds, **known}, indent=2) + "\n")
        (self.folder / "results.md").write_text(to_markdown(self))


def known(value: Any, form: str = "{}") -> str:
    return form.format(value) if value is not None else "not known"


def table(columns: list[str], rows: list[list[str]]) -> list[str]:
    """The first column is text, the others are numbers."""
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines] + [""]


def to_markdown(results: Results) -> str:
    machine = {key: known(results.machine.get(key))
               for key in ("gpu", "driver", "cuda", "torch", "cpu", "cores", "commit")}
    lines = ["{gpu}, driver {driver}, CUDA {cuda}, PyTorch {torch}; {cpu}, {cores} cores; Downpour {commit}."
             .format(**machine), ""]
    if results.comparisons:
        lines += table(
            ["model", "compared", "seed", "updates", "tensors", "largest difference", "limit", "holds"],
            [[row["model"], " and ".join(row["devices"]), str(row["seed"]), str(row["updates"]),
              str(len(row["tensors"])), f"{max(tensor['relative'] for tensor in row['tensors']):.1e}",
              f"{row['limit']:.0e}", "yes" if row["holds"] else "NO"] for row in results.comparisons])
    if results.resumed is not None:
        begun, resumed = results.resumed["devices"]
        lines += [f"Begun on {begun}, resumed on {resumed} from a checkpoint ({results.resumed['model']}): differs from one "
                  f"life on {begun} by {results.resumed['relative']:.1e} at most.", ""]
    if results.rates:
        lines += table(
            ["model", "device", "threads", "samples/s", "first update", "most GPU memory"],
            [[row["model"], row["device"], str(row["threads"]), f"{row['samplesPerSecond']:,.0f}",
              known(row["firstUpdateSeconds"], "{:.1f} s"),
              known(row["gpuMemoryMiB"], "{:,} MiB") if row["device"] == "CUDA" else ""] for row in results.rates])
    if results.demo is not None:
        run = results.demo
        lines += table(
            ["demo", "workers", "epochs", "test accuracy", "samples/s", "most GPU memory", "updates", "ledger"],
            [[f"LeNet on {run['device']}", str(run["workers"]), str(run["epochs"]),
              known(run["testAccuracy"], "{:.3f}"), known(run["samplesPerSecond"], "{:,.0f}"),
              known(run["gpuMemoryMiB"], "{:,} MiB") if run["device"] == "CUDA" else "",
              str(run["ledger"]["expected"]), run["audit"]]])
    if results.kernels:
        lines += table(
            ["kernel", "values", "time", "GB/s", "of the copy"],
            [[row["kernel"], f"{row['elements']:,}", f"{row['microseconds']:,.1f} us", f"{row['gbPerSecond']:,.0f}",
              f"{row['ofCopy']:.0%}"] for row in results.kernels])
    lines += [f"FAILED: {step['name']}: {step['failure'].splitlines()[0]}" for step in results.failures]
    if not results.complete:
        lines.append("Not complete.")
    return "\n".join(lines).rstrip() + "\n"
