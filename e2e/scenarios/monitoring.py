"""Metrics, dashboards and alerts, with a real Prometheus."""

import shutil

from driver.base import ROOT, run
from monitoring import chart
from monitoring.check_queries import check_alerts, check_dashboards
from monitoring.discovery import Discovery
from monitoring.prometheus import Prometheus
from world import SYSTEM, check, fails_after, one_worker, operator_pods, scenario

SCRAPE_SECONDS = 2
ALERT_TESTS = ROOT / "e2e" / "monitoring" / "alerts_test.yaml"


def start_jobs(world):
    """One that trains, one that fails, and one that fits on no node."""
    world.job(epochs=200)
    world.kubectl("annotate", "trainingjob", "lenet", "training.downpour.dev/goodput=true")

    def broken(name, container=None, **pod):
        world.job(name, worker=one_worker(container, **pod), failurePolicy=fails_after(0))

    broken("exits", {"command": ["sh", "-c", "exit 3"]})
    broken("nonode", nodeSelector={"no": "such"})


def replace_worker(world):
    before = world.pods()["lenet-worker-0"]
    world.kubectl("delete", "pod", "lenet-worker-0", "--wait=false")
    world.wait("worker-0 to be replaced", lambda: world.pods().get("lenet-worker-0", before) != before, 120)
    world.wait_ready(3, 180)


def check_targets(world, prometheus):
    """The monitors and the annotations find the same pods, and all of them answer."""
    wanted = {(SYSTEM, name) for name in operator_pods(world.driver)}
    wanted |= {(world.namespace, name) for name in world.pods()}

    def test():
        for which in ('job!="annotations"', 'job="annotations"'):
            answers, silent = prometheus.up(which)
            missing = wanted - (answers - silent)
            if missing:
                return f"not yet: {which}: {sorted(missing)} do not answer"
        return True
    world.wait("every pod to be scraped, once by monitors and once by annotations", test, 120)
    return len(wanted)


@scenario
def monitoring(world):
    """Prometheus scrapes what the chart says: every query of dashboards and alerts has data, and an alert fires."""
    objects = chart.rendered(SYSTEM)
    targets = world.driver.state / "targets"
    scrapes = [*chart.scrape_configs(objects, targets), chart.annotated(targets)]
    prepared = Prometheus(world.driver.state / "prometheus", scrapes, chart.rules(objects), SCRAPE_SECONDS)
    with Discovery(world.driver, targets), prepared as prometheus:
        run(["promtool", "test", "rules", shutil.copy(ALERT_TESTS, prometheus.folder)], seconds=120)
        world.wait("the operator to be scraped", lambda: prometheus.query("trainingjob_created_total"), 60)
        start_jobs(world)
        world.wait_phase("Failed", 180, "exits")
        fired = world.wait("the alert on failed jobs to fire", lambda: prometheus.alerts("DownpourJobFailed"), 60)
        check([alert["labels"]["reason"] for alert in fired] == ["RestartLimitExceeded"], f"{fired}")
        world.wait_ready(3, 180)
        replace_worker(world)
        world.kubectl("scale", "trainingjob/lenet", "--replicas=2")
        world.wait("the third worker to go", lambda: "lenet-worker-2" not in world.pods(), 120)
        pods = check_targets(world, prometheus)
        dashboards, shown = chart.dashboards(objects), {"namespace": world.namespace, "job": "lenet"}

        def test():
            queries, wrong = check_dashboards(prometheus.url, dashboards, shown)
            series, more = check_alerts(prometheus.url)
            lines = "\n  ".join(wrong + more)
            return f"not yet: {len(wrong + more)} have none:\n  {lines}" if lines else (queries, series)
        queries, series = world.wait("data for every query", test, 300)
        world.wait_progress()  # what nobody was told of yet is not counted when it is lost
        lost = "trainingjob_lost_updates_total"
        before = sum(value for _, value in prometheus.query(lost))
        world.kubectl("delete", "pod", "lenet-ps-0", "--wait=false")
        world.wait("the updates of the lost parameter server to be counted",
                   lambda: sum(value for _, value in prometheus.query(lost)) > before, 180)
        world.note(pods=pods, panel_queries=queries, alert_selectors=series, alert=fired[0]["labels"])
