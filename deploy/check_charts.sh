#!/usr/bin/env bash
# Checks the chart: lint, templates with every file of values in ci/, what they make against the schemas of Kubernetes, values
# that must be refused, the names of metrics, and deploy/operator.yaml. HELM and KUBECONFORM name other programs;
# KUBECONFORM_ARGS adds arguments, such as -schema-location DIR for a machine without the internet.
set -euo pipefail
cd "$(dirname "$0")/.."
helm="${HELM:-helm}"
kubeconform="${KUBECONFORM:-kubeconform}"
read -r -a conform_args <<<"${KUBECONFORM_ARGS:-}"
chart=charts/downpour
kubernetes=1.34.0 # that the templates are told
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

fail() {
  echo "check_charts: $*" >&2
  exit 1
}

"$helm" lint --strict "$chart" --kube-version "$kubernetes"
for values in "" "$chart"/ci/*.yaml; do
  name="$(basename "${values:-defaults}" .yaml)"
  "$helm" lint --strict "$chart" --kube-version "$kubernetes" ${values:+--values "$values"} >"$work/lint" || { cat "$work/lint"; exit 1; }
  "$helm" template downpour "$chart" --namespace downpour-system --kube-version "$kubernetes" ${values:+--values "$values"} >"$work/$name.yaml"
  if command -v "$kubeconform" >/dev/null; then
    # Kinds of the Prometheus operator have no schema among those of Kubernetes.
    "$kubeconform" -strict -summary -skip ServiceMonitor,PodMonitor,PrometheusRule "${conform_args[@]}" "$work/$name.yaml"
  else
    echo "$name: not checked against the schemas of Kubernetes: there is no $kubeconform"
  fi
  echo "$name: $(grep -c '^kind: ' "$work/$name.yaml") objects"
done

# Each line must be refused.
while read -r set; do
  [ -z "$set" ] && continue
  if "$helm" template downpour "$chart" --kube-version "$kubernetes" --set "$set" >/dev/null 2>&1; then fail "--set $set is accepted"; fi
done <<'REFUSED'
replicas=2
replicaCount=-1
replicaCount=two
images.operator.tagg=dev
images.pullPolicy=Sometimes
images.trainer.digest=sha256:abc
leaderElection.enabled=false
leaderElection.leaseName=
logLevel=verbose
runAsUser=0
runAsUser=root
workers=0
client.requestsPerSecond=0
extraArgs[0]=verbose
watchNamespace=Team_A
networkPolicy.namespaces[0]=Team_A
metrics.prometheusRule.disabled[0]=NoSuchAlert
metrics.serviceMonitor.interval=soon
metrics.serviceMonitor.enabled=true,metrics.service.enabled=false
REFUSED

# Two operators at once need an election, in an upgrade too.
grep -q '^  strategy: {type: Recreate}' "$work/namespaced-values.yaml" || fail "an upgrade without an election starts the new operator beside the old one"
if grep -q '^  strategy:' "$work/defaults.yaml"; then fail "an upgrade with an election stops the old operator first"; fi

# Who leaves the user to the platform gets none of ours, neither for the operator nor for jobs.
if grep -nE '65532|runAsUser|fsGroup' "$work/platform-user-values.yaml"; then fail "a user that was left to the platform"; fi
grep -q 'run-as-user=0$' "$work/platform-user-values.yaml" || fail "the operator is not told that it sets no user"

# What must not be in any role.
if grep -nE "secrets|pods/exec|pods/attach|pods/portforward|impersonate|escalate|'\*'|\"\*\"|\[\*\]" "$work"/*.yaml; then
  fail "a right that the operator does not need"
fi

python3 - "$work/all-values.yaml" <<'PYTHON'
"""Every metric of a dashboard or an alert is one that is documented, or that the operator has."""
import json, pathlib, re, sys

METRIC = r"((?:downpour|trainingjob|workqueue|controller_runtime|rest_client|leader_election)_[a-z0-9_]+)"
documented = set(re.findall("`" + METRIC, pathlib.Path("docs/operations.md").read_text()))
documented |= set(re.findall('"' + METRIC + '"', pathlib.Path("operator/controller/operator_metrics.cc").read_text()))
texts = {}
for path in sorted(pathlib.Path("charts/downpour/dashboards").glob("*.json")):
    dashboard = json.loads(path.read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids)), f"{path}: two panels with one id"
    texts[str(path)] = "\n".join(target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", []))
    texts[str(path)] += "\n".join(v.get("definition", "") for v in dashboard["templating"]["list"])
rendered = pathlib.Path(sys.argv[1]).read_text()
texts["alerts"] = "\n".join(re.findall(r"^ +expr: ((?:.|\n)*?)^ +(?:for|labels):", rendered, re.M))
missing = set()
used = 0
for where, text in texts.items():
    names = set(re.findall(r"\b" + METRIC + r"\b(?=[{\[), \n]|$)", text))
    used += len(names)
    for name in names:
        if name not in documented and re.sub(r"_(bucket|sum|count)$", "", name) not in documented:
            missing.add(f"{where}: {name} is no metric in docs/operations.md or of the operator")
if missing:
    sys.exit("\n".join(sorted(missing)))
print(f"{used} uses of metrics, all known")
PYTHON

# Examples that name an image name that of the chart.
version="$(sed -n 's/^appVersion: "\(.*\)"$/\1/p' "$chart/Chart.yaml")"
others="$(grep -rnE '^ *image: downpour.dev/' deploy/examples --include='*.yaml' | grep -vE "downpour\.dev/[a-z-]+:$version\$" || true)"
if [ -n "$others" ]; then fail "expected images of version $version, found:"$'\n'"$others"; fi

HELM="$helm" deploy/render.sh --check
echo "check_charts: all is well"
