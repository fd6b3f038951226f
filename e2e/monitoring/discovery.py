"""The targets of a cluster, for a Prometheus that cannot ask Kubernetes for them: Debian's is built without
kubernetes_sd_configs. The files have the same __meta_kubernetes_* labels, as far as monitors and annotations need."""

import json
import os
import pathlib
import re
import threading

from driver.base import ClusterError, host_port, say

SECONDS = 2


def sanitised(text):
    return re.sub(r"\W", "_", text, flags=re.ASCII)


def described(kind, metadata):
    """Labels and annotations of an object."""
    found = {"__meta_kubernetes_namespace": metadata["namespace"]}
    for which in ("label", "annotation"):
        for name, value in metadata.get(which + "s", {}).items():
            found[f"__meta_kubernetes_{kind}_{which}_{sanitised(name)}"] = value
    return found


def pod_targets(pods):
    """One for each port of each container of a pod that has an address, as role `pod` has them."""
    targets = []
    for pod in pods:
        address = pod["status"].get("podIP")
        if not address:
            continue
        labels = {**described("pod", pod["metadata"]), "__meta_kubernetes_pod_name": pod["metadata"]["name"],
                  "__meta_kubernetes_pod_ip": address, "__meta_kubernetes_pod_phase": pod["status"]["phase"]}
        for container in pod["spec"]["containers"]:
            for port in container.get("ports", []):
                targets.append({"targets": [host_port(address, port["containerPort"])], "labels": {
                    **labels, "__meta_kubernetes_pod_container_name": container["name"],
                    "__meta_kubernetes_pod_container_port_name": port.get("name", "")}})
    return targets


def endpoint_targets(endpoints, services):
    """One for each port of each ready address of a service, as role `endpoints` has them."""
    known = {(service["metadata"]["namespace"], service["metadata"]["name"]): described("service", service["metadata"])
             for service in services}
    targets = []
    for one in endpoints:
        labels = known.get((one["metadata"]["namespace"], one["metadata"]["name"]))
        if labels is None:
            continue
        for subset in one.get("subsets", []):
            for address in subset.get("addresses", []):
                for port in subset.get("ports", []):
                    targets.append({"targets": [host_port(address["ip"], port["port"])], "labels": {
                        **labels, "__meta_kubernetes_pod_name": address.get("targetRef", {}).get("name", ""),
                        "__meta_kubernetes_endpoint_port_name": port.get("name", "")}})
    return targets


class Discovery:
    """with Discovery(driver, folder): keeps folder/pod.json and folder/endpoints.json as the cluster is, until the end
    of the block. Prometheus notices each change by itself, in a folder that was there when it started."""

    def __init__(self, driver, folder):
        self.driver = driver
        self.folder = pathlib.Path(folder)
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def _follow(self):
        while not self.ended.wait(SECONDS):
            try:
                self._write()
            except ClusterError as error:  # targets stay as they are, as with an API server that is away
                say(f"discovery: {error}")

    def _write(self):
        found = {"Pod": [], "Service": [], "Endpoints": []}
        for item in json.loads(self.driver.kubectl("get", "pods,services,endpoints", "-A", "-o", "json"))["items"]:
            found[item["kind"]].append(item)
        for role, targets in (("pod", pod_targets(found["Pod"])),
                              ("endpoints", endpoint_targets(found["Endpoints"], found["Service"]))):
            part = self.folder / f"{role}.part"
            part.write_text(json.dumps(targets))
            os.replace(part, self.folder / f"{role}.json")
