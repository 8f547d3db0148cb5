"""Jobs of one rank that print nothing: what they logged and what they asked for is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.bench import Bench

_LOG_LOST_FIGURES = """python3 -c "
import json, os, urllib.request
url = os.environ['MLFLOW_TRACKING_URI'] + '/api/2.0/mlflow/runs/log-metric'
headers = {'Content-Type': 'application/json',
           'Authorization': 'Bearer ' + os.environ['MLFLOW_TRACKING_TOKEN']}
for step in range(5):
    point = {'run_id': os.environ['AZUREML_RUN_ID'], 'key': 'loss', 'step': step,
             'value': float('nan') if step > 1 else 0.5, 'timestamp': 1_700_000_000_000 + step}
    request = urllib.request.Request(url, json.dumps(point).encode(), headers)
    urllib.request.urlopen(request).read()
"
"""


def notices(bench: Bench) -> list[str]:
    return [
        event["body"]["message"] for event in bench.server.events[0] if event["kind"] == "notice"
    ]


def test_a_metric_that_is_lost_until_the_end_is_told(bench: Bench) -> None:
    bench.run(bench.plan(_LOG_LOST_FIGURES))
    assert bench.exit()["exit_code"] == 0
    assert notices(bench) == ["metric `loss` is NaN from step 2 on"]


def test_a_gpu_that_is_asked_for_and_not_there_is_told(bench: Bench) -> None:
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a GPU")
    bench.run(bench.plan("true --device cuda"))
    assert notices(bench) == [
        "the command asks for a GPU (`--device cuda`), but no GPU was used: this node has none"
    ]


def test_a_job_that_does_nothing_is_told_nothing(bench: Bench) -> None:
    bench.run(bench.plan("true"))
    assert notices(bench) == []
