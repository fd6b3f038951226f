"""NCCL on all GPUs: communicators that begin, reduce, are aborted and begin again, a hundred times. Without a GPU its fake."""

from kernels import environment, execute, passed
from runs import Failure, gpu_samples
from session import Session

TEST_SECONDS = 90


def reduce(session: Session) -> str:
    program = session.downpour.programs / "tests/nccl_device_test"
    if not program.exists():
        raise Failure("nccl_device_test was not packed")
    with gpu_samples(session.on_gpu) as (before, samples):
        output = execute([str(program), f"--gtest_filter=*/{'Device' if session.on_gpu else 'Fake'}"], environment(session),
                         min(TEST_SECONDS, session.steps.left()))
    # The program itself sees to it that nothing is left; this is what it looks like from outside.
    halves = [max((sample.memory for sample in half), default=None)
              for half in (samples[:len(samples) // 2], samples[len(samples) // 2:])]
    row = {"tests": passed(output), "memoryBeforeMiB": before, "firstHalfMiB": halves[0], "secondHalfMiB": halves[1]}
    session.results.add("nccl", row)
    return (f"{row['tests']} tests passed; MiB of the GPU before {before}, at most {halves[0]} in the first half of the time "
            f"and {halves[1]} in the second")


def nccl(session: Session) -> None:
    session.steps.do("nccl: init, all-reduce, abort, again", lambda: reduce(session))
