"""What an experiment consists of. settings.py says which there are."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Slowdown:
    """A worker that is stopped (SIGSTOP) for a while, again and again, from the first update on."""
    worker: int
    running: float  # seconds between two stops
    stopped: float  # seconds


@dataclasses.dataclass(frozen=True)
class Run:
    """One `downpour run`."""
    name: str                 # of its folder
    title: str                # in tables and legends
    spec: dict[str, Any]      # of the manifest; a plug-in's path is taken from the folder of --plugins
    slowdowns: tuple[Slowdown, ...] = ()
    compared_with: str = ""   # name of the run of the same group that it is measured by
    target: float | None = None  # see Training and Throughput
    series: str = ""          # see Scaling


@dataclasses.dataclass(frozen=True)
class Training:
    """Runs whose accuracy on the test set is compared. `Run.target`: how much less it may be than of `compared_with`."""
    name: str
    title: str
    runs: tuple[Run, ...]
    accuracy: float  # each run is to reach it
    plots: tuple[tuple[str, str], ...]  # quantity of `downpour compare`, and seconds, samples or bytes below it
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Scaling(Training):
    """The same with more and more workers: runs of one `Run.series` differ in their number, and the first is what they are
    measured by. What is plotted is the time to `accuracy` and the samples per second, against workers."""


@dataclasses.dataclass(frozen=True)
class Throughput:
    """Runs whose samples per second are compared, in rounds. `Run.target`: the least ratio to those of `compared_with`."""
    name: str
    title: str
    runs: tuple[Run, ...]
    rounds: int
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Part:
    """What EXPERIMENTS="NAME ..." chooses from."""
    name: str
    title: str
    text: str
    groups: tuple[Training | Throughput, ...]
    remarks: str = ""  # what the figures show, and why a target is missed; by hand
