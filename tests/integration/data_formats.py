#!/usr/bin/env python3
"""Every manifest of deploy/examples/data, with the data that its first lines generate, through `downpour run`: it trains to
the end, and each update is applied once. `downpour data inspect` finds nothing broken in it.

    data_formats.py --downpour build/release/bin/downpour [NAME...]
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "deploy" / "examples" / "data"
COMMAND = "#   downpour data generate "
SMALLER = ["--samples", "300", "--test-samples", "60"]
TIMEOUT_SECONDS = 120


class Failure(Exception):
    pass


def run(command, folder):
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True,
                          timeout=TIMEOUT_SECONDS, check=False)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def check(downpour, manifest, folder):
    shutil.copy(manifest, folder)
    lines = [line for line in manifest.read_text(encoding="utf-8").splitlines() if line.startswith(COMMAND)]
    if len(lines) != 1:
        raise Failure(f"{manifest.name}: {len(lines)} lines that generate data, expected one")
    run([downpour, "data", "generate", *lines[0][len(COMMAND):].split(), *SMALLER], folder)
    inspected = run([downpour, "data", "inspect", manifest.name], folder)
    if "no sample is broken" not in inspected:
        raise Failure(f"{manifest.name}: {inspected}")
    summary = json.loads(run([downpour, "run", manifest.name, "--run-dir", "run", "--output=json"], folder))
    ledger = summary["ledger"]
    exact = {**ledger, "applied": ledger["expected"], "skipped": 0, "duplicated": 0, "missing": 0}
    if ledger["expected"] == 0 or ledger != exact or summary["audit"] != "Exact":
        raise Failure(f"{manifest.name}: ledger {ledger}, audit {summary['audit']}")
    print(f"{manifest.stem}: {ledger['applied']} updates, test accuracy {summary['testAccuracy']}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--downpour", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    manifests = sorted(EXAMPLES.glob("*.yaml"))
    unknown = set(options.names) - {manifest.stem for manifest in manifests}
    if unknown or not manifests:
        sys.exit(f"data_formats: there is no {', '.join(sorted(unknown))} in {EXAMPLES}")
    for manifest in manifests:
        if options.names and manifest.stem not in options.names:
            continue
        with tempfile.TemporaryDirectory(prefix="downpour-data-") as folder:
            try:
                check(options.downpour, manifest, pathlib.Path(folder))
            except (Failure, subprocess.TimeoutExpired) as problem:
                sys.exit(f"data_formats: {problem}")


if __name__ == "__main__":
    main()
