"""A server on PostgreSQL: a job, and its metrics after a restart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from end_to_end.yard_under_test import Yard, running_yard, wait_until
from postgres_server import PostgresServer

pytestmark = [pytest.mark.smoke, pytest.mark.timeout(600)]
_TRAIN = """
import json, os, sys, time, urllib.request
from pathlib import Path

URL = os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/log-metric"
HEADERS = {
    "Content-Type": "application/json",
    "Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"],
}


def log(step):
    point = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": "loss", "value": 1 / step,
             "timestamp": int(time.time() * 1000), "step": step}
    request = urllib.request.Request(URL, json.dumps(point).encode(), HEADERS)
    urllib.request.urlopen(request, timeout=120).close()


log(1)
while not Path(sys.argv[1]).exists():
    time.sleep(0.1)
log(2)
"""


@pytest.fixture
def postgres_yard() -> Iterator[Yard]:
    server = PostgresServer()
    try:
        with running_yard("smoke-postgres", server.new_database()) as yard:
            yield yard
    finally:
        server.close()


def test_a_job_on_postgres_survives_a_restart(
    postgres_yard: Yard, write_job: Callable[..., str], tmp_path: Path
) -> None:
    yard, restarted = postgres_yard, tmp_path / "restarted"
    file = write_job({"command": f"python train.py {restarted}"}, train=_TRAIN)
    name = yard("job", "create", "-f", file, "--query", "name", "-o", "tsv").split()[-1]
    wait_until(lambda: yard.job(name)["metrics"] == {"loss": 1.0}, 240, "the first point is there")
    assert not (yard.home / "torchyard.db").exists()
    yard("server", "stop")
    yard("server", "start")
    restarted.touch()
    yard.completed(name)
    metrics = yard("job", "show", "-n", name, "--query", "metrics", "-o", "json")
    assert json.loads(metrics) == {"loss": 0.5}
