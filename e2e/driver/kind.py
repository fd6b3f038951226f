"""The `kind` driver: the same verbs for those who have Docker and kind.

It has not been run: the machines that this project is built and tested on have no Docker. The `bare` driver is the one
that the end-to-end tests use."""

import pathlib

from .base import ROOT, ClusterError, Driver, binaries, run, say, wait_for
from .control_plane import fake_nodes
from .machine import processes
from .process import Process

CLUSTER = "downpour-e2e"
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


class KindDriver(Driver):
    unfit = ("node_lost", "drain_allow", "drain_protect")  # they need two nodes, and the first pulls the cable of one

    def up(self, nodes):
        if nodes != 1:
            raise ClusterError(f"--nodes: got {nodes}, expected 1: e2e/kind.yaml says which nodes there are")
        self.state.mkdir(parents=True, exist_ok=True)
        run(["kind", "create", "cluster", "--name", CLUSTER, "--config", ROOT / "e2e" / "kind.yaml", "--kubeconfig",
             self.kubeconfig, "--wait", "120s"], seconds=600)
        # Scenarios ask pods for their metrics and ledgers. On Linux, as root; it goes with the cluster's network.
        for line in self.kubectl("get", "nodes", "-o", "jsonpath={range .items[*]}{.spec.podCIDR} "
                                 "{.status.addresses[?(@.type=='InternalIP')].address}{'\\n'}{end}").splitlines():
            pods, node = line.split()[:2]
            run(["ip", "route", "replace", pods, "via", node])

    def down(self):
        self._kwok().stop(5)
        run(["kind", "delete", "cluster", "--name", CLUSTER, "--kubeconfig", self.kubeconfig], seconds=120)

    def status(self):
        lines = []
        for line in self.kubectl("get", "nodes", "--no-headers").splitlines():
            name, state = line.split()[:2]
            lines.append((name, state, state == "Ready"))
        return lines or [("cluster", "not up", False)]

    def load_image(self, archive):
        run(["kind", "load", "image-archive", archive, "--name", CLUSTER], seconds=300)

    def stop(self, name, grace):
        # The kubelet of the control plane starts what has a file there, and stops what has none.
        self._in_control_plane("mv", f"/etc/kubernetes/manifests/{_checked(name)}.yaml", "/etc/kubernetes/")
        wait_for(f"{name} to end", lambda: not self._in_control_plane(
            "crictl", "ps", "-q", "--name", f"^{name}$").strip(), 30 + grace, 1)

    def start(self, name):
        self._in_control_plane("mv", f"/etc/kubernetes/{_checked(name)}.yaml", "/etc/kubernetes/manifests/")
        wait_for(f"{name} to start", lambda: self._in_control_plane(
            "crictl", "ps", "-q", "--name", f"^{name}$").strip(), 90, 1)

    def pod_processes(self, uid, program):
        # Control groups of systemd have no dashes in their names.
        return processes("pod", uid, program) or processes("pod", uid.replace("-", "_"), program)

    def fake_nodes(self, count, taint):
        self._kwok().start([binaries() / "kwok", f"--kubeconfig={self.kubeconfig}", "--manage-all-nodes=false",
                            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake"])
        self.kubectl("apply", "--server-side", "-f", "-", stdin=fake_nodes(count, taint is not False), seconds=600)
        self.kubectl("wait", "--for=condition=Ready", "node", "-l", "type=kwok", "--timeout=300s", seconds=310)
        say(f"{count} fake nodes are ready")

    def kubectl_program(self):
        built = binaries() / "kubectl"
        return built if built.exists() else pathlib.Path("kubectl")

    def _kwok(self):
        return Process("kwok", self.state / "pids", self.state / "logs")

    def _in_control_plane(self, *command):
        return run(["docker", "exec", f"{CLUSTER}-control-plane", *command])


def _checked(name):
    if name not in CONTROL_PLANE:
        raise ClusterError(f"got '{name}', expected one of {', '.join(CONTROL_PLANE)}: kind runs the others in pods")
    return name
