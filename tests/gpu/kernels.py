"""The kernels by themselves: their test, their speed, and what compute-sanitizer finds."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from runs import PACKED, Failure

KERNELS = PACKED / "kernels"
TEST_SECONDS = 60
BENCH_SECONDS = 60
CHECK_SECONDS = 120  # each tool
TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]
EMULATED_ELEMENTS = ["10000"]  # that a CPU is done with soon


def environment(torch_lib: Path, on_gpu: bool) -> dict[str, str]:
    # The CUDA runtime is that of PyTorch.
    search = [str(PACKED / "lib"), str(torch_lib), str(torch_lib.parents[1] / "nvidia/cu13/lib"),
              os.environ.get("LD_LIBRARY_PATH", "")]
    plugin = KERNELS / ("libdownpour_cuda.so" if on_gpu else "emulated.so")
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, search)), "DOWNPOUR_CUDA_PLUGIN": str(plugin)}


def execute(command: list[str], variables: dict[str, str], seconds: float) -> str:
    """What it printed. Failure: it did not end well, or not in time."""
    if not KERNELS.exists():
        raise Failure("the kernels were not packed")
    try:
        process = subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, check=False, timeout=max(1.0, seconds))
    except subprocess.TimeoutExpired:
        raise Failure(f"{' '.join(command)}: not done after {seconds:.0f} s") from None
    if process.returncode != 0:
        raise Failure(f"{' '.join(command)}: exit code {process.returncode}\n" +
                      "\n".join(process.stdout.splitlines()[-40:]))
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


def test(variables: dict[str, str], seconds_left: float) -> str:
    command = [str(KERNELS / "cuda_kernels_test"), "--gtest_filter=*/Device"]
    return f"{passed(execute(command, variables, min(TEST_SECONDS, seconds_left)))} tests passed"


def bench(variables: dict[str, str], seconds_left: float, on_gpu: bool) -> list[dict[str, Any]]:
    command = [str(KERNELS / "kernels_bench")] + ([] if on_gpu else ["--elements", *EMULATED_ELEMENTS])
    output = execute(command, variables, min(BENCH_SECONDS, seconds_left))
    return [json.loads(line) for line in output.splitlines()]


def sanitizer() -> str:
    found = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if found is None:
        raise Failure("this machine has no compute-sanitizer, which comes with the CUDA toolkit")
    return found


def check(tool: str, variables: dict[str, str], seconds_left: float) -> str:
    """The large gradients are left out: what they add is more of the same."""
    command = [sanitizer(), "--tool", tool, "--error-exitcode", "9", str(KERNELS / "cuda_kernels_test"),
               "--gtest_filter=*/Device:-*Large*"]
    output = execute(command, variables, min(CHECK_SECONDS, seconds_left))
    return f"{passed(output)} tests passed, nothing found"
