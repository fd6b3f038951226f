#!/usr/bin/env python3
"""Asks an API server that has the CustomResourceDefinition (deploy/crd.yaml) what kubectl makes of each file of alike/, and
compares it, field by field, with alike.json, to which api_manifest_test holds our own parser. --dry-run=server leaves nothing.

    KUBECONFIG=... tests/testdata/manifests/check_alike.py [--record]

--record writes alike.json anew. A file is accepted, with the specification that the server stores, or refused.
"""
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
KUBECTL = os.environ.get("KUBECTL", "kubectl")


def stored(path):
    """The specifications of the jobs in a file; None: the file is refused."""
    done = subprocess.run([KUBECTL, "create", "--dry-run=server", "-o", "json", "-f", str(path)], capture_output=True, text=True,
                          timeout=60, check=False)
    if done.returncode != 0:
        return None
    decoder, text, objects = json.JSONDecoder(), done.stdout.strip(), []
    while text:
        one, end = decoder.raw_decode(text)
        objects += one["items"] if one["kind"] == "List" else [one]
        text = text[end:].lstrip()
    return [one["spec"] for one in objects if one["kind"] == "TrainingJob"]


def main():
    files = sorted((HERE / "alike").iterdir())
    said = {path.name: stored(path) for path in files}
    recorded = HERE / "alike.json"
    if "--record" in sys.argv:
        lines = [f"{json.dumps(name)}: {json.dumps(spec, sort_keys=True)}" for name, spec in said.items()]
        recorded.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    known = json.loads(recorded.read_text())
    problems = [f"{name}: the server says {said.get(name)}, alike.json {known.get(name)}"
                for name in sorted(said.keys() | known.keys()) if name not in said or name not in known or said[name] != known[name]]
    print(f"{sum(one is not None for one in said.values())} accepted, {sum(one is None for one in said.values())} refused, "
          f"{len(problems)} differ")
    for problem in problems:
        print("PROBLEM", problem, file=sys.stderr)
    return 1 if problems or len(said) < 60 else 0


if __name__ == "__main__":
    sys.exit(main())
