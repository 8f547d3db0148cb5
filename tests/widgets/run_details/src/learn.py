"""Learns something, and learns on when somebody has looked."""

import json
import math
import os
import sys
import time
import urllib.request
from pathlib import Path

EPOCHS = 20


def log(epoch: int, **metrics: float) -> None:
    now = int(time.time() * 1000)
    points = [
        {"key": key, "value": value, "timestamp": now, "step": epoch}
        for key, value in metrics.items()
    ]
    request = urllib.request.Request(
        f"{os.environ['MLFLOW_TRACKING_URI']}/api/2.0/mlflow/runs/log-batch",
        json.dumps({"run_id": os.environ["MLFLOW_RUN_ID"], "metrics": points}).encode(),
        {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {os.environ.get('MLFLOW_TRACKING_TOKEN', '')}",
        },
    )
    urllib.request.urlopen(request, timeout=60).close()


seen = Path(sys.argv[1])
for epoch in range(EPOCHS):
    loss = math.exp(-epoch / 5)
    log(epoch, loss=loss, accuracy=1 - loss / 2)
    print(f"epoch {epoch}: loss {loss:.4f}", flush=True)
    while epoch == EPOCHS // 2 and not seen.exists():
        time.sleep(0.2)
print("learned")
