"""One thing after another, within the time that there is."""

import subprocess
import time
from collections.abc import Callable

from report import Results
from runs import END_SECONDS, Failure

LEAST_SECONDS = 2 * END_SECONDS  # with less nothing is begun


class Stopped(BaseException):
    """Somebody wants all of it to end."""


class Steps:
    """Does steps, says how long each took, and begins nothing when the time is over: that of all, or that of the part that
    they belong to."""

    def __init__(self, results: Results, limit_seconds: float, clock: Callable[[], float] = time.monotonic):
        self.results = results
        self.clock = clock
        self.begin = clock()
        self.limit_seconds = limit_seconds
        self.part_end = limit_seconds

    def elapsed(self) -> float:
        return self.clock() - self.begin

    def left(self) -> float:
        return min(self.limit_seconds, self.part_end) - self.elapsed()

    def begin_part(self, name: str, limit_seconds: float) -> bool:
        """False: the time of all is over."""
        self.part_end = self.limit_seconds
        if self.left() <= LEAST_SECONDS:
            self.results.not_reached.append(name)
            self.say(f"{name}: not reached")
            self.results.write()
            return False
        self.part_end = self.elapsed() + limit_seconds
        return True

    def say(self, text: str) -> None:
        print(f"[{self.elapsed():6.1f} s] {text}", flush=True)

    def do(self, name: str, body: Callable[[], str]) -> bool:
        """Whether it was done. `body` returns what to say of it."""
        begin, failure, said = self.elapsed(), None, ""
        try:
            if self.left() <= LEAST_SECONDS:
                raise Failure("not begun: the time is over")
            said = body()
        except Failure as error:
            failure = str(error)
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            failure = f"{type(error).__name__}: {error}"
        except Stopped:
            failure = "stopped"
            raise
        finally:
            seconds = self.elapsed() - begin
            self.results.steps.append({"name": name, "seconds": round(seconds, 1), "failure": failure})
            outcome = said if failure is None else f"FAILED: {failure}"
            self.say(f"{name} ({seconds:.1f} s): {outcome}")
            self.results.write()
        return failure is None
