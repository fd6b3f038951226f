"""The operator and the API server fail."""

import random
import subprocess
import time

from driver.base import run
from world import check, kill_operator, kill_operator_pods, leader, metric, operator_pod_objects, operator_pods, scenario


def check_no_pod_twice(history):
    """Each incarnation of a member was one pod."""
    started = [(name, incarnation) for name, _, incarnation in history]
    check(len(started) == len(set(started)), f"pods that were made: {history}")


@scenario
def operator_killed(world):
    """SIGKILL to all operators at 20 random points while a job starts, trains, loses a pod: no pod twice, no restart."""
    chance, killed = random.Random(4), 0

    def kill():
        time.sleep(chance.uniform(0, 1.5))  # the moment is what is random here
        pods = operator_pods(world.driver)
        killed = kill_operator_pods(world.driver, pods)
        check(killed >= 1, f"no operator's process was found to kill, of {pods}")
        world.wait("another one to lead", lambda: leader(world.driver) in operator_pods(world.driver), 60)
        return killed

    with world.pod_history() as history:
        world.job(workers=2, epochs=400)
        for _ in range(6):
            killed += kill()
        world.wait_ready(2, 180)
        before, step = world.pods(), world.step()
        for number in range(14):
            if number == 4:
                world.kubectl("delete", "pod", "lenet-worker-1", "--wait=false")
            killed += kill()
        world.wait_ready(2, 180)
        world.wait_progress()
    check_no_pod_twice(history)
    after = world.pods()
    check(sorted(after) == ["lenet-coordinator-0", "lenet-ps-0", "lenet-worker-0", "lenet-worker-1"], f"{after}")
    check([name for name in before if after[name] != before[name]] == ["lenet-worker-1"], f"{before} became {after}")
    status = world.status()
    check(status["restarts"] == {"total": 1, "counted": 0}, f"restarts: {status['restarts']}")
    world.note(processes_killed=killed, incarnations=status["incarnations"], updates=world.step() - step)


@scenario
def operator_killed_between(world):
    """Killed after a status was stored and before the pod that it speaks of was made: one pod comes, and no other."""
    world.job(workers=2)
    world.wait_ready(2)
    world.wait_progress()
    before = world.pods()
    with world.pod_history() as history:
        # What was there may stay, and nothing may be made.
        world.kubectl("create", "quota", "closed", "--hard=pods=0")
        world.kubectl("delete", "pod", "lenet-worker-1", "--wait=false")
        world.wait("the next start to be stored", lambda: world.status()["incarnations"]["worker-1"] > 1, 60)
        check(world.pods().get("lenet-worker-1", before["lenet-worker-1"]) == before["lenet-worker-1"],
              "a pod was made despite the quota")
        kill_operator(world.driver)
        world.kubectl("delete", "quota", "closed")
        world.wait_replaced("lenet-worker-1", before["lenet-worker-1"], 120)
        world.wait_ready(2, 120)
    check_no_pod_twice(history)
    after = world.pods()
    check(len(history) == 5 and len(after) == 4, f"there were {history}, and there are {after}")
    check(all(after[name] == before[name] for name in before if name != "lenet-worker-1"), "another pod was restarted")
    status = world.status()
    number = max(int(incarnation) for name, _, incarnation in history if name == "lenet-worker-1")
    check(number == status["incarnations"]["worker-1"], f"incarnation {number}, stored: {status['incarnations']}")
    check(status["restarts"] == {"total": 1, "counted": 0}, f"restarts: {status['restarts']}")
    world.wait_progress()
    world.note(incarnation=number)


@scenario
def leader_fails(world):
    """The leader gets SIGKILL: the other one leads once its lease is over, and a pod that was lost is replaced."""
    world.job(workers=2)
    world.wait_ready(2)
    # The queue of one that does not lead is no work that waits.
    world.wait("the queues to be empty", lambda: metric(world.driver, "workqueue_depth") == 0, 30)
    first = leader(world.driver)
    before = world.pods()
    begun = time.monotonic()
    check(kill_operator_pods(world.driver, [first]) == 1, f"{first} had no process to kill")
    world.kubectl("delete", "pod", "lenet-worker-0", "--wait=false")
    world.wait_replaced("lenet-worker-0", before["lenet-worker-0"])
    taken = time.monotonic() - begun
    check(leader(world.driver) != first, "the leader did not change")
    check(taken <= 30, f"{taken:.1f} s, expected at most 30 s")
    world.wait_ready(2)
    after = world.pods()
    check([name for name in before if after[name] != before[name]] == ["lenet-worker-0"], f"{before} became {after}")
    world.note(replaced_after_seconds=round(taken, 1))


@scenario
def api_server_restarts(world):
    """The API server is away for a while: training goes on, and the operator is back within 15 s of its return."""
    world.job(workers=2)
    world.wait_ready(2)
    before = world.pods()
    world.driver.stop("kube-apiserver", 0)  # as by a crash: in good order it takes its address out of the service first
    try:
        time.sleep(10)  # how long it is away
    finally:
        world.driver.start("kube-apiserver")
    begun = time.monotonic()
    # Something that only the operator has to see: a pod that ends has to be seen by the kubelet too, which may take
    # a minute to come back.
    world.kubectl("scale", "trainingjob/lenet", "--replicas=3")
    world.wait("the new worker's pod to be made", lambda: "lenet-worker-2" in world.pods(), 60)
    taken = time.monotonic() - begun
    check(taken <= 15, f"{taken:.1f} s, expected at most 15 s")
    world.wait_ready(3, 150)
    after = world.pods()
    check(all(after[name] == before[name] for name in before), "another pod was restarted")
    world.wait_progress(seconds=90)
    world.note(acts_after_seconds=round(taken, 1))


class BlackHole:
    """Swallows every packet of the connections to the API server that the operator's leader has now, without a word to
    either side; new connections are not touched."""

    def __init__(self, driver):
        first = leader(driver)
        pod = next(pod for pod in operator_pod_objects(driver) if pod["metadata"]["name"] == first)
        self.pid = driver.pod_processes(pod["metadata"]["uid"], "downpour-operator")[0]
        self.ports = self._ports()

    def _ports(self):
        """The operator's ends of its connections to port 443."""
        with open(f"/proc/{self.pid}/net/tcp", encoding="ascii") as table:
            rows = [line.split() for line in table.readlines()[1:]]
        return sorted({int(row[1].split(":")[1], 16) for row in rows
                       if row[3] == "01" and int(row[2].split(":")[1], 16) == 443})

    def __enter__(self):
        ports = ", ".join(str(port) for port in self.ports)
        rules = "add table ip e2e\n"
        for hook, end in (("input", "dport"), ("output", "sport")):
            rules += f"add chain ip e2e {hook} {{ type filter hook {hook} priority 0; }}\n"
            rules += f"add rule ip e2e {hook} tcp {end} {{ {ports} }} drop\n"
        self._nft("-f", "-", stdin=rules)
        return self

    def __exit__(self, *error):
        # With its pod the network is gone too.
        subprocess.run(["nsenter", f"--net=/proc/{self.pid}/ns/net", "nft", "delete", "table", "ip", "e2e"],
                       check=False, capture_output=True, timeout=10)

    def _nft(self, *arguments, stdin):
        run(["nsenter", f"--net=/proc/{self.pid}/ns/net", "nft", *arguments], stdin=stdin)


@scenario
def black_hole(world):
    """The operator's connections swallow everything, without a word: within 90 s it notices, and has missed nothing."""
    world.job(workers=2)
    world.wait_ready(2)
    before = world.pods()
    with BlackHole(world.driver) as hole:
        check(len(hole.ports) >= 2, f"connections of the leader: {hole.ports}, expected a watch for jobs and for pods")
        begun = time.monotonic()
        world.kubectl("scale", "trainingjob/lenet", "--replicas=3")
        world.kubectl("delete", "pod", "lenet-worker-0", "--wait=false")
        world.wait("the new worker's pod to be made", lambda: "lenet-worker-2" in world.pods(), 180)
        world.wait_replaced("lenet-worker-0", before["lenet-worker-0"], 180)
        taken = time.monotonic() - begun
        check(taken <= 90, f"{taken:.1f} s, expected at most 90 s")
        world.wait_ready(3)
    after = world.pods()
    check(after["lenet-worker-1"] == before["lenet-worker-1"] and len(after) == 5, f"{before} became {after}")
    check(world.status()["restarts"] == {"total": 1, "counted": 0}, f"restarts: {world.status()['restarts']}")
    world.wait_progress()
    world.note(connections=len(hole.ports), acts_after_seconds=round(taken, 1),
               watch_age_seconds=round(metric(world.driver, "downpour_watch_last_event_age_seconds"), 1))
