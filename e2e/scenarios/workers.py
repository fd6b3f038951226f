"""Workers that fail, and that cannot start."""

import json

from world import check, fails_after, metric, one_worker, scenario


def restarts(world, cause, counted):
    return metric(world.driver, "trainingjob_restarts_total", role="worker", cause=cause, counted=counted)


@scenario
def worker_failures(world):
    """A pod deleted and one evicted: replaced, told apart, told once, not counted; nobody else restarts."""
    counters = {cause: restarts(world, cause, "false") for cause in ("Deleted", "DisruptionTarget")}
    world.job()
    world.wait_ready(3)
    before = world.pods()
    with world.pod_history() as history:
        world.kubectl("delete", "pod", "lenet-worker-0", "--wait=false")
        world.wait_replaced("lenet-worker-0", before["lenet-worker-0"])
        world.wait_ready(3)
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction",
                    "metadata": {"name": "lenet-worker-1", "namespace": world.namespace}}
        world.kubectl("create", "--raw", f"/api/v1/namespaces/{world.namespace}/pods/lenet-worker-1/eviction", "-f",
                      "-", stdin=json.dumps(eviction))
        world.wait_replaced("lenet-worker-1", before["lenet-worker-1"])
        world.wait_ready(3)
    status = world.status()
    causes = {failure["index"]: (failure["cause"], failure["action"]) for failure in status["failures"]}
    check(causes == {0: ("Deleted", "Replace"), 1: ("DisruptionTarget", "Replace")}, f"causes: {causes}")
    check(status["restarts"] == {"total": 2, "counted": 0}, f"restarts: {status['restarts']}")
    after = world.pods()
    for name in ("lenet-coordinator-0", "lenet-ps-0", "lenet-worker-2"):
        check(after[name] == before[name], f"{name} was restarted")
    check(len(history) == 7, f"expected 7 pods in all, there were {history}")
    for cause, count in counters.items():
        check(restarts(world, cause, "false") == count + 1, f"trainingjob_restarts_total of {cause}: one more expected")
    lost = [(event["message"], event.get("count", 1)) for event in world.events("WorkerLost")]
    check(len(lost) == 2 and all(count == 1 for _, count in lost), f"events WorkerLost: {lost}")
    world.wait_progress()
    world.note(recovery_seconds=round(status["recovery"]["lastDurationSeconds"], 1))


@scenario
def exit_codes(world):
    """Workers that exit 1 or 137, run out of memory, have no image, fit on no node: action, cause, event, metric."""
    # Metrics have one label for all exit codes and one for all signals.
    counters = {label: restarts(world, label, "true") for label in ("ExitCode", "Signal", "OOMKilled")}
    world.job("exits", worker=one_worker({"command": ["sh", "-c", "echo the reason; exit 1"]}),
              failurePolicy=fails_after(1))
    world.job("killed", worker=one_worker({"command": ["sh", "-c", "exit 137"]}), failurePolicy=fails_after(1))
    world.job("greedy", worker=one_worker({"resources": {"limits": {"memory": "40Mi"}}}), failurePolicy=fails_after(1))
    world.job("noimage", worker=one_worker({"image": "downpour.dev/none:e2e"}))
    world.job("nonode", worker=one_worker(nodeSelector={"no": "such"}))
    for name, cause, label, code in (("exits", "Exit code 1", "ExitCode", 1),
                                     ("killed", "Killed by signal 9", "Signal", 137),
                                     ("greedy", "OOMKilled", "OOMKilled", 137)):
        world.wait_phase("Failed", 180, name)
        failures = [(one["cause"], one.get("exitCode"), one["action"], one["counted"])
                    for one in world.status(name)["failures"]]
        check(failures == [(cause, code, "Replace", True), (cause, code, "FailJob", True)], f"{name}: {failures}")
        check(world.condition("Failed", name)[1] == "RestartLimitExceeded", f"{world.condition('Failed', name)}")
        check(restarts(world, label, "true") == counters[label] + 1,
              f"trainingjob_restarts_total of {label}: {counters[label]} became {restarts(world, label, 'true')}")
        # One for the failure that was followed by a restart, one for each step of the end.
        for reason in ("WorkerLost", "WorkerReplaced", "JobFailing", "JobFailed"):
            world.check_told_once(reason, name)
    check("the reason" in world.status("exits")["failures"][0]["message"], f"{world.status('exits')['failures'][0]}")
    for name, expected in (("noimage", ("ErrImageNeverPull", "ImagePullBackOff", "ErrImagePull")),
                           ("nonode", ("Unschedulable",))):
        def test():
            found = world.condition("Scheduled", name)
            return True if found and found[0] == "False" and found[1] in expected else f"not yet: {found}"
        world.wait(f"{name} to say why it waits", test, 90)
        check(world.status(name)["restarts"]["total"] == 0, f"{name}: {world.status(name)['restarts']}")


@scenario
def pending_timeout(world):
    """Workers that fit on no node or whose image cannot be had are given up, tried again, and fail the job: action, cause,
    event, metric."""
    before = restarts(world, "PendingTimeout", "true")
    rules = fails_after(1, pendingTimeoutSeconds=5)
    with world.pod_history() as history:
        world.job("nonode", worker=one_worker(nodeSelector={"no": "such"}), failurePolicy=rules)
        world.job("noimage", worker=one_worker({"image": "downpour.dev/none:e2e"}), failurePolicy=rules)
        for name in ("nonode", "noimage"):
            world.wait_phase("Failed", 120, name)
    for name in ("nonode", "noimage"):
        failures = [(one["cause"], one["action"], one["counted"]) for one in world.status(name)["failures"]]
        check(failures == [("PendingTimeout", "Replace", True), ("PendingTimeout", "FailJob", True)], f"{name}: {failures}")
        workers = [pod for pod in history if pod[0] == f"{name}-worker-0"]
        check(sorted(incarnation for _, _, incarnation in workers) == ["1", "2"], f"pods of {name}'s worker: {workers}")
        for reason in ("WorkerLost", "WorkerReplaced", "JobFailing", "JobFailed"):
            world.check_told_once(reason, name)
    after = restarts(world, "PendingTimeout", "true")
    check(after == before + 2, f"trainingjob_restarts_total of PendingTimeout: {before} became {after}")
