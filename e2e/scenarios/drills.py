"""Jobs that are broken on purpose, by the command that does it."""

import re
import subprocess

from world import DOWNPOUR, check, fails_after, scenario


@scenario
def drill(world):
    """`downpour drill` deletes pods of workers and of the coordinator at once, and all of a node: the job recovers from
    each, nothing is rolled back but with a node that has the ps, and no update is applied twice."""
    manifest, _ = world.trains(workers=2, epochs=60, failurePolicy=fails_after(1000, maxRestarts=1000))

    def run(*arguments):
        argv = [str(DOWNPOUR), "drill", "lenet", "-n", world.namespace, "--kubeconfig", str(world.driver.kubeconfig),
                "--yes", "--patience", "120s", *arguments]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=400, check=False)
        check(done.returncode == 0, f"{' '.join(arguments)}: exit code {done.returncode}:\n{done.stdout}{done.stderr}")
        last = re.fullmatch(r"drill: (\d+) kills?, ledger exact", done.stdout.splitlines()[-1])
        check(last and int(last.group(1)) > 0, done.stdout)
        return done.stdout, int(last.group(1))

    output, kills = run("--kill", "worker,coordinator", "--every", "5s", "--for", "40s", "--seed", "0")
    check("rolled back" not in output, output)
    restarts = world.status()["restarts"]
    check(restarts["total"] >= kills and restarts["counted"] == 0, f"{kills} kills, restarts: {restarts}")
    run("--kill", "node", "--for", "1s")
    world.wait_ready(2)
    world.wait_progress()
    found = world.ledger(manifest)
    check(found["duplicated"] == 0, f"ledger {found}")
    world.note(kills=kills)
