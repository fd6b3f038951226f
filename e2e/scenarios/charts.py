"""The chart: upgrading the operator."""

from world import CHART, check, helm, scenario


@scenario
def upgrade(world):
    """helm upgrade while a job trains: it goes on, and no pod of it is restarted."""
    world.job(workers=2)
    world.wait_ready(2)
    before = world.pods()
    helm(world.driver, "upgrade", "downpour", str(CHART), "--set", "images.tag=e2e", "--set", "images.pullPolicy=Never",
         "--set", "workers=4", "--wait", "--timeout", "120s")
    world.wait_progress()
    check(world.pods() == before, "a pod of the job was restarted")
