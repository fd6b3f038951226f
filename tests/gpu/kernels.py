"""The kernels by themselves: their test, their speed, and what compute-sanitizer finds."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from runs import Failure
from session import Session

TEST_SECONDS = 60
BENCH_SECONDS = 60
CHECK_SECONDS = 120  # each tool
CODECS = ["fp32", "bf16", "int8", "topK", "oneBit"]
LEAST_OF_COPY = 0.6  # of the device's, for large gradients; 0.8 is wanted
TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]
WITHOUT_LARGE = "*/Device:-*Large*"
EMULATED_ELEMENTS = ["10000"]  # that a CPU is done with soon


def folder_of(session: Session) -> Path:
    folder = session.downpour.programs / "kernels"
    if not folder.exists():
        raise Failure("the kernels were not packed")
    return folder


def environment(session: Session) -> dict[str, str]:
    folder = folder_of(session)
    return session.downpour.environment | ({} if session.on_gpu else {"DOWNPOUR_CUDA_PLUGIN": str(folder / "emulated.so")})


def execute(command: list[str], variables: dict[str, str], seconds: float) -> str:
    """What it printed. Failure: it did not end well, or not in time."""
    try:
        process = subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, check=False, timeout=max(1.0, seconds))
    except subprocess.TimeoutExpired:
        raise Failure(f"{' '.join(command)}: not done after {seconds:.0f} s") from None
    if process.returncode != 0:
        said = process.stdout.splitlines()
        raise Failure("\n".join([f"{' '.join(command)}: exit code {process.returncode}: {said[-1] if said else 'no output'}",
                                 *said[-40:]]))
    return process.stdout


def passed(output: str) -> int:
    """How many tests of a GoogleTest program did. Failure: one was skipped, or there was none."""
    if "[  SKIPPED ]" in output:
        why = re.search(r": Skipped\n(.*)", output)
        raise Failure(f"skipped: {why.group(1) if why else 'no reason given'}")
    found = re.search(r"\[  PASSED  \] (\d+) tests?\.", output)
    if found is None or found.group(1) == "0":
        raise Failure("no test was run")
    return int(found.group(1))


def test(session: Session) -> str:
    tests = session.size("*/Device", WITHOUT_LARGE)
    command = [str(folder_of(session) / "cuda_kernels_test"), f"--gtest_filter={tests}"]
    return f"{passed(execute(command, environment(session), min(TEST_SECONDS, session.steps.left())))} tests passed"


def bench(session: Session) -> str:
    command = [str(folder_of(session) / "kernels_bench")] + ([] if session.on_gpu else ["--elements", *EMULATED_ELEMENTS])
    output = execute(command, environment(session), min(BENCH_SECONDS, session.steps.left()))
    rows: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines()]
    for row in rows:
        session.results.add("kernels", row)
    slowest = min(rows, key=lambda row: float(row["ofCopy"]))
    said = f"{slowest['kernel']} of {slowest['elements']:,} is slowest, at {slowest['ofCopy']:.0%} of the copy"
    codecs = [row for row in rows if row["elements"] == max(row["elements"] for row in rows) and row["kernel"] in CODECS]
    session.target(all(row["ofCopy"] >= LEAST_OF_COPY for row in codecs),
                   f"codecs at {LEAST_OF_COPY:.0%} of the copy at least, got {said}")
    return said


def kernels(session: Session) -> None:
    session.steps.do("kernels: test", lambda: test(session))
    session.steps.do("kernels: GB/s", lambda: bench(session))


def sanitizer() -> str:
    found = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if found is None:
        raise Failure("this machine has no compute-sanitizer, which comes with the CUDA toolkit")
    return found


def check_with(tool: str, session: Session) -> str:
    """The large gradients are left out: what they add is more of the same."""
    command = [sanitizer(), "--tool", tool, "--error-exitcode", "9", str(folder_of(session) / "cuda_kernels_test"),
               f"--gtest_filter={WITHOUT_LARGE}"]
    output = execute(command, environment(session), min(CHECK_SECONDS, session.steps.left()))
    return f"{passed(output)} tests passed, nothing found"


def check(session: Session) -> None:
    if not session.on_gpu:
        session.steps.say("check: left out, it is about GPUs")
        return
    for tool in TOOLS:
        session.steps.do(f"kernels: {tool}", lambda: check_with(tool, session))
