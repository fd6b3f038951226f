#!/usr/bin/env python3
"""`downpour drill` on a job of real processes that counts its updates: it recovers from every kill, and in the end each
update was counted once, those that were rolled back and done again included."""

import argparse
import re
import subprocess
import sys
import tempfile

from checkpoint_processes import PATIENCE_SECONDS, check_counted, counting_job
from counter_processes import Failure, check

EPOCHS = 10


def drill(run, *arguments):
    """What `downpour drill` says of the run, from which it has to come back with 0; and how many kills there were."""
    command = [run.job.arguments.downpour, "drill", run.folder, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    print(done.stdout, flush=True)
    check(done.returncode == 0, f"{' '.join(arguments)}: exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    last = re.fullmatch(r"drill: (\d+) kills?, ledger exact", done.stdout.splitlines()[-1])
    check(last, f"the last line is '{done.stdout.splitlines()[-1]}'")
    check(int(last.group(1)) == len(re.findall(r"\] (?:killed|stopped) ", done.stdout)), f"other kills:\n{done.stdout}")
    return done.stdout, int(last.group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("downpour", "server", "counter-worker"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="downpour-drill-") as folder:
        job = counting_job(arguments, folder, epochs=EPOCHS)
        with job.start() as run:
            run.until(job.checkpoints, "the first checkpoint")
            output, kills = drill(run, "--kill", "worker,coordinator", "--every", "1s", "--for", "6s", "--seed", "0")
            check(kills >= 2 and "killed worker-" in output and "killed coordinator-0" in output, f"{kills} kills")
            check("rolled back" not in output, f"nothing may be lost with a worker or the coordinator:\n{output}")
            drill(run, "--kill", "worker", "--signal", "STOP", "--stop-for", "1s", "--for", "500ms")
            output, _ = drill(run, "--kill", "ps", "--index", "1", "--for", "500ms")
            check("rolled back to update " in output, f"a ps was killed and nothing was rolled back:\n{output}")
            incarnations = run.status()["incarnations"]
            check(sum(incarnations.values()) > len(incarnations), f"nobody was replaced: {incarnations}")
            summary = run.end()
        check_counted(summary, EPOCHS)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"drill_processes: {failure}")
