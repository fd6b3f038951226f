"""What the API server says about manifests."""

import json
import re

from driver.base import ROOT, run
from world import check, scenario


@scenario
def manifests(world):
    """Broken manifests are refused with the field named; kubectl explain knows every field."""
    driver = world.driver
    corpus = ROOT / "tests" / "testdata" / "manifests"
    try:
        environment = {"KUBECONFIG": str(driver.kubeconfig), "KUBECTL": str(driver.kubectl_program())}
        said = run([corpus / "check_api_server.py"], seconds=300, env=environment)
        alike = run([corpus / "check_alike.py"], seconds=300, env=environment)
    finally:
        driver.kubectl("delete", "namespace", "vision", "--ignore-not-found", "--wait=true", "--timeout=60s",
                       seconds=70)
    refused = int(re.search(r"(\d+) refused", said)[1])
    check(refused >= 60, f"{said.strip()}, expected at least 60 refused")

    fields = {name for header in (ROOT / "operator" / "api").glob("*fields.h")
              for name in re.findall(r'v\.\w+\("(\w+)"', header.read_text())}
    explained = driver.kubectl("explain", "trainingjob", "--recursive")
    names = set(re.findall(r"^ +(\w+)\s+<", explained, re.M))
    check(len(fields) >= 80 and fields <= names, f"kubectl explain lacks {sorted(fields - names)}")
    crd = json.loads(driver.kubectl("get", "crd", "trainingjobs.training.downpour.dev", "-o", "json"))
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    undescribed = [path for path, text in described(schema, "") if not text]
    check(not undescribed, f"fields without a description: {undescribed}")
    example = driver.kubectl("explain", "trainingjob.spec.failurePolicy.terminationTimeoutSeconds")
    check("DESCRIPTION" in example and "<empty>" not in example, example)
    world.note(refused=refused, fields=len(fields), alike=alike.strip())


def described(schema, path):
    """(path, description) of every field that has a schema of its own."""
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        if here != ".metadata":  # Kubernetes' own
            yield here, field.get("description")
            yield from described(field, here)
    if "items" in schema:
        yield from described(schema["items"], f"{path}[]")
