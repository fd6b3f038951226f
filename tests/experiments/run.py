#!/usr/bin/env python3
"""Runs experiments (settings.py) with `downpour run`, and writes what came of them: DOCS/experiments.md, and in DOCS/experiments/
the figures of each part as JSON and its plots. Parts that are not run stay as they were last measured.

Usage: run.py --bin BINARIES --plugins FOLDER --runs FOLDER [--docs FOLDER] [--settings FILE] [PART[/GROUP[/RUN]]...]
Without PART all are run; with --page-only none. --list tells which there are. Exit code 1: a run failed.
"""

import argparse
import copy
import datetime
import importlib.util
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import time

import page
from experiment import Training
from slow_down import SlowWorker

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RUN_TIMEOUT_SECONDS = 900
POINTS_OF_A_CURVE = 80
SECONDS_AFTER_THE_LAST_WORKER = 1


def manifest_of(run, group, plugins):
    spec = copy.deepcopy(run.spec)
    if "plugin" in spec["model"]:
        spec["model"]["plugin"]["path"] = str(plugins / spec["model"]["plugin"]["path"])
    return {"apiVersion": "training.downpour.dev/v1alpha1", "kind": "TrainingJob",
            "metadata": {"name": f"{group.name}-{run.name}"}, "spec": spec}


def busy_seconds():
    """CPU time of the whole machine."""
    with open("/proc/stat", encoding="utf-8") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def our_seconds():
    """CPU time of this process and of those that it has started and seen the end of."""
    return sum(usage.ru_utime + usage.ru_stime
               for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def execute(run, group, folder, options):
    """Runs it into `folder`, which must not exist. What went wrong, and the share of the CPUs that others took."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    manifest = folder.with_suffix(".json")
    manifest.write_text(json.dumps(manifest_of(run, group, options.plugins), indent=2) + "\n", encoding="utf-8")
    slow_workers = [SlowWorker(folder, slowdown) for slowdown in run.slowdowns]
    begin, busy, ours = time.monotonic(), busy_seconds(), our_seconds()
    problem, pushed = "", None
    with open(folder.with_suffix(".err"), "w+", encoding="utf-8") as errors:
        with subprocess.Popen([options.bin / "downpour", "run", manifest, "--run-dir", folder, "--output", "json"],
                              stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            for worker in slow_workers:
                worker.start()
            try:
                output, _ = process.communicate(timeout=RUN_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                process.terminate()
                output, _ = process.communicate()
                problem = f"no end within {RUN_TIMEOUT_SECONDS} s"
            except BaseException:
                process.terminate()
                raise
            finally:
                for worker in slow_workers:
                    worker.finish()
        errors.seek(0)
        if process.returncode != 0 and not problem:
            text = " ".join(errors.read().split()).replace(f"{ROOT}/", "")
            problem = f"exit code {process.returncode}: {text[-300:]}"
    seconds = time.monotonic() - begin
    others = max(0.0, busy_seconds() - busy - (our_seconds() - ours)) / (seconds * os.cpu_count())
    if not problem:
        summary = json.loads(output)
        ledger, pushed = summary["ledger"], summary["pushBytes"]
        if ledger["missing"] or ledger["duplicated"] or ledger["applied"] != ledger["expected"]:
            problem = f"the ledger is not exact: {ledger}"
    result = {"problem": problem, "seconds": round(seconds, 1), "others": round(others, 3)}
    # Without a ps nobody else counts what workers send.
    return result | ({"pushBytes": pushed} if run.spec.get("strategy") == "AllReduce" else {})


def steady_rate(folder, workers):
    """Samples per second from a while after the last worker joined to the last answer; None: the run was too short."""
    with open(folder / "metrics.jsonl", encoding="utf-8") as lines:
        points = [point for point in map(json.loads, lines) if point["type"] == "progress"]
    joined = next((point["seconds"] for point in points if point["workers"] == workers), None)
    if joined is None:
        return None
    # The last points are those of a job that waits for its end.
    steady = [point for point in points
              if point["seconds"] >= joined + SECONDS_AFTER_THE_LAST_WORKER and point["samples"] < points[-1]["samples"]]
    if len(steady) < 3:
        return None
    return (steady[-1]["samples"] - steady[0]["samples"]) / (steady[-1]["seconds"] - steady[0]["seconds"])


def thinned(points):
    stride = -(-len(points) // POINTS_OF_A_CURVE)
    kept = [point for i, point in enumerate(points) if i % stride == 0 or point["value"] is None or i + 1 == len(points)]
    return [[point["value"] if point["value"] is None else round(point["value"], 4), round(point["seconds"], 2),
             point["samples"] and round(point["samples"]), point["bytes"] and round(point["bytes"])] for point in kept]


def compare(group, folder, options):
    """What `downpour compare` says of the group's runs that are there, by the name of the run."""
    target = f"accuracy={group.accuracy}"
    folders = [folder / run.name for run in group.runs if (folder / run.name / "job.json").exists()]
    process = subprocess.run([options.bin / "downpour", "compare", *folders, "--json", "--curves", "--target", target,
                              "--output", folder / "compare.html"], stdout=subprocess.PIPE, text=True, check=False)
    if process.returncode != 0:
        return {}  # it has said why; if no run got as far as an evaluation there is nothing to compare
    document = json.loads(process.stdout)
    results = {}
    for row in document["runs"]:
        results[row["name"]] = {key: row[key] for key in ("phase", "samplesPerSecond", "receivedBytes", "sentBytes")}
        results[row["name"]] |= {"secondsTo": row["secondsTo"][target], "curves": {}}
    for quantity in document["quantities"]:
        for series in quantity["series"]:
            results[series["run"]]["curves"][quantity["name"]] = thinned(series["points"])
    return results


def run_training(group, runs, folder, options, report):
    executed = {}
    for run in runs:
        shutil.rmtree(folder / run.name, ignore_errors=True)
        executed[run.name] = execute(run, group, folder / run.name, options)
        report(run, executed[run.name])
    compared = compare(group, folder, options)
    for name, result in executed.items():
        if name not in compared and not result["problem"]:
            result["problem"] = "it could not be compared"
    return {name: compared.get(name, {}) | result for name, result in executed.items()}


def run_throughput(group, runs, folder, options, report):
    executed = {run.name: {"problem": "", "seconds": 0, "others": 0, "rates": []} for run in runs}
    for _ in range(options.rounds or group.rounds):
        for run in runs:
            shutil.rmtree(folder / run.name, ignore_errors=True)
            result = execute(run, group, folder / run.name, options)
            rate = None if result["problem"] else steady_rate(folder / run.name, run.spec["worker"]["replicas"])
            if rate is None and not result["problem"]:
                result["problem"] = "the run was too short to measure"
            report(run, result | {"rate": rate})
            all_rounds = executed[run.name]
            all_rounds["rates"].append(rate)
            all_rounds["problem"] = all_rounds["problem"] or result["problem"]
            all_rounds["seconds"] += result["seconds"]
            all_rounds["others"] = max(all_rounds["others"], result["others"])
    return executed


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    with open("/proc/meminfo", encoding="utf-8") as lines:
        kibibytes = int(next(line for line in lines if line.startswith("MemTotal")).split()[1])
    return {"cpus": os.cpu_count(), "cpu": models[0] if models else os.uname().machine,
            "memoryGiB": round(kibibytes / 2**20)}


def run_part(part, chosen, options):
    """Replaces the figures of the chosen runs in those of the part. Whether all went well."""
    path = options.docs / "experiments" / f"{part.name}.json"
    figures = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"groups": {}}
    good = True
    for group in part.groups:
        runs = [run for run in group.runs if chosen(part.name, group.name, run.name)]
        if not runs:
            continue

        def report(run, result, group=group):
            print(f"{part.name}/{group.name}/{run.name}: {result['seconds']:.0f} s, others took {result['others']:.0%} of the CPUs"
                  + (f", {result['rate']:,.0f} samples/s" if result.get("rate") else "")
                  + (f": {result['problem']}" if result["problem"] else ""), flush=True)

        work = run_training if isinstance(group, Training) else run_throughput
        results = work(group, runs, options.runs / part.name / group.name, options, report)
        good = good and not any(result["problem"] for result in results.values())
        when = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
        for run in runs:
            manifest = manifest_of(run, group, pathlib.Path("."))
            results[run.name] |= {"spec": manifest["spec"], "machine": machine(), "date": when}
        known = figures["groups"].get(group.name, {}) | results
        figures["groups"][group.name] = {run.name: known[run.name] for run in group.runs if run.name in known}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page.figures_to_text(figures), encoding="utf-8")
    return good


def load_settings(path):
    specification = importlib.util.spec_from_file_location("settings", path)
    settings = importlib.util.module_from_spec(specification)
    sys.modules["settings"] = settings
    specification.loader.exec_module(settings)
    return settings.PARTS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--plugins", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--runs", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--docs", type=pathlib.Path, default=ROOT / "docs")
    parser.add_argument("--settings", type=pathlib.Path, default=pathlib.Path(__file__).with_name("settings.py"))
    parser.add_argument("--rounds", type=int, help="of measurements of throughput; else as the settings say")
    parser.add_argument("--page-only", action="store_true", help="runs nothing, makes the page of figures that are there")
    parser.add_argument("--list", action="store_true", help="tells what there is and runs nothing")
    parser.add_argument("choices", nargs="*", metavar="PART[/GROUP[/RUN]]")
    options = parser.parse_args()
    parts = load_settings(options.settings)
    names = [(part.name, group.name, run.name) for part in parts for group in part.groups for run in group.runs]
    if options.list:
        print("\n".join("/".join(name) for name in names))
        return 0

    choices = [tuple(choice.split("/")) for choice in options.choices]
    for choice in choices:
        if not any(name[:len(choice)] == choice for name in names):
            sys.exit(f"experiments: there is no {'/'.join(choice)}; there are {', '.join(part.name for part in parts)}, "
                     "and more with --list")

    def chosen(*name):
        return not choices or any(name[:len(choice)] == choice for choice in choices)

    good = True
    for part in parts:
        if not options.page_only and any(chosen(*name) for name in names if name[0] == part.name):
            good = run_part(part, chosen, options) and good
    for line in page.write(parts, options.docs):
        print(line)
    return 0 if good else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # no run goes on, no worker stays stopped
    sys.exit(main())
