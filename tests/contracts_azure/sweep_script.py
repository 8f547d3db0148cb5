"""What the trials of sweeps run: it logs a metric with nothing but Python."""

from __future__ import annotations

# Each trial's loss falls to its `rate`, and it leaves a file.
TRAIN = """
import argparse, json, os, pathlib, time, urllib.request
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float); parser.add_argument("--kind", default="a")
parser.add_argument("--steps", type=int, default=3); parser.add_argument("--wait", type=float)
given, _ = parser.parse_known_args()
for step in range(given.steps):
    point = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": "loss", "step": step,
             "value": given.rate + 1 / (step + 1), "timestamp": int(time.time() * 1000)}
    urllib.request.urlopen(urllib.request.Request(
        os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/log-metric",
        json.dumps(point).encode(), {"Content-Type": "application/json",
        "Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]}))
    time.sleep(given.wait or 0)
os.makedirs("outputs", exist_ok=True)
pathlib.Path("outputs/rate.txt").write_text(str(given.rate))
print("rate", given.rate, given.kind)
"""
