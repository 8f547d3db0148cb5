#!/usr/bin/env bash
# The demo: train on two nodes, follow the logs, register the model, say where everything is.
# What it runs is what a user types; `make demo` starts it with the `yard` of .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."

yard=${YARD:-yard}
python=${PYTHON:-python3}
job=digits-$(date -u +%Y%m%d-%H%M%S)-$$

run() {
    printf '\n$ %s %s\n' "$yard" "$*"
    "$yard" "$@"
}

run job create -f examples/digits/job.yml -n "$job" --stream
run model create -n digits -p "azureml://jobs/$job/outputs/artifacts/paths/outputs/model.pt"

"$yard" job show -n "$job" -o json | "$python" -c '
import json, sys

accuracy = json.load(sys.stdin)["metrics"]["accuracy"]
print(f"\nTest accuracy {accuracy:.4f}")
if accuracy < 0.95:
    sys.exit("error: test accuracy is below 0.95")
'

cat <<EOT

Where everything is
  the job       $yard job show -n $job
  its logs      $yard job stream -n $job
  its files     $yard job download -n $job
  the model     $yard model show -n digits
  its file      $yard model download -n digits
  all jobs      $yard job list
The server goes on running for the next job; \`$yard server stop\` ends it.
EOT
