#!/usr/bin/env bash
# Trains LeNet on all of Fashion-MNIST with one parameter server and three workers and leaves everything in the run
# folder. KILL=worker kills two workers with SIGKILL in the middle of epochs. Usage: demo.sh BINARIES RUN_FOLDER
set -euo pipefail
binaries=$1
folder=$2
root=$(cd "$(dirname "$0")/.." && pwd)
rm -rf "$folder"

case "${KILL:-}" in
  "") exec "$binaries/downpour" run "$root/deploy/examples/lenet.yaml" --run-dir "$folder" ;;
  worker) ;;
  *) echo "demo: KILL: must be 'worker' or unset, got '$KILL'" >&2; exit 2 ;;
esac

python3 "$root/deploy/kill_workers.py" "$folder" &
killer=$!
trap 'kill "$killer" 2>/dev/null || true' EXIT
"$binaries/downpour" run "$root/deploy/examples/lenet.yaml" --run-dir "$folder"
wait "$killer"
python3 - "$folder/summary.json" <<'PY'
import json, sys
summary = json.load(open(sys.argv[1]))
ledger = summary["ledger"]
exact = ledger["missing"] == 0 and ledger["duplicated"] == 0 and ledger["applied"] == ledger["expected"]
print(f"demo: {summary['restarts']} restarts, ledger {'exact' if exact else 'NOT exact'}: {ledger}")
sys.exit(0 if exact and summary["restarts"] >= 2 else 1)
PY
