"""Debian's Prometheus as a plain process: on loopback, with a configuration and a folder of its own."""

import json
import shutil
import socket
import urllib.error
import urllib.parse
import urllib.request

from driver.base import ClusterError, run, wait_for
from driver.process import Process


def ask(url, path, **parameters):
    """`data` of an answer of Prometheus' HTTP API."""
    query = urllib.parse.urlencode(parameters, doseq=True)
    try:
        with urllib.request.urlopen(f"{url}/api/v1/{path}?{query}", timeout=30) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        raise ClusterError(f"{path} {parameters}: {error.read().decode(errors='replace')}") from error
    except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
        raise ClusterError(f"Prometheus at {url}: {error}") from error


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Prometheus:
    """with Prometheus(folder, scrapes, rules, seconds) as prometheus: it scrapes and evaluates each `seconds`, and ends
    with the block. Its log stays in the folder."""

    def __init__(self, folder, scrapes, rules, seconds):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        self.url = None
        self.process = Process("prometheus", folder, folder)
        self.rules = folder / "rules.json"  # JSON is YAML
        self.rules.write_text(json.dumps(rules, indent=1))
        self.config = folder / "prometheus.json"
        self.config.write_text(json.dumps({
            "global": {"scrape_interval": f"{seconds}s", "scrape_timeout": f"{seconds}s",
                       "evaluation_interval": f"{seconds}s"},
            "rule_files": [str(self.rules)], "scrape_configs": scrapes}, indent=1))
        run(["promtool", "check", "config", self.config])

    def __enter__(self):
        port = free_port()
        # It ends with this process, however that ends.
        self.process.start(["setpriv", "--pdeathsig", "KILL", "prometheus", f"--config.file={self.config}",
                            f"--storage.tsdb.path={self.folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"])
        self.url = f"http://127.0.0.1:{port}"
        try:
            wait_for("Prometheus to answer", self._answers, 60, 0.2)
        except ClusterError:
            self.process.stop(5)
            raise
        return self

    def __exit__(self, *_):
        self.process.stop(10)

    def _answers(self):
        self.process.must_run()
        try:
            return ask(self.url, "status/runtimeinfo")
        except ClusterError as error:
            return f"not yet: {error}"

    def query(self, expression):
        """[(labels, value)] now."""
        data = ask(self.url, "query", query=expression)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(series["metric"], float(series["value"][1])) for series in data["result"]]

    def alerts(self, name, state="firing"):
        return [alert for alert in ask(self.url, "alerts")["alerts"]
                if alert["labels"]["alertname"] == name and alert["state"] == state]

    def up(self, selector=""):
        """(namespace, pod) of the targets that answer, and of those that do not."""
        answers, silent = set(), set()
        for labels, value in self.query(f"up{{{selector}}}"):
            (answers if value == 1 else silent).add((labels.get("namespace"), labels.get("pod")))
        return answers, silent
