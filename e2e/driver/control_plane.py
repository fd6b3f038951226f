"""The programs of a bare cluster that run on the machine itself."""

import json
import ssl

from .base import binaries, wait_for
from .machine import http_get

# Far above the programs' own limits, which a thousand pods at once would run into.
CLIENT_LIMITS = ["--kube-api-qps=1000", "--kube-api-burst=2000"]

COREFILE = """\
.:53 {{
    bind {address}
    errors
    ready {loopback}:8181
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig} downpour-e2e
        pods insecure
        ttl 30
    }}
    # As kubeadm sets it up: names of the cluster itself are never answered from the cache.
    cache 30 {{
        disable success cluster.local
        disable denial cluster.local
    }}
}}
"""


class ControlPlane:
    def __init__(self, layout, extra):
        self.layout = layout
        self.extra = extra

    def start(self, name):
        """Starts a program and waits until it is ready."""
        {"etcd": self._etcd, "kube-apiserver": self._apiserver, "coredns": self._coredns, "kwok": self._kwok,
         "kube-controller-manager": self._controller_manager, "kube-scheduler": self._scheduler}[name]()

    def api_get(self, path):
        """(text, whether it is a good answer), as the administrator."""
        pki = self.layout.pki
        context = ssl.create_default_context(cafile=str(pki.path("ca.crt")))
        context.load_cert_chain(pki.path("admin.crt"), pki.path("admin.key"))
        return http_get(f"{self.layout.server}{path}", context)

    def _etcd(self):
        layout, peer = self.layout, f"http://{self.layout.loopback}:2380"
        process = self._launch(
            "etcd", "--name=default", f"--data-dir={layout.state / 'etcd'}", f"--listen-client-urls={layout.etcd}",
            f"--advertise-client-urls={layout.etcd}", f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
            # The cluster does not outlive the machine; it only has to outlive etcd.
            "--unsafe-no-fsync", "--log-level=warn")
        self._wait_ready(process, f"{layout.etcd}/health")

    def _apiserver(self):
        layout, pki = self.layout, self.layout.pki
        process = self._launch(
            "kube-apiserver", f"--etcd-servers={layout.etcd}", f"--bind-address={layout.address}",
            f"--advertise-address={layout.address}", f"--secure-port={layout.server.rpartition(':')[2]}",
            f"--service-cluster-ip-range={layout.services}", f"--cert-dir={layout.state / 'serving'}",
            f"--tls-cert-file={pki.path('apiserver.crt')}", f"--tls-private-key-file={pki.path('apiserver.key')}",
            f"--client-ca-file={pki.path('ca.crt')}", "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true", "--profiling=false",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={pki.path('service-account.pub')}",
            f"--service-account-signing-key-file={pki.path('service-account.key')}",
            f"--kubelet-certificate-authority={pki.path('ca.crt')}",
            f"--kubelet-client-certificate={pki.path('apiserver-kubelet.crt')}",
            f"--kubelet-client-key={pki.path('apiserver-kubelet.key')}",
            # Node names are in no DNS.
            "--kubelet-preferred-address-types=InternalIP")
        wait_for("kube-apiserver to be ready",
                 lambda: process.must_run() or _found(*self.api_get("/readyz")), 90)

    def _controller_manager(self):
        layout, pki = self.layout, self.layout.pki
        process = self._launch(
            "kube-controller-manager", *self._own_client("kube-controller-manager"), "--leader-elect=false",
            f"--root-ca-file={pki.path('ca.crt')}",
            f"--service-account-private-key-file={pki.path('service-account.key')}",
            f"--cluster-signing-cert-file={pki.path('ca.crt')}", f"--cluster-signing-key-file={pki.path('ca.key')}",
            "--use-service-account-credentials=true",
            # It makes this folder, by default outside of ours.
            f"--flex-volume-plugin-dir={layout.state / 'volume-plugins'}", *CLIENT_LIMITS)
        self._wait_ready(process, f"https://{layout.loopback}:10257/healthz")

    def _scheduler(self):
        process = self._launch("kube-scheduler", *self._own_client("kube-scheduler"), "--leader-elect=false",
                               *CLIENT_LIMITS)
        self._wait_ready(process, f"https://{self.layout.loopback}:10259/healthz")

    def _coredns(self):
        layout = self.layout
        corefile = layout.state / "Corefile"
        corefile.write_text(COREFILE.format(address=layout.address, loopback=layout.loopback,
                                            kubeconfig=layout.client("coredns")))
        process = self._launch("coredns", "-conf", str(corefile))
        self._wait_ready(process, f"http://{layout.loopback}:8181/ready")

    def _kwok(self):
        layout = self.layout
        # An empty file, so that no configuration of the person who runs this is taken.
        config = layout.state / "kwok.yaml"
        config.touch()
        process = self._launch(
            "kwok", f"--kubeconfig={layout.client('kwok')}", f"--config={config}", "--manage-all-nodes=false",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            f"--server-address={layout.loopback}:10247")
        self._wait_ready(process, f"http://{layout.loopback}:10247/healthz")

    def _own_client(self, name):
        config = self.layout.client(name)
        return [f"--kubeconfig={config}", f"--authentication-kubeconfig={config}",
                f"--authorization-kubeconfig={config}", f"--bind-address={self.layout.loopback}",
                f"--cert-dir={self.layout.state / 'serving'}"]

    def _launch(self, name, *flags):
        process = self.layout.process(name)
        process.start([binaries() / name, *flags, *self.extra.get(name, [])])
        return process

    def _wait_ready(self, process, url):
        # The programs' own certificates on loopback are made up by themselves.
        context = ssl._create_unverified_context()  # pylint: disable=protected-access
        wait_for(f"{process.name} to be ready", lambda: process.must_run() or _found(*http_get(url, context)), 60)


def _found(text, good):
    return True if good else f"not yet: {text}"


def fake_nodes(count, taint):
    """A list of nodes that KWOK plays."""
    return json.dumps({"apiVersion": "v1", "kind": "List",
                       "items": [_fake_node(f"kwok-{index:04d}", taint) for index in range(count)]})


def _fake_node(name, taint):
    resources = {"cpu": "64", "memory": "256Gi", "pods": "256", "ephemeral-storage": "1Ti", "nvidia.com/gpu": "8"}
    node = {"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"},
                         "labels": {"type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
                                    "kubernetes.io/arch": "amd64"}},
            "status": {"allocatable": resources, "capacity": resources}}
    if taint:
        node["spec"] = {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]}
    return node
