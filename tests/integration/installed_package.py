#!/usr/bin/env python3
"""What `cmake --install` leaves is enough to build a plug-in elsewhere and to train it.

Installs into a temporary prefix, builds deploy/examples/plugin against it in a copy outside the tree, and trains it for
20 updates with the installed programs.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PATIENCE_SECONDS = 240
# 60,000 samples.
BATCH_SIZE = 3000
UPDATES = 20
PARAMETERS = {"convolution.weight": [8, 1, 3, 3], "convolution.bias": [8], "norm.weight": [8], "norm.bias": [8],
              "norm.running_mean": [8], "norm.running_var": [8], "norm.num_batches_tracked": [],
              "classes.weight": [10, 8 * 13 * 13], "classes.bias": [10]}


class Failure(Exception):
    pass


def run(command, expected=0, **options):
    print("+", " ".join(command), flush=True)
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            timeout=PATIENCE_SECONDS, check=False, **options)
    if result.returncode != expected:
        raise Failure(f"{command[0]}: exit code {result.returncode}, expected {expected}:\n{result.stdout}")
    return result.stdout


def expect(condition, what):
    if not condition:
        raise Failure(what)


def check_wrong_torch(cmake, prefix, source, folder):
    """A LibTorch of another version is refused when the plug-in is configured, with both versions."""
    torch = os.path.join(folder, "other-torch")
    header = os.path.join(torch, "include/torch/headeronly/version.h")
    for name in ("lib/libtorch_cpu.so", "lib/libc10.so"):
        os.makedirs(os.path.dirname(os.path.join(torch, name)), exist_ok=True)
        open(os.path.join(torch, name), "w", encoding="utf-8").close()
    os.makedirs(os.path.dirname(header))
    with open(header, "w", encoding="utf-8") as file:
        file.write("".join(f"#define TORCH_VERSION_{part} {value}\n\n"
                           for part, value in (("MAJOR", 1), ("MINOR", 13), ("PATCH", 1))))
    output = run([cmake, "-S", source, "-B", os.path.join(folder, "refused"), f"-DCMAKE_PREFIX_PATH={prefix}",
                  f"-DDOWNPOUR_TORCH_ROOT={torch}"], expected=1)
    expect(re.search(r'is of LibTorch\s+"1\.13\.1",\s+expected\s+\d+\.\d+\.\d+', output),
           f"no words on the version of LibTorch:\n{output}")


def write_manifest(source, library, path):
    with open(os.path.join(source, "manifest.yaml"), encoding="utf-8") as file:
        manifest = file.read()
    for old, new in ((r"path: /models/net\.so", f"path: {library}"), (r"filters: 16", "filters: 8"),
                     (r"epochs: \d+", "epochs: 1"), (r"batchSize: \d+", f"batchSize: {BATCH_SIZE}")):
        manifest, count = re.subn(old, new, manifest)
        expect(count == 1, f"manifest.yaml: {count} times '{old}', expected once")
    with open(path, "w", encoding="utf-8") as file:
        file.write(manifest)


def check_training(programs, manifest, folder):
    run([os.path.join(programs, "downpour"), "run", manifest, "--run-dir", folder])
    with open(os.path.join(folder, "summary.json"), encoding="utf-8") as file:
        ledger = json.load(file)["ledger"]
    expect(ledger["applied"] == UPDATES and ledger["skipped"] == 0, f"{ledger}, expected {UPDATES} updates")
    models = [os.path.join(where, name) for where, _, names in os.walk(folder) for name in names
              if name == "model.safetensors"]
    expect(len(models) == 1, f"{len(models)} models, expected one")
    with open(models[0], "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    shapes = {name: tensor["shape"] for name, tensor in header.items() if name != "__metadata__"}
    expect(shapes == PARAMETERS, f"the model has {shapes}, expected {PARAMETERS}")


def check(arguments, folder):
    prefix, source = os.path.join(folder, "prefix"), os.path.join(folder, "source")
    run([arguments.cmake, "--install", arguments.build, "--prefix", prefix])
    programs = os.path.join(prefix, "bin")
    for program in ("downpour", "downpour-server", "downpour-worker", "downpour-operator"):
        run([os.path.join(programs, program), "--help"], env={"PATH": os.environ["PATH"]})
    shutil.copytree(os.path.join(ROOT, "deploy/examples/plugin"), source)
    check_wrong_torch(arguments.cmake, prefix, source, folder)
    build = os.path.join(source, "build")
    run([arguments.cmake, "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}"])
    run([arguments.cmake, "--build", build])
    manifest = os.path.join(folder, "manifest.yaml")
    write_manifest(source, os.path.join(build, "net.so"), manifest)
    check_training(programs, manifest, os.path.join(folder, "run"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--build", required=True, help="the build folder, in which the programs are built")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="downpour-package-") as folder:
        try:
            check(arguments, folder)
        except (Failure, subprocess.TimeoutExpired) as failure:
            print(f"installed_package: {failure}", file=sys.stderr)
            sys.exit(1)


if __name__ == "__main__":
    main()
