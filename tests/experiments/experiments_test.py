#!/usr/bin/env python3
"""The experiments' script on settings that last seconds: all runs are made, and page, plots and figures say so.

Usage: experiments_test.py --bin BINARIES --plugins FOLDER
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

from experiment import Slowdown
from slow_down import SlowWorker

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT_SECONDS = 100


class Failure(Exception):
    pass


def check(condition, message):
    if not condition:
        raise Failure(message)


def run(options, folder, *choices, expected=0):
    process = subprocess.run(
        [sys.executable, HERE / "run.py", "--bin", options.bin, "--plugins", options.plugins, "--runs", folder / "runs",
         "--docs", folder / "docs", "--settings", HERE / "tiny_settings.py", *choices],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_SECONDS, check=False)
    check(process.returncode == expected,
          f"run.py {' '.join(choices)} ended with {process.returncode}:\n{process.stdout}")
    return process.stdout


def await_state(pid, stopped):
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while (pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][0] == "T") != stopped:
        check(time.monotonic() < deadline, f"the worker is {'not ' if stopped else ''}stopped")
        time.sleep(0.01)


def check_slow_worker(folder):
    """It stops the worker that it is told, and leaves it running."""
    with subprocess.Popen([sys.executable, "-c", "input()", folder], stdin=subprocess.PIPE) as process:
        (folder / "status.json").write_text(json.dumps({"processes": [
            {"name": "worker-1", "pid": process.pid - 1, "finishTime": "2026-01-01T00:00:00Z"},
            {"name": "worker-1", "pid": process.pid}]}), encoding="utf-8")
        (folder / "metrics.jsonl").write_text('{"type": "progress", "updates": 1}\n', encoding="utf-8")
        slow = SlowWorker(folder, Slowdown(1, running=0, stopped=TIMEOUT_SECONDS))
        slow.start()
        try:
            await_state(process.pid, stopped=True)
        finally:
            slow.finish()
        await_state(process.pid, stopped=False)
        process.communicate(b"\n")


def section_of(page, title):
    return page.split(f"# {title}\n", 1)[1].split("\n#", 1)[0]


def rows_of(section):
    """By the first cell: the others, without the heading."""
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in cells[2:]}


def number(text):
    return float(text.replace(",", "").split()[0])


def check_page(folder):
    page = (folder / "docs" / "experiments.md").read_text(encoding="utf-8")
    rows = rows_of(section_of(page, "MLP"))
    check(set(rows) == {"fp32", "int8"}, f"rows of the codecs: {rows}")
    for name, row in rows.items():
        accuracy, best, _, seconds, rate, pushed, pulled, others = row
        check(0.5 <= number(accuracy) <= number(best) <= 1, f"{name}: accuracy {accuracy}, best {best}")
        check(number(seconds) > 0 and number(rate) > 0 and number(pulled) > 0, f"{name}: {row}")
        check(re.fullmatch(r"\d+ %", others) is not None, f"{name}: others took {others}")
    pushed = {name: number(row[5]) for name, row in rows.items()}
    check(pushed["fp32"] > 3 * pushed["int8"], f"pushed: {pushed}")

    rows = rows_of(section_of(page, "LeNet"))
    check(set(rows) == {f"{name}, {workers}" for name in ("Downpour SGD", "All-reduce") for workers in (1, 2)}, f"rows: {rows}")
    for name, row in rows.items():
        accuracy, best, seconds, faster, samples, rate, more, pushed, pulled, _ = row
        check(0.5 <= number(accuracy) <= number(best) <= 1, f"{name}: accuracy {accuracy}, best {best}")
        check(number(seconds) > 0 and number(samples) > 0, f"{name}: {row}")
        # A sample takes a millisecond, whoever else is on the cores. The first update may be known half a second late.
        check(0 < number(rate) < 1500 * int(name[-1]), f"{name}: {rate} samples/s")
        check((number(faster) == number(more) == 1) if name.endswith("1") else number(more) > 1, f"{name}: {row}")
        if name.startswith("All-reduce"):  # nobody pulls, and a ring of one sends nothing
            check(pulled == "–" and (number(pushed) > 0) == name.endswith("2"), f"{name}: {row}")
        else:
            check(number(pushed) > 0 and number(pulled) > 0, f"{name}: {row}")

    rows = rows_of(section_of(page, "Three workers"))
    check(rows["all alike"][1] == "" and number(rows["all alike"][0]) > 0, f"without a straggler: {rows['all alike']}")
    check(number(rows["one stopped"][1]) > 0, f"with a straggler: {rows['one stopped']}")

    check("Not measured yet." in section_of(page, "Never run"), "what was not run is not said so")
    targets = rows_of(section_of(page, "Targets"))
    check(set(targets) == {"methods/mlp/fp32", "methods/mlp/int8", "scaling/lenet/async-1", "scaling/lenet/async-2",
                           "scaling/lenet/allreduce-1", "scaling/lenet/allreduce-2", "stragglers/bounded/stopped"},
          f"targets: {targets}")
    check(all(row[-1] == "yes" for row in targets.values()), f"targets: {targets}")
    check("codec: int8" in section_of(page, "Hyperparameters"), "the codec is not among the hyperparameters")

    plots = re.findall(r"!\[.*\]\((experiments/.*\.svg)\)", page)
    check(len(plots) == 5, f"plots: {plots}")
    for path in plots:
        paths = xml.etree.ElementTree.parse(folder / "docs" / path).getroot().iter("{http://www.w3.org/2000/svg}path")
        curves = [element.get("d") for element in paths if element.get("stroke-linejoin")]
        check(len(curves) == 2 and all("L" in curve for curve in curves), f"{path}: curves {curves}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--plugins", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="downpour-experiments-") as name:
        folder = pathlib.Path(name)
        try:
            check_slow_worker(folder)
            run(options, folder, "methods/mlp/fp32")
            page = (folder / "docs" / "experiments.md").read_text(encoding="utf-8")
            check("Not measured yet: int8." in section_of(page, "MLP"), "that a run is missing is not said")
            run(options, folder, "methods/mlp/int8", "scaling", "stragglers")
            check_page(folder)
            # One run again: the others stay as they were measured.
            figures = folder / "docs" / "experiments" / "methods.json"
            before = json.loads(figures.read_text(encoding="utf-8"))["groups"]["mlp"]
            run(options, folder, "methods/mlp/int8")
            after = json.loads(figures.read_text(encoding="utf-8"))["groups"]["mlp"]
            check(before["fp32"] == after["fp32"] and before["int8"]["curves"] != after["int8"]["curves"],
                  "a run alone was not measured alone")
            check_page(folder)
            output = run(options, folder, "never/there", expected=1)
            check("there is no never/there" in output, output)
        except Failure as failure:
            sys.exit(f"experiments_test: {failure}")
    print("experiments_test: runs, page, plots and figures are as expected")


if __name__ == "__main__":
    main()
