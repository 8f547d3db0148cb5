"""How far the job is, as metrics of the job.

Owns: sending them to the job's own MLflow endpoint.
Leaves: which numbers to coordinator.py.
Always: a metric that can't be sent stops nothing; scoring never waits for one.
"""

from __future__ import annotations

import http.client
import json
import os
import queue
import threading
import time
from urllib.parse import urlsplit

_LIMIT_S = 10.0
_MOST_WAITING = 100


class Metrics:
    """Sends in a thread of its own."""

    def __init__(self) -> None:
        self._relay = os.environ.get("TORCHYARD_RELAY", "")
        self._run = os.environ.get("MLFLOW_RUN_ID") or os.environ.get("AZUREML_RUN_ID", "")
        self._waiting: queue.Queue[bytes] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._work, daemon=True)
        if self._relay and self._run:
            self._thread.start()

    def log(self, values: dict[str, float], step: int) -> None:
        now_ms = int(time.time() * 1000)
        points = [
            {"key": key, "value": value, "timestamp": now_ms, "step": step}
            for key, value in values.items()
        ]
        try:
            self._waiting.put_nowait(json.dumps({"run_id": self._run, "metrics": points}).encode())
        except queue.Full:
            pass

    def close(self) -> None:
        """Send what waits, within a limit."""
        try:
            self._waiting.put_nowait(b"")
        except queue.Full:
            return
        if self._thread.is_alive():
            self._thread.join(_LIMIT_S)

    def _work(self) -> None:
        while True:
            body = self._waiting.get()
            if not body:
                return
            try:
                self._send(body)
            except (OSError, http.client.HTTPException) as error:
                print(f"torchyard: metrics can't be logged: {error}", flush=True)

    def _send(self, body: bytes) -> None:
        """Source: https://mlflow.org/docs/latest/rest-api.html#log-batch"""
        address = urlsplit(self._relay)
        connection = http.client.HTTPConnection(address.netloc, timeout=_LIMIT_S)
        token = os.environ.get("MLFLOW_TRACKING_TOKEN", "")
        headers = {"Content-Type": "application/json", "Authorization": "Bearer " + token}
        path = address.path.rstrip("/") + "/api/2.0/mlflow/runs/log-batch"
        try:
            connection.request("POST", path, body, headers)
            connection.getresponse().read()
        finally:
            connection.close()
