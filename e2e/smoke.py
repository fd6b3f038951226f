#!/usr/bin/env python3
"""Whether the cluster that is up can do what the end-to-end tests ask of it: pods, their names in DNS, services,
logs, exec, the API server from within, and carrying on after the API server was gone.

Needs the server image (e2e/images.py --load server). Leaves nothing in the cluster."""

import argparse
import json
import sys
import time

from driver import choice
from driver.base import ROOT, ClusterError, image_name, wait_for

SPACE = "smoke"
IMAGE = image_name("server")
SERVE = ("echo started; echo hello from $(hostname) > /tmp/index.html; "
         "exec busybox httpd -f -v -p 8080 -h /tmp")


def pod(name, command):
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": SPACE, "labels": {"app": "smoke", "part": name}},
            "spec": {"hostname": name, "subdomain": "peers", "terminationGracePeriodSeconds": 1,
                     "securityContext": {"runAsNonRoot": True, "runAsUser": 65532,
                                         "seccompProfile": {"type": "RuntimeDefault"}},
                     # On different nodes, where there are several.
                     "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                                                    "whenUnsatisfiable": "ScheduleAnyway",
                                                    "labelSelector": {"matchLabels": {"app": "smoke"}}}],
                     "volumes": [{"name": "tmp", "emptyDir": {}}],
                     "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "Never",
                                     "command": ["sh", "-c", command],
                                     "resources": {"requests": {"cpu": "10m", "memory": "16Mi"},
                                                   "limits": {"memory": "64Mi"}},
                                     "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                                     "securityContext": {"readOnlyRootFilesystem": True,
                                                         "allowPrivilegeEscalation": False,
                                                         "capabilities": {"drop": ["ALL"]}}}]}}


def service(name, spec):
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": SPACE},
            "spec": {"selector": {"app": "smoke", "part": "serving"}, "ports": [{"port": 8080}], **spec}}


class Smoke:
    def __init__(self, driver):
        self.driver = driver

    def kubectl(self, *arguments, **options):
        return self.driver.kubectl("-n", SPACE, *arguments, **options)

    def apply(self, *objects):
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def phase(self, name):
        phase = self.kubectl("get", "pod", name, "-o", "jsonpath={.status.phase}", check=False)
        return True if phase == "Running" else f"not yet: phase '{phase}'"

    def wait_running(self, name):
        # Long: after an API server was away several times, its clients wait up to a minute before they ask again.
        wait_for(f"pod {name} to be Running", lambda: self.phase(name), 120, 0.2)

    def fetch(self, url):
        """What a pod reads from url."""
        return wait_for(f"an answer from {url}", lambda: self.kubectl(
            "exec", "calling", "--", "timeout", "5", "wget", "-q", "-O", "-", url, check=False).strip(), 30, 0.5)

    def begin(self):
        self.driver.kubectl("create", "namespace", SPACE)
        self.apply(service("peers", {"clusterIP": "None", "selector": {"app": "smoke"}}), service("front", {}))

    def pods_run(self):
        wait_for("the namespace's service account", lambda: self.kubectl(
            "get", "serviceaccount", "default", "--ignore-not-found", "-o", "name"), 30, 0.2)
        self.apply(pod("serving", SERVE), pod("calling", "echo started; exec sleep 3600"))
        self.wait_running("serving")
        self.wait_running("calling")

    def headless_name(self):
        expect("hello from serving", self.fetch(f"http://serving.peers.{SPACE}.svc.cluster.local:8080/"))

    def service_address(self):
        expect("hello from serving", self.fetch(f"http://front.{SPACE}:8080/"))

    def logs(self):
        expect("started", self.kubectl("logs", "serving").strip().splitlines()[0])

    def api_from_a_pod(self):
        token = "$(cat /var/run/secrets/kubernetes.io/serviceaccount/token)"
        said = self.kubectl("exec", "calling", "--", "sh", "-c",
                            f'wget -q -O - --no-check-certificate --header "Authorization: Bearer {token}" '
                            f'https://kubernetes.default.svc/version')
        expect("v1.34", json.loads(said)["gitVersion"][:5])

    def api_server_restart(self):
        self.driver.stop("kube-apiserver", 1)
        self.driver.start("kube-apiserver")
        self.apply(pod("later", "exec sleep 3600"))
        self.wait_running("later")

    def end(self):
        self.driver.kubectl("delete", "namespace", SPACE, "--wait=true", "--timeout=180s", seconds=190)


def expect(expected, found):
    if found != expected:
        raise ClusterError(f"found '{found}', expected '{expected}'")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choice.add_options(parser)
    smoke = Smoke(choice.chosen(parser.parse_args()))
    passed = 0
    steps = [smoke.begin, smoke.pods_run, smoke.headless_name, smoke.service_address, smoke.logs,
             smoke.api_from_a_pod, smoke.api_server_restart, smoke.end]
    for step in steps:
        started = time.monotonic()
        try:
            step()
        except ClusterError as error:
            print(f"FAILED {step.__name__}: {error}\n{passed} passed, 1 failed")
            return 1
        passed += 1
        print(f"ok {step.__name__} ({time.monotonic() - started:.1f} s)", flush=True)
    print(f"{passed} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
