"""Prometheus over the cluster, with what the chart ships: its monitors, rules and dashboards."""
