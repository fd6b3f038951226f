"""The `bare` driver: Kubernetes as plain processes on this machine, with real nodes, and no Docker.

etcd, kube-apiserver, kube-controller-manager, kube-scheduler and CoreDNS run on the machine itself (control_plane.py).
Each node is a network, a mount and a pid namespace with containerd, kubelet and kube-proxy in it (node.py). A bridge
joins them:

    machine 10.252.I.1 --- bridge downpourI --- node-N 10.252.I.(10+N), its pods 10.253.(16*I+N).0/24
                                                services 10.254.I.0/24

I is the instance: clusters with different instances and state folders can be up at the same time. Nothing listens
anywhere but on that bridge and on 127.77.I.1. Needs root, and of the kernel veth, bridge, overlay and nftables; works
without CAP_SYS_RESOURCE, and has been run with cgroup v1 only."""

import json
import os
import pathlib
import shutil

from . import machine, node_init, oci
from .base import ROOT, SOURCES, ClusterError, Driver, binaries, build, run, say, wait_for
from .control_plane import ControlPlane, fake_nodes
from .layout import (CONTROL_PLANE, INSTANCES, MAX_NODES, NODE_PROGRAMS, PAUSE_IMAGE, Layout, components, is_node,
                     node_index)
from .node import Node

# Held while an instance is chosen.
CHOICE = pathlib.Path("/run/downpour-e2e-instance.lock")


class BareDriver(Driver):
    def __init__(self, state, instance=None, extra=()):
        """Without an instance `up` takes the first that no other cluster has."""
        super().__init__(state)
        self._configure(instance, _parsed(extra))
        self.asked = (instance, self.extra)
        settings = self.layout.settings()
        if settings is not None:
            self._configure(settings["instance"], settings["extra"])

    def _configure(self, instance, extra):
        self.extra = extra
        self.layout = Layout(self.state, instance or 0)
        self.control_plane = ControlPlane(self.layout, extra)

    # Verbs.

    def build(self, nodes):
        """The programs that `up` needs; it does this too."""
        build(*CONTROL_PLANE, "kubectl", *(("kubelet", "kube-proxy") if nodes else ()))

    def up(self, nodes):
        with self._lock():
            self._check_machine(nodes)
            self.build(nodes)
            settings = self.layout.settings()
            if settings is not None:
                if all(self.layout.process(name).pid() for name in components(settings["nodes"])):
                    if settings["nodes"] != nodes:
                        raise ClusterError(f"a cluster with {settings['nodes']} nodes is up in {self.state}, asked for "
                                           f"{nodes}; take it down first")
                    say(f"is up already in {self.state}")
                    return
                say("the cluster in this folder is not whole (was the machine started again?): taking it down first")
                self._remove()
                self._configure(*self.asked)
            try:
                self._bring_up(nodes)
            except ClusterError:
                say(f"did not come up; logs are in {self.layout.logs}; `down` removes what there is")
                raise

    def down(self):
        with self._lock():
            if self.layout.settings() is None:
                say(f"none is up in {self.state}")
                return
            self._remove()
            left = self.leftovers()
            if left:
                raise ClusterError("left behind:\n  " + "\n  ".join(left))
            say(f"is down; the logs stay in {self.layout.logs}")

    def status(self):
        settings = self.layout.settings()
        if settings is None:
            return [("cluster", f"not up in {self.state}", False)]
        names = components(settings["nodes"])
        if self.layout.process("kwok").pid_file.exists():
            names.append("kwok")
        lines = []
        for name in names:
            pid = self.layout.process(name).pid()
            lines.append((name, f"pid {pid}" if pid else "not running", bool(pid)))
        return [*lines, ("readyz", *self.control_plane.api_get("/readyz"))]

    def load_image(self, archive):
        archive = pathlib.Path(archive).resolve()
        if not archive.is_file():
            raise ClusterError(f"{archive}: no such file, expected an image archive")
        for index in range(self.layout.nodes()):
            said = self.node(index).ctr("images", "import", archive, seconds=300)
            say(f"node-{index}: {' '.join(said.split())}")

    def images(self):
        return self.node(0).images()

    def stop(self, name, grace):
        with self._lock():
            name = self._checked(name)
            part = self.node(node_index(name)) if is_node(name) else self.layout.process(name)
            say(f"stopped {name} in {part.stop(grace):.1f} s")

    def start(self, name):
        with self._lock():
            name = self._checked(name)
            self._start(name)
            say(f"started {name}")

    def connect(self, name, connected):
        """Plugs the network cable of a node in or out."""
        self.node(self._node_index(name)).connect(connected)

    def enter(self, name):
        """The beginning of a command line that runs the rest of it inside a node."""
        return self.node(self._node_index(name)).enter()

    def pod_processes(self, uid, program):
        return machine.processes(f"/{self.layout.cgroup}/", f"/pod{uid}/", program)

    def fake_nodes(self, count, taint):
        with self._lock():
            build("kwok")
            taint = self.layout.nodes() > 0 if taint is None else taint
            self._start("kwok")
            self.kubectl("apply", "--server-side", "-f", "-", stdin=fake_nodes(count, taint), seconds=600)
            wait_for(f"{count} fake nodes to be ready", lambda: self._ready_nodes("type=kwok", count), 300, 1)
            say(f"{count} fake nodes are ready" + (", tainted kwok.x-k8s.io/node=fake:NoSchedule" if taint else ""))

    def node(self, index):
        return Node(self.layout, index, self.extra)

    # Bringing up.

    def _check_machine(self, nodes):
        if os.geteuid() != 0:
            raise ClusterError(f"runs as user {os.geteuid()}, expected root: it makes namespaces and mounts")
        if not 0 <= nodes <= MAX_NODES:
            raise ClusterError(f"--nodes: got {nodes}, expected 0 to {MAX_NODES}")
        needed = {"openssl": "openssl", "ip": "iproute2", "nsenter": "util-linux", "unshare": "util-linux"}
        if nodes:
            needed.update({"containerd": "containerd", "ctr": "containerd", "runc": "runc", "nft": "nftables",
                           "/usr/lib/cni/ptp": "containernetworking-plugins", "g++": "g++"})
        missing = sorted({package for program, package in needed.items() if not shutil.which(program)})
        if missing:
            raise ClusterError(f"not installed: {' '.join(missing)}; docker/setup.sh e2e installs them")
        for folder in (self.state, binaries(), ROOT):
            for hidden in node_init.HIDDEN:
                if folder.is_relative_to(hidden):
                    raise ClusterError(f"{folder} lies under {hidden}, where a node sees a file system of its own; "
                                       f"expected another place")

    def _bring_up(self, nodes):
        # Others may choose their instance once etcd listens on an address of this one.
        with machine.Lock(CHOICE):
            self._choose_instance()
            layout = self.layout
            shutil.rmtree(layout.logs, ignore_errors=True)
            machine.keep_kernel_settings()
            layout.settings_file.write_text(
                json.dumps({"instance": layout.instance, "nodes": nodes, "extra": self.extra}))
            self._make_certificates(nodes)
            run(["ip", "link", "add", "name", layout.bridge, "type", "bridge"])
            run(["ip", "link", "set", "dev", layout.bridge, "alias", self._mark()])
            run(["ip", "addr", "add", f"{layout.address}/24", "dev", layout.bridge])
            run(["ip", "link", "set", layout.bridge, "up"])
            self._start("etcd")
        for name in CONTROL_PLANE[1:]:
            self._start(name)
        say("the control plane is ready")
        if nodes:
            self._make_pause_archive()
            for index in range(nodes):
                self.node(index).start()
            wait_for(f"{nodes} nodes to be Ready", lambda: self._nodes_up(nodes), 90, 0.5)
        wait_for("the default service account", lambda: self.kubectl(
            "get", "serviceaccount", "default", "--ignore-not-found", "-o", "name"), 30, 0.2)
        say(f"is up: {nodes} nodes, API server {layout.server}")

    def _choose_instance(self):
        """The one asked for, or the first that is free. What a cluster left whose programs were all killed, as when a
        machine is restarted under it, is no cluster."""
        asked, extra = self.asked
        for instance in range(INSTANCES) if asked is None else (asked,):
            self._configure(instance, extra)
            layout = self.layout
            if not machine.has_device(layout.bridge):
                return
            if not machine.bridge_is_used(layout.bridge, (layout.address, layout.loopback)):
                say(f"removing the bridge {layout.bridge} of a cluster that is no more")
                machine.end_cgroup(layout.cgroup)
                run(["ip", "link", "delete", layout.bridge])
                return
        raise ClusterError(f"there is a bridge {self.layout.bridge} already, of another cluster that runs; " + (
            "all instances are taken" if asked is None else "choose another --instance, or none for the first free one"))

    def _make_certificates(self, nodes):
        layout, pki = self.layout, self.layout.pki
        pki.create()
        pki.issue("apiserver", "/CN=kube-apiserver", addresses=[layout.address, layout.first_service()],
                  names=["kubernetes", "kubernetes.default", "kubernetes.default.svc",
                         "kubernetes.default.svc.cluster.local"])
        pki.issue("apiserver-kubelet", "/O=system:masters/CN=kube-apiserver-kubelet-client")
        pki.signing_key("service-account")
        clients = {"admin": "/O=system:masters/CN=admin", "coredns": "/O=system:masters/CN=coredns",
                   "kwok": "/O=system:masters/CN=kwok", "kube-proxy": "/CN=system:kube-proxy",
                   "kube-controller-manager": "/CN=system:kube-controller-manager",
                   "kube-scheduler": "/CN=system:kube-scheduler"}
        for index in range(nodes):
            clients[f"node-{index}"] = f"/O=system:nodes/CN=system:node:node-{index}"
            pki.issue(f"kubelet-{index}", f"/CN=node-{index}", addresses=[layout.node_address(index)])
        for name, subject in clients.items():
            pki.issue(name, subject)
            pki.kubeconfig(name, layout.server, layout.client(name))
        layout.client("admin").rename(self.kubeconfig)

    def _make_pause_archive(self):
        """The image that holds a pod's namespaces, made here because there is no registry to pull it from."""
        work = self.layout.pause_archive.parent
        (work / "tree").mkdir(parents=True, exist_ok=True)
        run(["g++", "-static", "-Os", "-s", SOURCES / "pause.cc", "-o", work / "tree" / "pause"])
        layer = work / "layer.tar"
        digest, size = oci.write_layer(layer, work / "tree")
        oci.write_archive(self.layout.pause_archive, PAUSE_IMAGE, [(layer, digest, size)],
                          {"Entrypoint": ["/pause"], "User": "65535:65535"})

    def _start(self, name):
        if is_node(name):
            self.node(node_index(name)).start()
        elif name.startswith("node-"):
            self.node(node_index(name)).start_program(name.partition("/")[2])
        else:
            self.control_plane.start(name)

    # Taking down.

    def _remove(self):
        """Ends and removes everything, whatever state it is in."""
        layout = self.layout
        nodes = layout.nodes()
        for index in range(nodes):
            self.node(index).stop(0)
        for name in ("kwok", *reversed(CONTROL_PLANE)):
            layout.process(name).stop(0)
        if self._has_instance():
            machine.end_cgroup(layout.cgroup)
            if machine.has_device(layout.bridge):
                for index in range(nodes):
                    machine.wait_device_gone(layout.veth(index))
                run(["ip", "link", "delete", layout.bridge])
        if not any(pathlib.Path("/sys/class/net").glob("downpour*")):
            machine.restore_kernel_settings()
        for entry in list(self.state.iterdir()):
            if entry.name in ("lock", "logs", "results.json", layout.settings_file.name):
                continue
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        # Last: while it is there, `down` can be tried again.
        layout.settings_file.unlink()

    def leftovers(self):
        """What this cluster should have taken away and did not."""
        layout, inside = self.layout, f"{self.state}/"
        left = []
        if self._has_instance():
            left += [f"device {path.name}" for path in pathlib.Path("/sys/class/net").iterdir()
                     if path.name == layout.bridge or path.name.startswith(f"{layout.bridge}n")]
            left += [f"cgroup {folder}" for folder in machine.cgroup_folders(layout.cgroup) if folder.exists()]
        mounts = pathlib.Path("/proc/self/mounts").read_text().splitlines()
        left += [f"mount {line.split()[1]}" for line in mounts if line.split()[1].startswith(inside)]
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            ours = pathlib.Path(words[0]).name in (*CONTROL_PLANE, *NODE_PROGRAMS, "kwok", "unshare")
            if ours and any(inside in word for word in words):
                left.append(f"process {process.name}: {' '.join(words)[:150]}")
        return left

    # Small things.

    def _has_instance(self):
        """Not when all programs of this cluster were killed and another took its instance since."""
        return machine.device_alias(self.layout.bridge) in (None, self._mark())

    def _mark(self):
        """On the bridge: whose it is. The kernel keeps 255 bytes."""
        return str(self.state)[-200:]

    def _lock(self):
        return machine.Lock(self.state / "lock")

    def _checked(self, name):
        """A part's full name: `kubelet` is the one of node-0."""
        if name in NODE_PROGRAMS:
            name = f"node-0/{name}"
        known = [*components(self.layout.nodes()), "kwok"]
        if name not in known:
            raise ClusterError(f"got '{name}', expected one of {', '.join(known)}")
        return name

    def _node_index(self, name):
        if not is_node(self._checked(name)):
            raise ClusterError(f"got '{name}', expected a node: node-0 and so on")
        return node_index(name)

    def _nodes_up(self, count):
        for name in components(count):
            self.layout.process(name).must_run()
        return self._ready_nodes("type!=kwok", count)

    def _ready_nodes(self, selector, count):
        output = self.kubectl("get", "nodes", "-l", selector, "-o",
                              'jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{" "}{end}')
        ready = output.split().count("True")
        return True if ready >= count else f"not yet: {ready} of {count}"


def _parsed(extra):
    """Flags by program, of a list of NAME=FLAG."""
    flags = {}
    for item in extra:
        name, separator, flag = item.partition("=")
        if not separator or name not in (*CONTROL_PLANE, *NODE_PROGRAMS, "kwok"):
            raise ClusterError(f"--extra: got '{item}', expected NAME=FLAG with NAME one of "
                               f"{', '.join((*CONTROL_PLANE, *NODE_PROGRAMS, 'kwok'))}")
        flags.setdefault(name, []).append(flag)
    return flags
