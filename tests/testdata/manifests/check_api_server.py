#!/usr/bin/env python3
"""Asks an API server that has the CustomResourceDefinition (deploy/crd.yaml) about this corpus, with kubectl and
--dry-run=server: every valid manifest and example is accepted, every broken one that local-only.txt does not name is refused
with a message that names the field, and updates are accepted or refused as updates.txt says. Makes one job and deletes it.

    KUBECONFIG=... tests/testdata/manifests/check_api_server.py
"""
import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
KUBECTL = os.environ.get("KUBECTL", "kubectl")
NAMESPACE = "vision"  # that some of the manifests name


def kubectl(*arguments):
    done = subprocess.run([KUBECTL, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode == 0, (done.stdout + done.stderr).strip()


def dry_run(path):
    """What the API server says of the manifest; kubectl itself applies no name that is to be generated."""
    verb = "create" if "generateName:" in path.read_text(errors="replace") else "apply"
    return kubectl(verb, "-n", NAMESPACE, "--dry-run=server", "-f", path)


def local_only():
    lines = (HERE / "local-only.txt").read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


def expected_paths(path):
    """The fields that our own parser complains of."""
    if path.suffix == ".json":
        lines = path.with_suffix(".expect").read_text().splitlines()
    else:
        lines = [line[len("# expect: "):] for line in path.read_text(errors="replace").splitlines()
                 if line.startswith("# expect: ")]
    return [line.split(": ", 1)[0] for line in lines if re.match(r"(kind|spec|metadata|status)\b", line)]


def names_field(message, path):
    """The field, or one around it or in it."""
    if path == "metadata.generateName":
        path = "metadata.name"  # that the server has made of it
    words = [word.strip('"[]') for word in re.split(r"[.\[]", path)]
    return words[-1] in message or ".".join(words[:2]) in message or words[-1].rstrip("]") in message


def main():
    problems = []
    checked = {"accepted": 0, "refused": 0, "updates": 0}
    exempt = local_only()
    kubectl("create", "namespace", NAMESPACE)

    for path in sorted((HERE / "valid").iterdir()) + sorted((ROOT / "deploy/examples").rglob("*.yaml")):
        ok, said = dry_run(path)
        listed = f"{path.parent.name}/{path.name}" in exempt
        if ok == listed:
            problems.append(f"{path.name}: {'accepted but in local-only.txt' if ok else said}")
        checked["accepted"] += ok

    for path in sorted((HERE / "invalid").iterdir()):
        if path.suffix == ".expect":
            continue
        ok, said = dry_run(path)
        reason = exempt.get(f"invalid/{path.name}", "")
        if ok != bool(reason) and not reason.startswith("maybe: "):
            problems.append(f"{path.name}: {'accepted' if ok else 'in local-only.txt, but refused: ' + said}")
        elif not ok:
            checked["refused"] += 1
            paths = expected_paths(path)
            # Text that kubectl cannot read has no fields.
            if paths and "error converting YAML to JSON" not in said and "error parsing" not in said:
                if not any(names_field(said, one) for one in paths):
                    problems.append(f"{path.name}: names none of {paths}: {said}")

    base = HERE / "valid/templates.yaml"
    ok, said = kubectl("apply", "-n", NAMESPACE, "-f", base)
    if not ok:
        problems.append(f"templates.yaml: {said}")
    for line in (HERE / "updates.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        verdict, field, patch = line.split(" ", 2)
        json.loads(patch)
        ok, said = kubectl("patch", "-n", NAMESPACE, "trainingjob", "templates", "--type=merge", "--dry-run=server",
                           "-p", patch)
        checked["updates"] += 1
        if ok != (verdict == "accepted"):
            problems.append(f"{line}: {said}")
        elif not ok and field not in said:
            problems.append(f"{line}: does not name the field: {said}")
    kubectl("delete", "-n", NAMESPACE, "trainingjob", "templates", "--wait=false")

    print(", ".join(f"{count} {what}" for what, count in checked.items()))
    for problem in problems:
        print("PROBLEM", problem, file=sys.stderr)
    return 1 if problems or checked["refused"] < 60 else 0


if __name__ == "__main__":
    sys.exit(main())
