"""Sweeps of real trials: what they find, what ends them early, and a server that is killed.

The long form, 100 kills during 60 trials, runs with `-m long`.
"""

from __future__ import annotations

import csv
import io
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from end_to_end.yard_under_test import Yard, wait_until
from torchyard import Client, command
from torchyard.base.errors import InvalidInput
from torchyard.base.settings import Settings

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(600)]

TRAIN = """
import json, math, os, sys, time, urllib.request

def log(value, step):
    point = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": "loss", "value": value, "step": step,
             "timestamp": int(time.time() * 1000)}
    head = {"Content-Type": "application/json",
            "Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]}
    url = os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/log-metric"
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(point).encode(), head)).read()

lr, mode = float(sys.argv[1]), sys.argv[2]
if mode == "fail" and lr > 0.05:
    sys.exit(3)
for step in range(int(sys.argv[3])):
    value = (lr - 0.03) ** 2 + 1 / (step + 1)
    if mode == "diverge" and lr > 0.05 and step == 1:
        value = float("nan")
    log(value, step)
    time.sleep(float(sys.argv[4]))
print("done", lr)
"""


def _sweep(
    name: str, mode: str = "plain", steps: int = 2, pause_s: float = 0.0, **more: Any
) -> Any:
    return {
        "type": "sweep",
        "name": name,
        "trial": {
            "command": f"python train.py ${{{{search_space.lr}}}} {mode} {steps} {pause_s}",
            "code": "code",
            "environment": "python",
        },
        "search_space": {"lr": {"type": "uniform", "min_value": 0.01, "max_value": 0.1}},
        "sampling_algorithm": {"type": "random", "seed": 5},
        "objective": {"goal": "minimize", "primary_metric": "loss"},
        "limits": {"max_total_trials": 6, "max_concurrent_trials": 2},
        **more,
    }


@pytest.fixture
def write_sweep(tmp_path: Path) -> Callable[..., str]:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(TRAIN)

    def write(*arguments: Any, **more: Any) -> str:
        file = tmp_path / "sweep.yml"
        file.write_text(yaml.safe_dump(_sweep(*arguments, **more)))
        return str(file)

    return write


def _trials(yard: Yard, name: str) -> list[dict[str, Any]]:
    trials: list[dict[str, Any]] = yard.get(f"sweeps/{name}/trials")["trials"]
    return trials


@pytest.mark.smoke
def test_a_sweep_finds_its_best_trial(yard: Yard, write_sweep: Callable[..., str]) -> None:
    streamed = yard("job", "create", "-f", write_sweep("found"), "--stream")
    assert "trial found_0 is created: lr=" in streamed
    job = yard.completed("found")
    trials = _trials(yard, "found")
    assert [trial["name"] for trial in trials] == [f"found_{n}" for n in range(6)]
    best = min(trials, key=lambda trial: (trial["parameters"]["lr"] - 0.03) ** 2)
    assert job["properties"]["best_child_run_id"] == best["name"]
    assert best["values"] == [pytest.approx((best["parameters"]["lr"] - 0.03) ** 2 + 0.5)]
    shown = yard("job", "show", "-n", "found", "--plot")
    assert f"Best    {best['name']}" in shown and "Parallel coordinates" in shown
    children = json.loads(yard("job", "list", "-p", "found", "-o", "json"))
    assert {child["name"] for child in children} == {trial["name"] for trial in trials}
    made = yard.read("sweeps/found/trials.csv").decode()
    rows = list(csv.DictReader(io.StringIO(made)))
    assert len(rows) == 6 and float(rows[0]["parameters.lr"]) == trials[0]["parameters"]["lr"]


def test_a_sweep_in_python_goes_on_and_is_a_frame(
    yard: Yard, write_sweep: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sweep("unused")
    monkeypatch.chdir(tmp_path)
    job = command(
        command="python train.py ${{search_space.lr}} plain 2 0", code="code", environment="python"
    )
    with Client(settings=Settings(yard.home), workspace="default", start=False) as client:
        space = {"lr": "uniform:0.01,0.1"}
        sweep = client.sweeps.create(
            job, space, "minimize:loss", trials=2, concurrent=2, seed=5, name="from-python"
        )
        assert sweep.wait().status == "Completed"
        assert client.sweeps.extend(sweep.name, 3).wait().status == "Completed"
        trials = client.sweeps.trials(sweep.name)
        assert trials.best is not None
        frame = trials.to_pandas()
        assert list(frame["name"]) == [f"from-python_{number}" for number in range(3)]
        assert frame["loss"].idxmin() == trials.best.number
        assert client.sweeps.trials_csv(sweep.name).startswith(b"number,")
        assert client.sweeps.rungs(sweep.name) == []
        assert set(client.sweeps.importances(sweep.name)[0]) <= {"lr"}
        with pytest.raises(InvalidInput, match="loss"):
            client.sweeps.create(job, space, "best:loss", trials=2)


def test_failing_and_diverging_trials_do_not_end_a_sweep(
    yard: Yard, write_sweep: Callable[..., str]
) -> None:
    for mode, outcome in (("fail", "failed"), ("diverge", "completed")):
        yard("job", "create", "-f", write_sweep(mode, mode, 3, 0.3))
        yard.completed(mode)
        ends = {t["outcome"] for t in _trials(yard, mode) if t["parameters"]["lr"] > 0.05}
        assert ends == {outcome}
        others = {t["outcome"] for t in _trials(yard, mode) if t["parameters"]["lr"] <= 0.05}
        assert others == {"completed"}


def test_bandit_stops_a_trial_soon_and_says_why(
    yard: Yard, write_sweep: Callable[..., str]
) -> None:
    policy = {"type": "bandit", "slack_amount": 0.0001, "evaluation_interval": 1}
    yard("job", "create", "-f", write_sweep("strict", "plain", 60, 0.1, early_termination=policy))
    wait_until(lambda: any(t["reason"] for t in _trials(yard, "strict")), 120, "a trial is stopped")
    stopped = next(t for t in _trials(yard, "strict") if t["reason"])
    job = yard.wait(stopped["name"])
    assert job["status"] == "Canceled" and job["error"]["message"] == stopped["reason"]
    yard("job", "cancel", "-n", "strict")
    assert yard.wait("strict")["status"] == "Canceled"
    assert {yard.job(t["name"])["status"] for t in _trials(yard, "strict")} <= {
        "Canceled",
        "Completed",
    }


def test_a_killed_server_changes_no_trial(yard: Yard, write_sweep: Callable[..., str]) -> None:
    _kill_during(yard, write_sweep, trials=12, kills=6)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_hundred_kills_change_no_trial(yard: Yard, write_sweep: Callable[..., str]) -> None:
    _kill_during(yard, write_sweep, trials=60, kills=100)


def _kill_during(yard: Yard, write_sweep: Callable[..., str], trials: int, kills: int) -> None:
    """Compare sweeps, of which as many as it takes for the kills, with one that nobody disturbs."""
    limits = {"max_total_trials": trials, "max_concurrent_trials": 3}
    yard("job", "create", "-f", write_sweep(f"calm{trials}", limits=limits))
    yard.completed(f"calm{trials}")
    expected = [t["parameters"] for t in _trials(yard, f"calm{trials}")]
    pauses, done, sweeps = random.Random(1), 0, 0
    while done < kills:
        name = f"shaken{trials}-{sweeps}"
        yard("job", "create", "-f", write_sweep(name, "plain", 3, 0.2, limits=limits))
        before = done
        while done < kills and yard.job(name)["status"] not in ("Completed", "Failed"):
            time.sleep(pauses.uniform(0.0, 1.0))
            yard.kill_server()
            yard("job", "list")  # starts the next one
            done += 1
        assert done > before, "a sweep ended before a single kill"
        yard.completed(name, timeout_s=1200)
        _check_trials(yard, name, expected)
        sweeps += 1
        print(f"{done} kills of the server during {sweeps} sweeps of {trials} trials", flush=True)


def _check_trials(yard: Yard, name: str, expected: list[dict[str, Any]]) -> None:
    """None is lost, doubled, or another than in the sweep that nobody disturbed."""
    trials = _trials(yard, name)
    assert [t["parameters"] for t in trials] == expected
    assert [t["name"] for t in trials] == [f"{name}_{n}" for n in range(len(expected))]
    assert {t["outcome"] for t in trials} == {"completed"}
    children = json.loads(yard("job", "list", "-p", name, "--all-results", "true", "-o", "json"))
    assert {child["name"] for child in children} == {t["name"] for t in trials}
    assert len(children) == len(trials)
