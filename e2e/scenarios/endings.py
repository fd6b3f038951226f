"""What becomes of jobs that have ended, and of those that are somebody else's."""

from world import check, fails_after, one_worker, scenario


@scenario
def endings(world):
    """podCleanup by role, a job that goes when its time is over, and one that another controller carries out."""
    world.job("elsewhere", managedBy="kueue.x-k8s.io/multikueue")
    world.job("kept", workers=1, epochs=1, output={"keepSeconds": 0}, podCleanup={"coordinator": {"onSuccess": "None"}})
    world.job("gone", worker=one_worker({"command": ["sh", "-c", "echo the reason; exit 1"]}),
              failurePolicy=fails_after(0), ttlSecondsAfterFinished=20,
              podCleanup={"onFailure": "All", "worker": {"onFailure": "KeepFailed"}})
    world.wait_phase("Failed", 120, "gone")
    world.wait("all but its failed worker to go", lambda: list(world.pods("gone")) == ["gone-worker-0"], 15)
    check("the reason" in world.kubectl("logs", "gone-worker-0"), "the log of the failed worker is not there any more")
    world.wait("the job to go", lambda: not world.get("trainingjob", "gone"), 60)
    world.wait("its pod to go with it", lambda: not world.pods("gone"), 60)
    world.wait_phase("Succeeded", 180, "kept")
    world.wait("all but its coordinator to go", lambda: list(world.pods("kept")) == ["kept-coordinator-0"], 30)
    check(not world.pods("elsewhere") and not world.status("elsewhere"),
          f"a job of another controller was touched: {world.get('trainingjob', 'elsewhere')}")
    world.kubectl("delete", "trainingjob", "kept", "elsewhere", "--wait=true", "--timeout=60s")
    world.wait_gone(60)
