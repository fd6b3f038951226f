#!/usr/bin/env bash
# Writes deploy/operator.yaml from the chart with its defaults. With --check it writes nothing and fails if the file is not
# what it would write. HELM names another helm (3.x).
set -euo pipefail
cd "$(dirname "$0")/.."
helm="${HELM:-helm}"
kubernetes=1.34.0 # that the templates are told

render() {
  cat <<'HEAD'
# The operator as the chart makes it with its defaults, in the namespace downpour-system. Written by deploy/render.sh; do not
# edit. The CustomResourceDefinition comes first: kubectl apply --server-side -f deploy/crd.yaml -f deploy/operator.yaml
apiVersion: v1
kind: Namespace
metadata:
  name: downpour-system
  labels:
    pod-security.kubernetes.io/enforce: restricted
HEAD
  # Nothing here is Helm's.
  "$helm" template downpour charts/downpour --namespace downpour-system --kube-version "$kubernetes" |
    sed -e '/^# Source: /d' -e '/helm\.sh\/chart:/d' -e 's|managed-by: Helm$|managed-by: kubectl|'
}

text="$(render)"
case "${1:-}" in
  "") printf '%s\n' "$text" >deploy/operator.yaml ;;
  --check)
    if ! diff -u deploy/operator.yaml <(printf '%s\n' "$text"); then
      echo "deploy/operator.yaml is not up to date: run deploy/render.sh" >&2
      exit 1
    fi
    ;;
  *)
    echo "usage: deploy/render.sh [--check]" >&2
    exit 2
    ;;
esac
