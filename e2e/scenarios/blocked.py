"""Somebody else stands in the way."""

import time

from driver.base import image_name
from world import SYSTEM, check, metric, one_worker, operator_pods, rates_a_minute, scenario

REQUESTS = ("rest_client_requests_total", {})
CREATIONS = ("rest_client_requests_total", {"method": "POST"})
# In the first minute, beyond what the operator asks while nothing happens: it tries again after 1, 2, 4, 8, 16 and
# 32 s, and each time stores a status, tries to make the pod and looks whose the name is. Later that is once a minute.
MOST_REQUESTS_A_MINUTE = 30


def blocked(world, reason, name="lenet"):
    found = world.condition("Blocked", name)
    return True if found and found[:2] == ("True", reason) else f"not yet: {found}"


def blocked_by_endpoints(world):
    found = world.condition("Blocked")
    return True if found and "endpointslices" in found[2] else f"not yet: {found}"


def check_calm(world, what, at_rest):
    """While it is blocked: how often the operator asks the API server, beyond what it does at rest (its Lease)."""
    rates = rates_a_minute(world.driver, 60, requests=REQUESTS, creations=CREATIONS)
    more = round(rates["requests"] - at_rest, 1)
    world.note(**{f"{what}_requests_a_minute": more, f"{what}_creations_a_minute": rates["creations"]})
    check(more <= MOST_REQUESTS_A_MINUTE and rates["creations"] <= MOST_REQUESTS_A_MINUTE / 2,
          f"{what}: {rates} a minute, at rest {at_rest}")


@scenario
def obstacles(world):
    """A name that somebody else owns, a quota: a clear condition, few requests, and it goes on when that is gone."""
    at_rest = rates_a_minute(world.driver, 20, requests=REQUESTS)["requests"]
    world.note(at_rest_requests_a_minute=at_rest)
    world.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lenet-worker-0"},
                 "spec": {"terminationGracePeriodSeconds": 0,
                          "containers": [{"name": "other", "image": image_name("server"),
                                          "imagePullPolicy": "Never", "command": ["sh", "-c", "sleep 3600"]}]}})
    world.job(workers=1)
    world.wait("a NameConflict", lambda: blocked(world, "NameConflict"), 60)
    check_calm(world, "name_conflict", at_rest)
    world.kubectl("delete", "pod", "lenet-worker-0", "--wait=true")
    world.wait_ready(1, 150)
    check(world.status()["restarts"]["total"] == 0, f"restarts: {world.status()['restarts']}")
    world.check_told_once("NameConflict")
    world.kubectl("delete", "trainingjob", "lenet", "--wait=true", "--timeout=60s")
    world.wait("its pods to go", lambda: not world.pods(), 60)
    world.kubectl("create", "quota", "small", "--hard=pods=2")
    world.job(workers=1)
    world.wait("QuotaExceeded", lambda: blocked(world, "QuotaExceeded"), 60)
    check_calm(world, "quota", at_rest)
    # Its templates are tried out in a namespace that is full by then.
    world.job("templated", worker=one_worker({"imagePullPolicy": "Never"}))
    world.wait("QuotaExceeded", lambda: blocked(world, "QuotaExceeded", "templated"), 60)
    invalid = world.condition("TemplateInvalid", "templated")
    check(not invalid or invalid[0] == "False", f"TemplateInvalid: {invalid}")
    world.kubectl("delete", "trainingjob", "templated", "--wait=true", "--timeout=60s")
    world.kubectl("delete", "quota", "small")
    world.wait_ready(1, 150)
    world.kubectl("delete", "trainingjob", "lenet", "--wait=true", "--timeout=60s")
    world.wait("its pods to go", lambda: not world.pods(), 60)
    # The name of the coordinator is published when it has an address; then nothing happens any more.
    world.kubectl("create", "quota", "small", "--hard=services=0,count/endpointslices.discovery.k8s.io=0")
    world.job(workers=1)
    world.wait("QuotaExceeded", lambda: blocked(world, "QuotaExceeded"), 60)
    check(not world.pods(), "pods were made that nobody can find")
    world.kubectl("patch", "quota", "small", "--type=merge", "-p", '{"spec": {"hard": {"services": "1"}}}')
    world.wait("its pods to run", lambda: [pod["status"]["phase"] for pod in world.get("pods")] == ["Running"] * 3, 60)
    world.wait("QuotaExceeded of its endpoints", lambda: blocked_by_endpoints(world), 60)
    world.kubectl("delete", "quota", "small")
    world.wait_ready(1, 150)


@scenario
def quota(world):
    """A namespace with a quota of requests, and without a LimitRange, takes the examples; no pod is BestEffort."""
    world.kubectl("create", "quota", "small", "--hard=requests.cpu=1,requests.memory=2Gi")
    world.job()
    world.wait_ready(3, 150)
    classes = {pod["metadata"]["name"]: pod["status"]["qosClass"] for pod in world.get("pods")}
    check(len(classes) == 5 and "BestEffort" not in classes.values(), f"classes: {classes}")


@scenario
def bad_template(world):
    """What the platform does not take of a pod template is told before any pod is made; other jobs notice nothing.

    A misspelt field, and a number that the API server hands out as an integer of more than 64 bits."""
    def refused(name):
        found = world.condition("TemplateInvalid", name)
        return found[2] if found and found[0] == "True" else f"not yet: {found}"

    world.job("large", worker=one_worker(activeDeadlineSeconds=1e20))
    world.job(worker=one_worker({"imagePulPolicy": "Never"}))
    for name, field in (("lenet", "spec.containers[0].imagePulPolicy"), ("large", "activeDeadlineSeconds")):
        message = world.wait("TemplateInvalid", lambda job=name: refused(job), 30)
        check(field in message, f"the field is not named: {message}")
        check(not world.pods(name), f"pods of {name} were made")
        world.note(**{name: message})
        world.check_told_once("TemplateInvalid", name)
    world.kubectl("delete", "trainingjob", "lenet", "--wait=true", "--timeout=60s")
    world.job(worker=one_worker({"imagePullPolicy": "Never"}))
    world.wait_ready(1, 150)


@scenario
def namespace_deleted(world):
    """The namespace of a job that trains is deleted: it goes, nothing is left over, and the operator stays calm."""
    world.job(workers=2)
    world.wait_ready(2)
    check(metric(world.driver, CREATIONS[0], **CREATIONS[1]) > 0, "no metric rest_client_requests_total")
    begun = time.monotonic()
    world.driver.kubectl("delete", "namespace", world.namespace, "--wait=true", "--timeout=120s", seconds=130)
    gone = time.monotonic() - begun
    rates = rates_a_minute(world.driver, 20, creations=CREATIONS,
                           errors=("controller_runtime_reconcile_errors_total", {}))
    check(rates["creations"] <= 3 and rates["errors"] <= 3, f"after it is gone, a minute: {rates}")
    lines = [line for pod in operator_pods(world.driver)
             for line in world.driver.kubectl("-n", SYSTEM, "logs", pod, f"--since={int(gone) + 30}s").splitlines()
             if world.namespace in line]
    check(len(lines) <= 20, f"{len(lines)} lines in the operator's log, the last of them {lines[-3:]}")
    world.note(gone_after_seconds=round(gone, 1), log_lines=len(lines))
