#!/usr/bin/env python3
"""Whether every query of the dashboards and every alert of a Prometheus has data.

    check_queries.py --url http://127.0.0.1:9090 --namespace team --job lenet

A panel's query must return a value that is a number. An alert that does not fire returns nothing, so each selector of
its expression must find series. Where no worker has a GPU, what is said of GPUs is left out. Prometheus says which alerts it has; the dashboards are those of the chart."""

import argparse
import json
import math
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from driver.base import ROOT, ClusterError  # noqa: E402  (it is found from here on)
from monitoring.prometheus import ask  # noqa: E402

DASHBOARDS = ROOT / "charts" / "downpour" / "dashboards"


def panels(dashboard):
    """Every panel, those inside of rows too."""
    for panel in dashboard["panels"]:
        yield panel
        yield from panels({"panels": panel.get("panels", [])})


def substitute(text, variables):
    """As Grafana does with $name, ${name} and ${name:format}; an unknown one is an error."""
    def value(found):
        name = found[1] or found[2]
        if name not in variables:
            raise ClusterError(f"no variable {name} in {text}")
        return variables[name]
    return re.sub(r"\$(?:(\w+)|\{(\w+)(?::\w+)?\})", value, text)


def values_of(url, variable, variables):
    """What Grafana would offer for a variable whose query is label_values(selector, label)."""
    query = substitute(variable["query"]["query"], variables)
    asked = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
    if asked is None:
        raise ClusterError(f"variable {variable['name']}: got {query}, expected label_values(selector, label)")
    values = ask(url, f"label/{asked[2]}/values", **{"match[]": asked[1]})
    pattern = variable["regex"].strip("/")
    if pattern:
        values = [found[1] for found in (re.search(pattern, value) for value in values) if found]
    return values


def choose(url, dashboard, wanted):
    """The variables of a dashboard, each with the wanted value; and what is wrong."""
    variables, wrong = {"datasource": "prometheus", "__rate_interval": "1m", "__range": "1h"}, []
    for variable in dashboard["templating"]["list"]:
        if variable["type"] != "query":
            continue
        name = variable["name"]
        offered = values_of(url, variable, variables)
        if wanted[name] not in offered:
            wrong.append(f"variable {name}: offers {offered}, expected {wanted[name]} among them")
        variables[name] = wanted[name]
    return variables, wrong


def selectors(expression):
    """The selectors of an expression: names of metrics with their matchers, without ranges."""
    text = re.sub(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", expression)
    pattern = re.compile(r'"(?:[^"\\]|\\.)*"|\[[^\]]*\]|\b\d[\d.]*(?:[eE][+-]?\d+)?\w*|'
                         r'([a-zA-Z_:][\w:]*)(\s*\(|\s*\{(?:[^}"]|"(?:[^"\\]|\\.)*")*\})?')
    words = {"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring", "group_left", "group_right",
             "inf", "nan"}
    found = []
    for match in pattern.finditer(text):
        name, rest = match[1], (match[2] or "").strip()
        if name and name not in words and rest != "(":
            found.append(name + rest)
    return found


def has_data(url, expression):
    result = ask(url, "query", query=expression)
    values = [result["result"]] if result["resultType"] == "scalar" else [one["value"] for one in result["result"]]
    return any(not math.isnan(float(value)) for _, value in values)


GPU = "downpour_worker_gpu_"


def is_expected(url, expression):
    """Whether there has to be data: workers without a GPU say nothing of one."""
    return GPU not in expression or has_data(url, f'count({{__name__=~"{GPU}.+"}})')


def check_dashboards(url, dashboards, wanted):
    """How many queries were tried, and what is wrong."""
    count, wrong = 0, []
    for name, dashboard in dashboards.items():
        variables, problems = choose(url, dashboard, wanted)
        wrong += [f"{name}: {problem}" for problem in problems]
        for panel in panels(dashboard):
            if panel["type"] != "row" and not panel.get("targets"):
                wrong.append(f"{name}, {panel['title']}: a panel without a query")
            for target in panel.get("targets", []):
                expression = substitute(target["expr"], variables)
                if not is_expected(url, expression):
                    continue
                count += 1
                if not has_data(url, expression):
                    wrong.append(f"{name}, {panel['title']}: no data for {expression}")
    return count, wrong


def check_alerts(url):
    """Likewise, of the selectors of every alert that Prometheus has."""
    count, wrong = 0, []
    for group in ask(url, "rules")["groups"]:
        for rule in group["rules"]:
            if rule["health"] == "err":
                wrong.append(f"{rule['name']}: {rule['lastError']}")
            for selector in selectors(rule["query"]):
                if not is_expected(url, selector):
                    continue
                count += 1
                if not has_data(url, selector):
                    wrong.append(f"{rule['name']}: no series for {selector}")
    return count, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="of Prometheus")
    parser.add_argument("--namespace", required=True, help="of the job that the dashboard for one job shows")
    parser.add_argument("--job", required=True, help="its name")
    arguments = parser.parse_args()
    dashboards = {path.name: json.loads(path.read_text()) for path in sorted(DASHBOARDS.glob("*.json"))}
    try:
        queries, wrong = check_dashboards(arguments.url, dashboards, vars(arguments))
        series, more = check_alerts(arguments.url)
    except ClusterError as error:
        sys.exit(str(error))
    for line in wrong + more:
        print(line)
    print(f"{queries} queries of {len(dashboards)} dashboards, {series} selectors of alerts: "
          f"{len(wrong + more)} without data")
    return 1 if wrong or more else 0


if __name__ == "__main__":
    sys.exit(main())
