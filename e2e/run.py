#!/usr/bin/env python3
"""End-to-end scenarios: the operator, installed with Helm, on the cluster that is up (e2e/cluster.py up), with the
images of e2e/images.py --load.

    run.py                 all of them
    run.py train scale     some
    run.py core            the few that CI runs, with the operator installed by kubectl and not by Helm
    run.py --list          their names

The scenarios are in e2e/scenarios/; world.py says what they are made of. Each has a namespace of its own and removes
it. The operator stays installed until the last one is over. What was found goes to build/e2e/results.json."""

import argparse
import importlib
import json
import pathlib
import sys
import time

from driver import choice
from driver.base import ROOT, ClusterError
from world import (SCENARIOS, SYSTEM, Failure, World, install, install_with_kubectl, uninstall, uninstall_with_kubectl)

# What CI runs, with the operator installed by kubectl: helm takes a minute to build.
CORE = ("train", "worker_failures", "exit_codes", "operator_killed_between", "checkpoint_claim")
FOLDER = pathlib.Path(__file__).resolve().parent / "scenarios"
for file in sorted(FOLDER.glob("*.py")):
    importlib.import_module(f"scenarios.{file.stem}")


def keep_logs(world, folder):
    """What a person needs to find out why a scenario failed."""
    folder.mkdir(parents=True, exist_ok=True)
    everywhere = ["-l", "app.kubernetes.io/name=downpour", "--prefix", "--tail=-1"]
    for name, text in (
            ("objects.yaml", world.kubectl("get", "trainingjobs,pods,events", "-o", "yaml", check=False)),
            ("operator.log", world.driver.kubectl("-n", SYSTEM, "logs", *everywhere, check=False)),
            ("system.txt", world.driver.kubectl("get", "nodes,pods", "-A", "-o", "wide", check=False))):
        (folder / name).write_text(text)


def run_one(driver, name, install_again):
    """What goes into results.json of it."""
    world = World(driver, "e2e-" + name.replace("_", "-"))
    begun = time.monotonic()
    error = None
    try:
        driver.kubectl("create", "namespace", world.namespace)
        detail = SCENARIOS[name](world)
        world.check_nothing_crashed()
        if detail:
            world.note(detail=detail)
    except (ClusterError, Failure, KeyError, IndexError, TypeError, ValueError) as problem:
        error = f"{type(problem).__name__}: {problem}"
        logs = driver.state / "logs" / name
        keep_logs(world, logs)
    finally:
        world.end()
    seconds = round(time.monotonic() - begun, 1)
    figures = ", ".join(f"{key} {value}" for key, value in world.figures.items())
    if error:
        print(f"FAILED  {name} ({seconds:.0f} s): {error}\n        {figures}; see {logs}", flush=True)
        install_again(driver)
    else:
        print(f"ok      {name} ({seconds:.0f} s) {figures}", flush=True)
    return {"scenario": name, "passed": not error, "seconds": seconds, "figures": world.figures, "error": error}


def summary(results):
    width = max(len(one["scenario"]) for one in results)
    lines = [f"{one['scenario']:{width}} {'ok' if one['passed'] else 'FAILED':6} {one['seconds']:6.1f} s"
             for one in results]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO")
    parser.add_argument("--list", action="store_true", help="print their names")
    choice.add_options(parser)
    arguments = parser.parse_args()
    if arguments.list:
        for name, function in SCENARIOS.items():
            print(f"{name:20} {function.__doc__.splitlines()[0]}")
        return 0
    names = [name for given in arguments.scenarios for name in (CORE if given == "core" else (given,))]
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        parser.error(f"no scenario {unknown[0]}; there are core, {', '.join(SCENARIOS)}")
    driver = choice.chosen(arguments)
    begun = time.monotonic()
    begin, end = (install, uninstall)
    if arguments.scenarios == ["core"]:
        begin, end = (install_with_kubectl, uninstall_with_kubectl)
    begin(driver)
    results = [run_one(driver, name, begin) for name in names or SCENARIOS if names or name not in driver.unfit]
    end(driver)
    passed = sum(one["passed"] for one in results)
    seconds = round(time.monotonic() - begun, 1)
    print(f"\n{summary(results)}\n{passed} of {len(results)} scenarios hold, {seconds / 60:.1f} minutes")
    (driver.state / "results.json").write_text(json.dumps({"seconds": seconds, "scenarios": results}, indent=2) + "\n")
    return 0 if passed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
