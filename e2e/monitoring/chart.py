"""What the chart ships for monitoring, as Prometheus takes it."""

import json

from driver.base import ROOT, binaries, run
from monitoring.discovery import sanitised

CHART = ROOT / "charts" / "downpour"
ENABLED = ["metrics.serviceMonitor.enabled=true", "metrics.podMonitor.enabled=true",
           "metrics.prometheusRule.enabled=true", "metrics.dashboards.enabled=true"]


def rendered(namespace, release="downpour"):
    """The objects of the chart with all of its monitoring, by (kind, name)."""
    text = run([binaries() / "helm", "template", release, CHART, "--namespace", namespace, "--kube-version", "1.34.0",
                *(word for value in ENABLED for word in ("--set", value))])
    # Only to turn YAML into JSON: --local asks no cluster and takes kinds that none knows.
    lists = run([binaries() / "kubectl", "annotate", "--local", "-f", "-", "-o", "json", "--overwrite",
                 "downpour.dev/rendered=true"], stdin=text)
    found = {}
    decoder, position = json.JSONDecoder(), 0
    while position < len(lists):
        one, position = decoder.raw_decode(lists, position)
        while position < len(lists) and lists[position].isspace():
            position += 1
        for item in one["items"] if one["kind"] == "List" else [one]:
            found[item["kind"], item["metadata"]["name"]] = item
    return found


def of_kind(objects, kind):
    return [item for (found, _), item in objects.items() if found == kind]


def dashboards(objects):
    """The dashboards by name, as Grafana's sidecar finds them."""
    found = {}
    for item in of_kind(objects, "ConfigMap"):
        if item["metadata"]["labels"].get("grafana_dashboard") == "1":
            for name, text in item["data"].items():
                found[name] = json.loads(text)
    return found


def rules(objects):
    """A file of rules."""
    return {"groups": [group for item in of_kind(objects, "PrometheusRule") for group in item["spec"]["groups"]]}


# The Prometheus operator turns monitors into a scrape configuration. What follows does so for what ours use; where it
# would say kubernetes_sd_configs, `folder` has the targets of each role (discovery.py).


def _keep(label, value):
    return {"source_labels": [label], "regex": f"({value})", "action": "keep"}


def _copy(label, target):
    return {"source_labels": [label], "target_label": target}


def _targets(folder, role):
    return [{"files": [str(folder / f"{role}.json")]}]


_NOT_ENDED = {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)", "action": "drop"}
_NAMES = [_copy("__meta_kubernetes_namespace", "namespace"), _copy("__meta_kubernetes_pod_name", "pod")]


def _scrape(monitor, role, endpoint, folder, selected, relabel):
    """`selected`: how the labels of what the monitor selects begin."""
    metadata, spec = monitor["metadata"], monitor["spec"]
    keep = [_keep(selected + sanitised(name), value) for name, value in spec["selector"]["matchLabels"].items()]
    wanted = spec.get("namespaceSelector", {})
    if not wanted.get("any"):
        keep += [_keep("__meta_kubernetes_namespace", "|".join(wanted.get("matchNames") or [metadata["namespace"]]))]
    return {"job_name": f"{monitor['kind']}/{metadata['namespace']}/{metadata['name']}",
            "metrics_path": endpoint["path"], "file_sd_configs": _targets(folder, role),
            "relabel_configs": [*keep, *relabel, *_NAMES]}


def scrape_configs(objects, folder):
    """Of every PodMonitor and ServiceMonitor; the interval is Prometheus's own."""
    found = []
    for monitor in of_kind(objects, "PodMonitor"):
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            port = _keep("__meta_kubernetes_pod_container_port_name", endpoint["port"])
            found.append(_scrape(monitor, "pod", endpoint, folder, "__meta_kubernetes_pod_label_", [_NOT_ENDED, port]))
    for monitor in of_kind(objects, "ServiceMonitor"):
        for endpoint in monitor["spec"]["endpoints"]:
            port = _keep("__meta_kubernetes_endpoint_port_name", endpoint["port"])
            found.append(_scrape(monitor, "endpoints", endpoint, folder, "__meta_kubernetes_service_label_", [port]))
    return found


def annotated(folder):
    """The same targets by the usual annotations. Nothing is kept of them but `up`: it would be there twice."""
    prefix = "__meta_kubernetes_pod_annotation_prometheus_io_"
    return {"job_name": "annotations", "file_sd_configs": _targets(folder, "pod"),
            "relabel_configs": [
                _keep(prefix + "scrape", "true"), _NOT_ENDED,
                # A pod of several ports is found once for each; all become one address.
                {"source_labels": ["__meta_kubernetes_pod_ip", prefix + "port"], "separator": ":",
                 "target_label": "__address__"},
                _copy(prefix + "path", "__metrics_path__"), *_NAMES],
            "metric_relabel_configs": [{"source_labels": ["__name__"], "regex": ".+", "action": "drop"}]}
