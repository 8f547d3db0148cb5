"""A server is replaced by one of the next version while its jobs run; each side by its own code."""

from __future__ import annotations

import json
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard, running_yard, wait_until
from recorded_home.next_version import NEXT, version_of
from torchyard.base.db import SCHEMA_VERSION

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(600)]
_COUNT = """
import json, os, sys, time, urllib.request
step = 0
while not os.path.exists(sys.argv[1]):
    point = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": "step", "value": step, "step": step,
             "timestamp": int(time.time() * 1000)}
    head = {"Content-Type": "application/json",
            "Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]}
    url = os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/log-metric"
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(point).encode(), head)).read()
    print("step", step, flush=True)
    step += 1
    time.sleep(0.1)
print("counted", step)
"""


@pytest.fixture
def yard() -> Iterator[Yard]:
    with running_yard("next") as made:
        yield made


def test_jobs_run_on_over_an_upgrade(yard: Yard, tmp_path: Path) -> None:
    end = tmp_path / "end"
    _submit(yard, tmp_path, f"python count.py {end}", "counts")
    _submit(yard, tmp_path, "echo waited", "waits", resources={"instance_count": 4})
    wait_until(lambda: len(_points(yard)) >= 5, 120, "metrics arrive")
    later = version_of(yard, tmp_path, "0.2.0", NEXT)
    stopped = time.monotonic()
    yard("server", "stop")
    later("server", "start")
    print(f"no server for {time.monotonic() - stopped:.1f} s")
    assert "0.2.0" in later("server", "status")
    before = len(_points(later))
    wait_until(lambda: len(_points(later)) > before + 5, 120, "they arrive at the new server")
    end.touch()
    job = later.completed("counts")
    points = _points(later)
    assert [value for _, _, value in points] == [float(n) for n in range(len(points))]
    assert job["exit_code"] == 0 and len(later.get("jobs/counts")["stages"]) == 4
    [log] = later.logs("counts").values()
    assert log.decode().splitlines()[-1] == f"counted {len(points)}"
    later("job", "cancel", "-n", "waits")
    assert yard("job", "list"), "the command of the release before is answered"
    later("server", "stop")
    assert f"schema `{NEXT}`" in yard.run("server", "start", expect=2)[1]


def test_a_command_that_is_too_old_is_told(yard: Yard, tmp_path: Path) -> None:
    old = version_of(yard, tmp_path, "0.9.0", SCHEMA_VERSION)
    error = old.run("job", "list", expect=2)[1]
    assert "runs torchyard 0.1.0, and your torchyard is 0.9.0" in error
    assert "pip install torchyard==0.1.0" in error
    assert "running" in old("server", "status")


def _submit(yard: Yard, folder: Path, command: str, name: str, **more: Any) -> None:
    code = folder / "code"
    code.mkdir(exist_ok=True)
    (code / "count.py").write_text(_COUNT)
    file = folder / "job.yml"
    document = {"name": name, "command": command, "code": "code", "environment": "python"}
    file.write_text(json.dumps({**document, **more}))
    yard("job", "create", "-f", str(file))


def _points(yard: Yard) -> list[tuple[int, int, float]]:
    """Step, time and value of each; before its first point there is no such metric."""
    path = "jobs/counts/metrics/history?key=step"
    try:
        points: list[tuple[int, int, float]] = yard.get(path)["points"]
    except urllib.error.HTTPError as error:
        assert error.code == 404
        return []
    return points
