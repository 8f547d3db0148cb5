"""A training on an engine's machines goes from 2 nodes to 1 and to 2 again in one run; a module of
each engine's tests inherits this.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

import pytest
import yaml

from end_to_end.yard_under_test import Yard, wait_until
from executors.listening_yard import CLUSTER

STEPS = 400
# Attempts before the third are slow, so that they never end by themselves.
_TRAIN = """
import json, os, signal, sys, time, urllib.request
from pathlib import Path

STEPS = 400
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
attempt = int(os.environ["TORCHYARD_ATTEMPT_NUMBER"])
folder = Path("outputs/checkpoints")
saved = [json.loads(file.read_text()) for file in folder.glob("*/manifest.json")]
newest = max(saved, key=lambda each: each["step"], default={"step": 0, "saved_at": 0})
began_at = int(time.time() * 1000)
print(f"attempt {attempt} has {ranks} ranks and begins at step {newest['step']}", flush=True)


def send(path, body):
    request = urllib.request.Request(
        os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/" + path,
        json.dumps({"run_id": os.environ["MLFLOW_RUN_ID"], **body}).encode(),
        {"Content-Type": "application/json",
         "Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]},
    )
    urllib.request.urlopen(request, timeout=60).read()


if rank == 0 and newest["step"]:
    note = {"step": newest["step"], "saved_at": newest["saved_at"], "began_at": began_at}
    send("set-tag", {"key": "torchyard.resumed_from", "value": json.dumps(note)})
for step in range(newest["step"], STEPS):
    time.sleep(1 if attempt < 3 else 0.01)
    if rank == 0:
        now = int(time.time() * 1000)
        send("log-metric", {"key": "loss", "value": 0.9 ** step, "timestamp": now, "step": step})
        if step % 3 == 2 or told:
            checkpoint = folder / f"step-{step + 1:08d}"
            checkpoint.mkdir(parents=True)
            part = checkpoint / "part"
            part.write_text(json.dumps({"step": step + 1, "saved_at": int(time.time() * 1000)}))
            part.replace(checkpoint / "manifest.json")
    if told:
        sys.exit(143)
"""


class Machines(Protocol):
    """The engine's two."""

    def lose(self) -> None:
        """One of them goes, with all that runs there."""

    def give_back(self) -> None:
        """It is there again, and takes jobs."""


class ElasticTraining:
    @pytest.fixture
    def machines(self) -> Machines:
        raise NotImplementedError

    def test_it_goes_from_two_nodes_to_one_and_back(
        self, yard: Yard, machines: Machines, tmp_path: Path
    ) -> None:
        (tmp_path / "train.py").write_text(_TRAIN)
        job = {
            "name": "elastic",
            "command": "python train.py",
            "compute": CLUSTER,
            "environment": "python",
            "code": ".",
            "distribution": {"type": "pytorch", "process_count_per_instance": 1},
            "torchyard": {"min_nodes": 1, "max_nodes": 2, "grow_after": "5s"},
        }
        (tmp_path / "job.yml").write_text(yaml.safe_dump(job))
        yard("job", "create", "-f", str(tmp_path / "job.yml"))
        manifest = "outputs/checkpoints/step-00000006/manifest.json"
        wait_until(lambda: manifest in json.dumps(yard.get("jobs/elastic/files")), 240, "it trains")
        machines.lose()
        wait_until(
            lambda: (
                (yard.job("elastic")["attempt"], yard.job("elastic")["status"]) == (2, "Running")
            ),
            300,
            "it goes on with one node",
        )
        machines.give_back()
        done = yard.completed("elastic", 500)
        assert [attempt["node_count"] for attempt in done["attempts"]] == [2, 1, 2], done["notices"]
        first, second, third = [(each["error"] or {}).get("code") for each in done["attempts"]]
        assert first in ("node_lost", "worker_lost") and (second, third) == ("resized", None)
        points = yard.get("jobs/elastic/metrics/history?key=loss")["points"]
        assert sorted(step for step, _, _ in points) == list(range(STEPS))
        assert any(notice.startswith("goes on with 1 node: node") for notice in done["notices"])
        assert any(notice.startswith("goes on with 2 nodes: mach") for notice in done["notices"])
