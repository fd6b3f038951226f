"""The downpour command against a real cluster, as somebody on call uses it."""

import json
import os
import subprocess

from world import DOWNPOUR, check, fails_after, one_worker, scenario

MOST_LINES = 23  # one screen of a terminal with 24
# What docs/operations.md says that somebody on call needs.
ON_CALL = [{"apiGroups": ["training.downpour.dev"], "resources": ["trainingjobs"], "verbs": ["get", "list"]},
           {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["list"]},
           {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}]


def downpour(world, *arguments, code=0, kubeconfig=None, stops_after=None):
    """Standard output of `downpour ARGUMENTS -n NAMESPACE`, or standard error if the exit code is not to be 0."""
    argv = [str(DOWNPOUR), *arguments, "-n", world.namespace, "--kubeconfig", str(kubeconfig or world.driver.kubeconfig)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = process.communicate(timeout=stops_after or 60)
    except subprocess.TimeoutExpired:
        process.terminate()
        output, errors = process.communicate(timeout=30)
        check(stops_after, f"{' '.join(arguments)} did not end within 60 s")
    check(process.returncode == code, f"{' '.join(arguments)}: exit code {process.returncode}: {errors}")
    return output if code == 0 else errors


def why(world, name, *expected, **options):
    """The screen of `downpour why`, in which these words stand, on whatever lines."""
    text = downpour(world, "why", name, **options)
    check(len(text.splitlines()) <= MOST_LINES, f"{len(text.splitlines())} lines:\n{text}")
    flat = " ".join(text.split())
    for words in expected:
        check(words in flat, f"why {name} does not say '{words}':\n{text}")
    return text


def credentials(world, rules, name):
    """A kubeconfig of a service account that may do this."""
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules}
    world.kubectl("create", "serviceaccount", name)
    world.apply(role)
    world.kubectl("create", "rolebinding", name, f"--role={name}", f"--serviceaccount={world.namespace}:{name}")
    config = json.loads(world.driver.kubectl("config", "view", "--raw", "-o", "json"))
    for user in config["users"]:
        user["user"] = {"token": world.kubectl("create", "token", name).strip()}
    path = world.driver.state / f"{world.namespace}-{name}.kubeconfig"
    path.write_text(json.dumps(config))
    os.chmod(path, 0o600)
    return path


@scenario
def cli(world):
    """get, top, why and logs of jobs that train, fit nowhere, lack an image, fail and lose a worker; and what may not be."""
    world.job(workers=2)
    world.job("nonode", worker=one_worker(nodeSelector={"no": "such"}))
    world.job("noimage", worker=one_worker({"image": "downpour.dev/none:e2e"}))
    world.job("exits", worker=one_worker({"command": ["sh", "-c", "echo the reason; exit 3"]}),
              failurePolicy=fails_after(1))
    world.wait_phase("Failed", 120, "exits")
    world.wait_ready(2)
    world.wait_progress()

    jobs = {job["name"]: job for job in json.loads(downpour(world, "get", "-o", "json"))}
    check(jobs["lenet"]["phase"] == "Running" and jobs["lenet"]["workers"] == {"ready": 2, "desired": 2}, f"{jobs}")
    check(jobs["exits"]["reason"] == "RestartLimitExceeded", f"{jobs['exits']}")
    check(jobs["nonode"]["reason"] == "Unschedulable", f"{jobs['nonode']}")
    check(len(downpour(world, "get").splitlines()) == 5, downpour(world, "get"))
    check("there is lenet" in downpour(world, "get", "lenett", code=2), "no name like lenett")

    why(world, "lenet", "The job trains.")
    why(world, "nonode", "worker-0 is pending: Unschedulable: 0/", "counts as failed and is replaced if still pending in")
    why(world, "noimage", "worker-0 is pending: ErrImageNeverPull")
    why(world, "exits", "The job failed", "(RestartLimitExceeded)", "Exit code 3 on node-", '"the reason"',
        f"downpour logs exits -n {world.namespace} --role worker --index 0")
    check(downpour(world, "logs", "exits", "--role", "worker", "--index", "0") == "the reason\n", "another log")
    every = downpour(world, "logs", "lenet").splitlines()
    check({line.split(" | ")[0].strip() for line in every} == {"coordinator-0", "ps-0", "worker-0", "worker-1"},
          f"{every}")
    picture = downpour(world, "top", "lenet", "--once")
    check("worker-1" in picture and "updates" in picture, picture)

    world.kubectl("delete", "pod", "lenet-worker-1", "--wait=false")
    world.wait("the end of worker-1 to be told", lambda: "worker-1: Deleted" in downpour(world, "why", "lenet"), 60)
    world.wait_ready(2)
    followed = downpour(world, "logs", "lenet", "-f", "--role", "worker", "--index", "1", stops_after=5)
    check("incarnation 2" in followed, followed)

    on_call = credentials(world, ON_CALL, "on-call")
    why(world, "nonode", "Unschedulable", kubeconfig=on_call)
    check(downpour(world, "logs", "exits", kubeconfig=on_call).endswith("the reason\n"), "no log for who is on call")
    little = credentials(world, ON_CALL[:1], "little")
    why(world, "lenet", "Could not be read", 'cannot list resource "pods"', 'cannot list resource "events"',
        kubeconfig=little)
    refused = downpour(world, "logs", "lenet", kubeconfig=little, code=1)
    check(len(refused.splitlines()) == 1 and "no permission" in refused, refused)
    return ""
