"""Shows on a GPU, part by part, what was packed. README.md says what.

Usage: run [--results FOLDER] [--parts PART,...] [--devices REFERENCE,DEVICE] [--models NAME,...] [--batches NAME=N,...]
           [--precisions NAME,...] [--torch-lib FOLDER] [--limit SECONDS] [--quick]
"""

import argparse
import dataclasses
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import busy
import counter
import equality
import kernels
import lenet
import machine
import memory
import nccl
import peers
import rates
from report import Results
from runs import Downpour
from session import Session, fast_precision
from steps import Steps, Stopped


@dataclasses.dataclass(frozen=True)
class Part:
    begin: Callable[[Session], None]
    limit_seconds: float  # so that no part takes what another one needs


# In the order in which they are worth having.
PARTS = {
    "lenet": Part(lenet.lenet, 60),
    "peers": Part(peers.peers, 150),
    "profile": Part(busy.busy, 70),
    "kernels": Part(kernels.kernels, 60),
    "equality": Part(equality.equality, 90),
    "checkpoints": Part(equality.checkpoints, 70),
    "counter": Part(counter.counter, 90),
    "memory": Part(memory.memory, 90),
    "nccl": Part(nccl.nccl, 110),
    "check": Part(kernels.check, 300),
    "rates": Part(rates.rates, 120),
}
MODELS = ["lenet", "cifar-cnn", "bilstm"]
PRECISIONS = ["fp32", "tf32", "bf16"]


def names(text: str, known: list[str], option: str) -> list[str]:
    """ValueError: one is not known."""
    found = text.split(",")
    unknown = [name for name in found if name not in known]
    if unknown:
        raise ValueError(f"{option}: got {', '.join(map(repr, unknown))}, expected some of {','.join(known)}")
    return found


def parts_of(text: str) -> list[str]:
    """In the order that is asked for."""
    return list(PARTS) if text == "all" else names(text, list(PARTS), "--parts: 'all', or")


def batches_of(text: str) -> dict[str, int]:
    batches = {}
    for entry in filter(None, text.split(",")):
        name, _, number = entry.partition("=")
        if name not in [peer.name for peer in peers.PEERS] or not number.isdigit() or int(number) < 1:
            raise ValueError(f"--batches: got {entry!r}, expected NAME=N of {','.join(peer.name for peer in peers.PEERS)}")
        batches[name] = int(number)
    return batches


def do_all(session: Session, parts: list[str]) -> None:
    for name in parts:
        if session.steps.begin_part(name, PARTS[name].limit_seconds):
            PARTS[name].begin(session)
    session.results.complete = True


def begin(options: argparse.Namespace, devices: list[str], results: Results, scratch: Path) -> Session | None:
    """None: there is nothing to begin with."""
    steps = Steps(results, options.limit)
    programs = scratch / "programs"
    found = results.machine
    if not (steps.do("unpack", lambda: machine.unpack(programs)) and
            steps.do("machine", lambda: machine.look_around(found, options.torch_lib, "CUDA" in devices))):
        return None
    downpour = Downpour(programs, Path(found["torchLib"]), scratch, steps.left)
    if not steps.do("programs", downpour.check_programs):
        return None
    return Session(steps, results, downpour, *devices, models=options.models, batches=options.batches,
                   precisions=options.precisions, quick=options.quick)


def main() -> None:
    parser = argparse.ArgumentParser(prog="run")
    parser.add_argument("--results", type=Path, default=Path("build/gpu-results"), metavar="FOLDER",
                        help="for results.json and results.md")
    parser.add_argument("--parts", default="all", help=f"one after another, as time allows: all of {','.join(PARTS)}, or some")
    parser.add_argument("--devices", default="CPU,CUDA",
                        help="the reference, and what is compared with it; CPU,CPU tries this out")
    parser.add_argument("--models", default=",".join(MODELS), help="of equality, checkpoints and rates: some of %(default)s")
    parser.add_argument("--batches", default="", metavar="NAME=N,...", help="of peers and profile, instead of the usual ones")
    parser.add_argument("--precisions", help=f"of peers: some of {','.join(PRECISIONS)}; otherwise tf32 on a GPU, fp32 on the CPU")
    parser.add_argument("--torch-lib", type=Path, metavar="FOLDER", help="PyTorch's; otherwise that of this python3")
    parser.add_argument("--limit", type=float, default=400, metavar="SECONDS", help="for all of it")
    parser.add_argument("--quick", action="store_true", help="small sizes, which try this out and say nothing of speed")
    options = parser.parse_args()
    devices = options.devices.split(",")
    if len(devices) != 2 or not set(devices) <= {"CPU", "CUDA"}:
        parser.error(f"--devices: got {options.devices}, expected two of CPU and CUDA")
    try:
        parts = parts_of(options.parts)
        options.models = names(options.models, MODELS, "--models")
        options.precisions = names(options.precisions or fast_precision(devices[1]), PRECISIONS, "--precisions")
        options.batches = batches_of(options.batches)
    except ValueError as error:
        parser.error(str(error))

    def stop(*_: object) -> None:
        raise Stopped

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    options.results.mkdir(parents=True, exist_ok=True)
    results = Results(options.results)
    scratch = Path(tempfile.mkdtemp(prefix="downpour-gpu-"))
    try:
        session = begin(options, devices, results, scratch)
        if session is not None:
            do_all(session, parts)
    except Stopped:
        print("gpu: stopped", file=sys.stderr)
    finally:
        results.write()
        shutil.rmtree(scratch, ignore_errors=True)
    if results.not_reached:
        print(f"gpu: not reached: --parts {','.join(results.not_reached)}")
    print(f"gpu: {'all holds' if results.holds else 'NOT all holds'}: {options.results / 'results.md'}", flush=True)
    sys.exit(0 if results.holds else 1)


if __name__ == "__main__":
    main()
