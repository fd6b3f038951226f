"""A node of a bare cluster: a network, a mount and a pid namespace with containerd, kubelet and kube-proxy in it."""

import json
import sys

from . import node_init
from .base import ClusterError, binaries, run, wait_for
from .layout import ALL_PODS, NODE_PROGRAMS, PAUSE_IMAGE
from .machine import make_cgroup, wait_device_gone
from .process import children, start_time

CONTAINERD_CONFIG = """\
version = 2
root = "{folder}/containerd"
state = "/run/containerd"

[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # Lowering a container's OOM score needs CAP_SYS_RESOURCE, which virtual machines and CI may not have.
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


class Node:
    def __init__(self, layout, index, extra):
        self.layout = layout
        self.index = index
        self.extra = extra
        self.name = f"node-{index}"
        self.folder = layout.node_folder(index)
        self.address = layout.node_address(index)

    def start(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        process = self.layout.process(self.name)
        if not process.pid():
            ready = self.folder / "ready"
            ready.unlink(missing_ok=True)
            process.start(["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc",
                           "--propagation", "private", sys.executable, node_init.__file__, ready])
            wait_for(f"{self.name} to have its namespaces", lambda: process.must_run() or ready.exists(), 20, 0.02)
            self._plug_in()
        make_cgroup(self.layout.cgroup, self.name)
        for program in NODE_PROGRAMS:
            self.start_program(program)

    def start_program(self, program):
        {"containerd": self._containerd, "kubelet": self._kubelet, "kube-proxy": self._proxy}[program]()

    def stop(self, grace):
        """As a power cut: everything in it ends with its process 1. Returns how long that took."""
        process = self.layout.process(self.name)
        first = children(process.pid()) if process.pid() else []
        seconds = process.stop(grace)
        for pid in first:
            # It ends last, after everything else in its namespace.
            wait_for(f"process 1 of {self.name} to end", lambda pid=pid: start_time(pid) is None, 20, 0.02)
        for program in NODE_PROGRAMS:
            self.layout.process(f"{self.name}/{program}").stop(0)
        return seconds

    def connect(self, connected):
        """Plugs its network cable in or out."""
        run(["ip", "link", "set", self.layout.veth(self.index), "up" if connected else "down"])

    def enter(self):
        """The beginning of a command line that runs the rest of it inside."""
        return ["nsenter", "--target", self._init_pid(), "--net", "--mount", "--pid", "--"]

    def ctr(self, *arguments, seconds=60, check=True):
        return run([*self.enter(), "ctr", "-n", "k8s.io", *arguments], seconds=seconds, check=check)

    def images(self):
        return self.ctr("images", "ls", "-q").split()

    def _init_pid(self):
        pid = self.layout.process(self.name).pid()
        if not pid:
            raise ClusterError(f"{self.name} is not running")
        return str(wait_for(f"process 1 of {self.name}", lambda: children(pid), 5, 0.01)[0])

    def _plug_in(self):
        layout, init = self.layout, self._init_pid()
        veth = layout.veth(self.index)
        wait_device_gone(veth)
        run(["ip", "link", "add", "name", veth, "type", "veth", "peer", "name", "eth0", "netns", init])
        run(["ip", "link", "set", veth, "master", layout.bridge, "up"])
        inside = ["nsenter", "--target", init, "--net", "--", "ip"]
        run([*inside, "addr", "add", f"{self.address}/24", "dev", "eth0"])
        run([*inside, "link", "set", "eth0", "up"])
        # Programs in the node's own network need any route to services: the packet's target is changed after that.
        run([*inside, "route", "add", layout.services, "via", layout.address])
        for other in range(layout.nodes()):
            if other != self.index:
                run([*inside, "route", "add", layout.pods(other), "via", layout.node_address(other)])
        # From the machine itself to pods, and through the first node to services.
        run(["ip", "route", "replace", layout.pods(self.index), "via", self.address])
        if self.index == 0:
            run(["ip", "route", "replace", layout.services, "via", self.address])

    def _launch(self, program, argv):
        process = self.layout.process(f"{self.name}/{program}")
        process.start([*self.enter(), *argv, *self.extra.get(program, [])], entered=True)
        process.must_run()
        return process

    def _write_json(self, name, content):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content, indent=2) + "\n")
        return path

    def _containerd(self):
        # ptp and not bridge: every packet is routed, so that connection tracking sees both directions.
        self._write_json("cni/10-downpour.conflist", {"cniVersion": "0.4.0", "name": "downpour", "plugins": [
            {"type": "ptp", "ipMasq": False,
             "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam",
                      "ranges": [[{"subnet": self.layout.pods(self.index)}]], "routes": [{"dst": "0.0.0.0/0"}]}}]})
        config = self.folder / "containerd.toml"
        config.write_text(CONTAINERD_CONFIG.format(folder=self.folder, pause=PAUSE_IMAGE))
        process = self._launch("containerd", ["containerd", "--config", config])
        wait_for(f"containerd of {self.name} to answer",
                 lambda: process.must_run() or "Server:" in self.ctr("version", check=False), 30)
        if PAUSE_IMAGE not in self.images():
            self.ctr("images", "import", self.layout.pause_archive)

    def _kubelet(self):
        layout, pki = self.layout, self.layout.pki
        (self.folder / "resolv.conf").write_text(f"nameserver {layout.address}\n")
        config = self._write_json("kubelet.json", {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "address": self.address, "port": 10250, "healthzBindAddress": "127.0.0.1",
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True},
                               "x509": {"clientCAFile": str(pki.path("ca.crt"))}},
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(pki.path(f"kubelet-{self.index}.crt")),
            "tlsPrivateKeyFile": str(pki.path(f"kubelet-{self.index}.key")),
            "clusterDomain": "cluster.local", "clusterDNS": [layout.address],
            "resolvConf": str(self.folder / "resolv.conf"),
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{layout.cgroup}/{self.name}", "failCgroupV1": False,
            "failSwapOn": False, "volumePluginDir": str(self.folder / "volume-plugins"),
            "podLogsDir": str(self.folder / "pod-logs"),
            # A test machine's full disk must neither evict pods nor take away images that no registry can give back.
            "evictionHard": {}, "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
            "maxPods": 200, "serializeImagePulls": False,
        })
        self._launch("kubelet", [
            binaries() / "kubelet", f"--config={config}", f"--kubeconfig={layout.client(self.name)}",
            f"--hostname-override={self.name}", f"--node-ip={self.address}",
            f"--root-dir={self.folder / 'kubelet'}", f"--cert-dir={self.folder / 'kubelet-pki'}"])

    def _proxy(self):
        config = self._write_json("kube-proxy.json", {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables",
            "clientConnection": {"kubeconfig": str(self.layout.client("kube-proxy"))}, "clusterCIDR": ALL_PODS,
            "hostnameOverride": self.name, "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            # Limits of the whole machine, not of the node: left as they are.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        })
        self._launch("kube-proxy", [binaries() / "kube-proxy", f"--config={config}"])
