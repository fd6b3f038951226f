#!/usr/bin/env python3
"""A Kubernetes cluster for the end-to-end tests, on this machine. See driver/bare.py for what it is made of.

    cluster.py up                      one node; `up --nodes 3` for more, `up --nodes 0` for fake nodes alone
    cluster.py status
    cluster.py kubectl get pods -A     or: eval "$(e2e/cluster.py env)"; kubectl get pods -A
    cluster.py load-image ARCHIVE...   docker or OCI archives, into every node
    cluster.py stop kube-apiserver     or etcd, kubelet, node-1/containerd, node-1 (a power cut) ...
    cluster.py start kube-apiserver
    cluster.py disconnect node-1       pulls the node's network cable; `connect` plugs it in
    cluster.py enter node-0 ctr -n k8s.io images ls
    cluster.py fake-nodes 1000         KWOK nodes, for scale tests
    cluster.py down
    cluster.py check                   can this machine host one? Otherwise one line says what it lacks
"""

import argparse
import shlex
import subprocess
import sys

from driver import machine
from driver import choice
from driver.base import ROOT, ClusterError, binaries, say


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choice.add_options(parser)
    parser.add_argument("--instance", type=int,
                        help="0 to 15, the cluster's addresses; clusters that are up at the same time have different "
                             "ones (bare; default: the first that is free)")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    up = verbs.add_parser("up", help="start the cluster and wait until it is ready")
    up.add_argument("--nodes", type=int, default=1)
    up.add_argument("--extra", action="append", default=[], metavar="NAME=FLAG",
                    help="a flag more for a program, such as kube-controller-manager=--node-monitor-grace-period=16s")
    verbs.add_parser("build", help="build the programs that `up` needs, which does it too (bare)")
    verbs.add_parser("check", help="exit status 1 and one line when this machine cannot host a cluster (bare)")
    verbs.add_parser("down", help="end it and remove everything but the logs")
    verbs.add_parser("status", help="what runs; exit status 1 when something does not")
    verbs.add_parser("kubeconfig", help="print the path of the administrator's kubeconfig")
    verbs.add_parser("env", help="print shell lines that set KUBECONFIG and PATH")
    load = verbs.add_parser("load-image", help="import image archives into every node")
    load.add_argument("archive", nargs="+")
    verbs.add_parser("images", help="what images node-0 has (bare)")
    stop = verbs.add_parser("stop", help="stop one part by name")
    stop.add_argument("name")
    stop.add_argument("--grace", type=float, default=10, metavar="SECONDS",
                      help="time between SIGTERM and SIGKILL; 0 for SIGKILL at once (default: 10)")
    for verb, text in [("start", "start a stopped part and wait until it is ready"),
                       ("disconnect", "pull a node's network cable (bare)"),
                       ("connect", "plug it in again (bare)")]:
        verbs.add_parser(verb, help=text).add_argument("name")
    fake = verbs.add_parser("fake-nodes", help="add KWOK nodes, which only claim to run their pods")
    fake.add_argument("count", type=int)
    fake.add_argument("--taint", action=argparse.BooleanOptionalAction, default=None,
                      help="keep pods without a toleration away (default: when there are real nodes)")
    verbs.add_parser("kubectl", help="kubectl of this cluster; all that follows is for it")
    verbs.add_parser("enter", help="NODE [COMMAND...]: run a command inside a node, by default a shell (bare)")

    passed_on = next((number + 1 for number, word in enumerate(argv) if word in ("kubectl", "enter")), len(argv))
    options = parser.parse_args(argv[:passed_on])
    options.arguments = argv[passed_on:]
    return options


def carry_out(options):
    """Returns the exit status."""
    driver = choice.chosen(options)
    verb = options.verb
    if verb == "check":
        lacks = machine.lacks()
        print(f"this machine {'; '.join(lacks)}" if lacks else "this machine can host a cluster")
        return 1 if lacks else 0
    if verb == "status":
        lines = driver.status()
        for name, text, _ in lines:
            print(f"{name:32}{text}")
        return 0 if all(fine for _, _, fine in lines) else 1
    if verb in ("kubectl", "enter"):
        if verb == "kubectl":
            command = [*driver.kubectl_command(), *options.arguments]
        else:
            node, *inside = options.arguments or ["node-0"]
            command = [*driver.enter(node), *(inside or ["bash"])]
        # Waits as long as the command wants: it is the caller's.
        return subprocess.run([str(part) for part in command], check=False).returncode
    if verb == "build":
        driver.build(nodes=1)
    elif verb == "up":
        driver.up(options.nodes)
    elif verb == "down":
        driver.down()
    elif verb == "kubeconfig":
        print(driver.kubeconfig)
    elif verb == "env":
        print(f"export KUBECONFIG={shlex.quote(str(driver.kubeconfig))}")
        # kubectl, and helm where it was built; the downpour command of this checkout.
        folders = f"{binaries()}:{ROOT / 'build' / 'release' / 'bin'}"
        print(f"export PATH={shlex.quote(folders)}:$PATH")
    elif verb == "load-image":
        for archive in options.archive:
            driver.load_image(archive)
    elif verb == "images":
        print("\n".join(driver.images()))
    elif verb == "stop":
        driver.stop(options.name, options.grace)
    elif verb == "start":
        driver.start(options.name)
    elif verb in ("connect", "disconnect"):
        driver.connect(options.name, verb == "connect")
    elif verb == "fake-nodes":
        driver.fake_nodes(options.count, options.taint)
    return 0


def main(argv):
    try:
        return carry_out(parse(argv))
    except ClusterError as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
