"""What becomes of pod templates, and of the containers that they add."""

import json

from driver.base import image_name
from world import check, fails_after, one_worker, scenario

TRAINER = {"image": image_name("trainer"), "imagePullPolicy": "Never"}
FASHION = "/usr/share/datasets/fashion-mnist"
AWKWARD = "/data/$(POD_IP)/$$"  # a path that Kubernetes would change
CONTAINER = "spec.worker.template.spec.containers[0]"
# spec.worker, and what the refusal names.
REFUSED = {
    "args": (one_worker({"args": ["--more"]}), f"{CONTAINER}.args: is set by the operator"),
    "hostname": (one_worker(hostname="mine"), "spec.worker.template.spec.hostname: is set by the operator"),
    "subdomain": (one_worker(subdomain="mine"), "spec.worker.template.spec.subdomain: is set by the operator"),
    "variable": (one_worker({"env": [{"name": "POD_IP", "value": "::1"}]}), f"{CONTAINER}.env[0]: POD_IP is set"),
    "port": (one_worker({"ports": [{"name": "web", "containerPort": 8080}]}), f"{CONTAINER}.ports[0].name: must be metrics"),
    "mounts": (one_worker({"volumeMounts": [{"name": "a", "mountPath": "/a"}, {"name": "a", "mountPath": "/a/"}]},
                          volumes=[{"name": "a", "emptyDir": {}}]), f"{CONTAINER}.volumeMounts[1].mountPath: must be unique"),
    "root": (one_worker(securityContext={"runAsUser": 0}), "spec.worker.template.spec.securityContext.runAsUser: 0 is root"),
    "other": ({"template": {"spec": {"containers": [{"name": "main", "image": "mine:1"}]}}},
              "spec.worker.template.spec.containers: none is named trainer"),
    "label": ({"template": {"metadata": {"labels": {"training.downpour.dev/role": "chief"}}}},
              'spec.worker.template.metadata.labels["training.downpour.dev/role"]: is set by the operator'),
}


def the_pod(world, name):
    return world.wait("the worker's pod", lambda: world.get("pod", f"{name}-worker-0"), 60)


def check_refusals(world):
    for name, (worker, _) in REFUSED.items():
        world.job(name, worker=worker)

    def refusal(name):
        found = world.condition("TemplateInvalid", name)
        return found[2] if found and found[0] == "True" else f"not yet: {found}"

    for name, (_, what) in REFUSED.items():
        message = world.wait(f"TemplateInvalid of {name}", lambda job=name: refusal(job), 30)
        check(what in message, f"{name}: {message}")
        check(not world.pods(name), f"pods of {name} were made")
    world.kubectl("delete", "trainingjob", *REFUSED, "--wait=true", "--timeout=60s")


def check_merged(world):
    """What the API server has of a pod whose template touches all that the operator has a default for."""
    fetch = {"name": "fetch", **TRAINER, "volumeMounts": [{"name": "data", "mountPath": "/data"}],
             "command": ["sh", "-c", 'mkdir -p "$0" && cp "$1"/* "$0"', AWKWARD.replace("$", "$$"), FASHION]}
    container = {"imagePullPolicy": "Never", "ports": [{"name": "debug", "containerPort": 9000}],
                 "volumeMounts": [{"name": "output", "mountPath": "/output/"}, {"name": "data", "mountPath": "/data"},
                                  {"name": "tmp", "mountPath": "/scratch"}]}
    volumes = [{"name": name, "emptyDir": {}} for name in ("tmp", "output", "data")]
    world.job("merged", dataset={"format": "IDX", "path": AWKWARD}, worker=one_worker(
        container, initContainers=[fetch], volumes=volumes,
        # As a platform that gives each namespace users of its own.
        securityContext={"fsGroup": 2000, "runAsUser": 1000660000, "runAsGroup": 0}))
    spec = the_pod(world, "merged")["spec"]
    names = [volume["name"] for volume in spec["volumes"]]
    check(names == ["downpour-tmp", "tmp", "output", "data"], f"volumes: {names}")
    trainer = spec["containers"][0]
    mounts = {mount["mountPath"]: mount["name"] for mount in trainer["volumeMounts"]}
    check(mounts == {"/tmp": "downpour-tmp", "/output/": "output", "/data": "data", "/scratch": "tmp"}, f"mounts: {mounts}")
    check([port["name"] for port in trainer["ports"]] == ["metrics", "debug"], f"ports: {trainer['ports']}")
    security = {"runAsNonRoot": True, "runAsUser": 1000660000, "runAsGroup": 0, "fsGroup": 2000,
                "seccompProfile": {"type": "RuntimeDefault"}}
    check(spec["securityContext"] == security, f"securityContext: {spec['securityContext']}")
    check(trainer["securityContext"]["capabilities"] == {"drop": ["ALL"]}, f"container: {trainer['securityContext']}")


def check_nulls(world):
    """What a template takes away, and what the network of the node needs. Its pod waits for a node that is not there.

    kubectl apply without --server-side would leave the nulls out."""
    manifest = world.manifest("taken", worker=one_worker(
        securityContext={"runAsUser": None, "runAsGroup": None, "fsGroup": None}, hostNetwork=True, volumes=None,
        nodeSelector={"no": "node"}))
    world.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))
    spec = the_pod(world, "taken")["spec"]
    check(spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
          f"securityContext: {spec['securityContext']}")
    check(spec["dnsPolicy"] == "ClusterFirstWithHostNet", f"dnsPolicy: {spec['dnsPolicy']}")
    names = [volume["name"] for volume in spec["volumes"]]
    check(names == ["downpour-tmp", "downpour-output"], f"volumes: {names}")
    world.kubectl("delete", "trainingjob", "taken", "--wait=true", "--timeout=60s")


@scenario
def templates(world):
    """A pod template is merged into the operator's pods; what it may not say is refused by path before any pod.

    The job that trains does so as some user of the root group, from a path that Kubernetes would have changed."""
    check_refusals(world)
    check_nulls(world)
    check_merged(world)
    world.wait_ready(1, 150, "merged")
    world.wait_progress("merged")


@scenario
def init_containers(world):
    """Why a pod waits or failed is told of whichever of its containers it is, and rules of the failure policy see it."""
    wrong_image = {"name": "fetch", "image": "downpour.dev/none:1", "imagePullPolicy": "Never"}
    world.job("waits", worker=one_worker(initContainers=[wrong_image]))
    fails = {"name": "fetch", **TRAINER, "command": ["sh", "-c", "echo no route to the data; exit 42"]}
    rule = {"name": "no-data", "onExitCodes": {"operator": "In", "values": [42], "containerName": "fetch"}, "action": "FailJob"}
    world.job("ends", worker=one_worker(initContainers=[fails]), failurePolicy=fails_after(3, rules=[rule]))

    def waits():
        found = world.condition("Scheduled", "waits")
        return found[2] if found and "init container fetch" in found[2] else f"not yet: {found}"

    message = world.wait("the condition to name the init container", waits, 60)
    check("ErrImageNeverPull" in message, f"Scheduled: {message}")
    world.wait_phase("Failed", 120, "ends")
    reason = world.condition("Failed", "ends")
    check(reason[1] == "FailurePolicyRule", f"Failed: {reason}")
    for text in ("exit code 42 in the init container fetch", "no route to the data"):
        check(text in reason[2], f"no {text!r} in {reason[2]}")
    failures = world.status("ends")["failures"]
    check([(one["exitCode"], one["container"]) for one in failures] == [(42, "init container fetch")], f"failures: {failures}")
