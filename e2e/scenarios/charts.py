"""The chart: what it makes is valid, and the operator can be upgraded, removed and installed again under a job."""

import json
import os
import pathlib
import tempfile

from driver.base import ROOT, binaries, build, run
from world import CHART, check, helm, install, scale_operator, scenario, uninstall


def write_schemas(driver, folder):
    """The schemas of the API server itself, strict, one file a kind, as kubeconform reads them."""
    document = json.loads(driver.kubectl("get", "--raw", "/openapi/v2"))
    definitions = document["definitions"]
    for definition in definitions.values():
        if definition.get("format") == "int-or-string":
            definition.pop("type")
        if "properties" in definition:
            definition.setdefault("additionalProperties", False)
    (folder / "all.json").write_text(json.dumps({"definitions": definitions}))
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", []):
            group = kind["group"].split(".")[0]
            file = "-".join(part for part in (kind["kind"].lower(), group, kind["version"]) if part)
            (folder / f"{file}.json").write_text(json.dumps({"$ref": f"all.json#/definitions/{name}"}))


@scenario
def charts(world):
    """helm lint and helm template with every file of values, and what they make against the API server's schemas."""
    build("helm", "kubeconform")
    with tempfile.TemporaryDirectory() as folder:
        write_schemas(world.driver, pathlib.Path(folder))
        said = run([ROOT / "deploy" / "check_charts.sh"], seconds=300, env={
            "HELM": str(binaries() / "helm"), "KUBECONFORM": str(binaries() / "kubeconform"),
            "KUBECONFORM_ARGS": f"-schema-location {folder}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json",
            "PATH": os.environ["PATH"]})
    summaries = [line for line in said.splitlines() if line.startswith("Summary:")]
    check(summaries and all("Invalid: 0, Errors: 0" in line for line in summaries), f"kubeconform: {summaries}")
    valid = sum(int(line.split("Valid: ")[1].split(",")[0]) for line in summaries)
    check(valid >= 30, f"{valid} objects checked, expected at least 30: {summaries}")
    world.note(objects=valid)


@scenario
def upgrade(world):
    """helm upgrade and helm uninstall under a job: it trains on, no pod restarts; looked after when installed again."""
    manifest = world.job(workers=2)
    world.wait_ready(2)
    before = world.pods()
    helm(world.driver, "upgrade", "downpour", str(CHART), "--reuse-values", "--set", "workers=4", "--wait",
         "--timeout", "120s")
    world.wait_progress()
    check(world.pods() == before, "a pod of the job was restarted by helm upgrade")
    try:
        uninstall(world.driver)
        first = world.ledger(manifest)["applied"]
        world.wait("updates to be applied without an operator",
                   lambda: world.ledger(manifest)["applied"] > first, 60)
        check(world.pods() == before, "a pod of the job was restarted by helm uninstall")
        world.kubectl("delete", "pod", "lenet-worker-0", "--wait=true", "--timeout=60s")
    finally:
        install(world.driver)
    world.wait_replaced("lenet-worker-0", before["lenet-worker-0"])
    world.wait_ready(2)
    after = world.pods()
    check(all(after[name] == before[name] for name in before if name != "lenet-worker-0"), f"{before} became {after}")
    check(world.status()["restarts"] == {"total": 1, "counted": 0}, f"restarts: {world.status()['restarts']}")
    world.wait_progress()
    scale_operator(world.driver, 0)
    try:
        world.kubectl("delete", "trainingjob", "lenet", "--wait=true", "--timeout=60s")
    finally:
        scale_operator(world.driver, 2)
    world.wait_gone(60)
