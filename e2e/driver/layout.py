"""Where everything of a bare cluster is: names, addresses, paths."""

import ipaddress
import json
import pathlib

from .base import ClusterError
from .pki import Authority
from .process import Process

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns")
NODE_PROGRAMS = ("containerd", "kubelet", "kube-proxy")
PAUSE_IMAGE = "downpour.dev/e2e/pause:1"
MAX_NODES = 16
INSTANCES = 16
# Of every cluster's pods.
ALL_PODS = "10.253.0.0/16"


class Layout:
    """Of one cluster: a state folder and an instance, which gives it addresses of its own."""

    def __init__(self, state, instance):
        if not 0 <= instance < INSTANCES:
            raise ClusterError(f"--instance: got {instance}, expected 0 to {INSTANCES - 1}")
        self.state = pathlib.Path(state)
        self.instance = instance
        self.bridge = f"downpour{instance}"
        self.address = f"10.252.{instance}.1"
        self.loopback = f"127.77.{instance}.1"
        self.services = f"10.254.{instance}.0/24"
        self.cgroup = f"downpour-e2e-{instance}"
        self.server = f"https://{self.address}:6443"
        self.etcd = f"http://{self.loopback}:2379"
        self.settings_file = self.state / "settings.json"
        self.logs = self.state / "logs"
        self.pids = self.state / "pids"
        self.pause_archive = self.state / "pause" / "pause.tar"
        self.pki = Authority(self.state / "pki")

    def first_service(self):
        """The address of the API server as a service."""
        return str(ipaddress.ip_network(self.services)[1])

    def client(self, name):
        """The kubeconfig of a program."""
        return self.state / "pki" / f"{name}.kubeconfig"

    def process(self, name):
        return Process(name, self.pids, self.logs)

    def node_folder(self, index):
        return self.state / "nodes" / str(index)

    def node_address(self, index):
        return f"10.252.{self.instance}.{10 + index}"

    def pods(self, index):
        """The addresses of a node's pods."""
        return f"10.253.{MAX_NODES * self.instance + index}.0/24"

    def veth(self, index):
        """The machine's end of a node's network cable."""
        return f"{self.bridge}n{index}"

    def settings(self):
        """What the cluster that is up was started with; None when none is."""
        return json.loads(self.settings_file.read_text()) if self.settings_file.exists() else None

    def nodes(self):
        settings = self.settings()
        if settings is None:
            raise ClusterError(f"no cluster is up in {self.state}")
        return settings["nodes"]


def is_node(name):
    return name.startswith("node-") and "/" not in name


def node_index(name):
    return int(name.removeprefix("node-").partition("/")[0])


def components(nodes):
    names = list(CONTROL_PLANE)
    for index in range(nodes):
        names += [f"node-{index}", *(f"node-{index}/{program}" for program in NODE_PROGRAMS)]
    return names
