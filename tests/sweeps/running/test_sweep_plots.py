"""Importances and tables of trials, of functions whose answer is known."""

from __future__ import annotations

import json
import math
import random
import re
from typing import Any

import click
import pytest

from sweeps.running.sweep_lab import SWEEP, SweepLab
from torchyard.base.clock import from_text
from torchyard.cli.jobs import sweep_page
from torchyard.client.trials.trials import rungs_from_json, sweep_trials_from_json
from torchyard.sweeps.http import routes
from torchyard.sweeps.records.types import Outcome, Trial
from torchyard.sweeps.running.sweep_plots import importances
from torchyard.sweeps.spec.sweep_spec import SweepSpec, read

NOW = from_text("2026-01-01T00:00:00Z")
SPACE = {
    "lr": {"type": "uniform", "min_value": 0.0, "max_value": 1.0},
    "noise": {"type": "uniform", "min_value": 0.0, "max_value": 1.0},
    "kind": {"type": "choice", "values": ["a", "b"]},
}


def _spec(goal: str = "minimize") -> SweepSpec:
    command = "train ${{search_space.lr}} ${{search_space.noise}} ${{search_space.kind}}"
    objective = {"goal": goal, "primary_metric": "loss"}
    trial = {"command": command, "environment": "python"}
    return read({**SWEEP, "trial": trial, "search_space": SPACE, "objective": objective})


def _trials(loss: Any, count: int = 60) -> list[Trial]:
    chance = random.Random(3)
    trials = []
    for number in range(count):
        point = {"lr": chance.random(), "noise": chance.random(), "kind": chance.choice("ab")}
        values = (float(loss(point)),)
        outcome = Outcome.COMPLETED
        trials.append(Trial(number, f"t_{number}", point, NOW, outcome, values))
    return trials


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_the_only_parameter_that_matters_has_all_the_importance(goal: str) -> None:
    pytest.importorskip("optuna")
    sign = 1 if goal == "minimize" else -1
    trials = _trials(lambda point: sign * (point["lr"] - 0.5) ** 2)
    values, missing = importances(_spec(goal), trials)
    assert missing == "" and next(iter(values)) == "lr"
    assert values["lr"] > 0.9 and values["noise"] < 0.1 and values["kind"] < 0.1
    assert math.isclose(sum(values.values()), 1.0)


def test_a_choice_can_be_what_matters() -> None:
    pytest.importorskip("optuna")
    values, _ = importances(_spec(), _trials(lambda point: float(point["kind"] == "a")))
    assert values["kind"] > 0.7


def test_too_few_trials_have_no_importances() -> None:
    pytest.importorskip("optuna")
    values, missing = importances(_spec(), _trials(lambda point: point["lr"], count=3))
    assert values == {} and "4 trials or more" in missing


def body_of(lab: SweepLab) -> dict[str, Any]:
    """The sweep as a client reads it."""
    body: dict[str, Any] = json.loads(json.dumps(routes.sweep_json(lab.services, lab.sweep)))
    return body


def test_trials_are_a_table_of_pandas(lab: SweepLab) -> None:
    pytest.importorskip("pandas")
    lab.create()
    lab.round()
    lab.fail(1)
    lab.run(lambda parameters: float(parameters["lr"]))
    shown = sweep_trials_from_json(body_of(lab))
    frame = shown.to_pandas()
    assert list(frame.index) == [0, 1, 2, 3] and frame.index.name == "number"
    assert list(frame["name"]) == [f"tuning_{number}" for number in range(4)]
    rates = [trial.parameters["lr"] for trial in lab.trials]
    assert list(frame["parameters.lr"]) == rates
    assert list(frame["outcome"]) == ["completed", "failed", "completed", "completed"]
    assert math.isnan(frame["loss"][1])
    assert [frame["loss"][number] for number in (0, 2, 3)] == [rates[n] for n in (0, 2, 3)]
    assert shown.best is not None and frame["loss"].idxmin() == shown.best.number


def test_the_page_says_which_of_a_trials_values_it_shows(lab: SweepLab) -> None:
    lab.create()
    lab.round()
    lab.run(lambda parameters: float(parameters["lr"]))
    body = body_of(lab)
    page = click.unstyle(sweep_page.page(sweep_trials_from_json(body)))
    assert re.search(r"^TRIAL +STATUS +best loss ", page, re.M), page
    assert re.search(r"^Best +tuning_\d, best loss ", page, re.M), page
    # Of several objectives a trial's values are its last ones.
    several = sweep_trials_from_json({**body, "objectives": 2 * body["objectives"]})
    page = click.unstyle(sweep_page.page(several))
    assert re.search(r"^TRIAL +STATUS +last loss ", page, re.M), page


def test_a_sweep_without_trials_is_an_empty_table(lab: SweepLab) -> None:
    pytest.importorskip("pandas")
    lab.create()
    shown = sweep_trials_from_json(body_of(lab))
    assert shown.to_pandas().empty and shown.best is None


def test_rungs_are_read_as_the_server_writes_them(lab: SweepLab) -> None:
    lab.create(
        limits={"max_total_trials": 3, "max_concurrent_trials": 3},
        early_termination={"type": "asha", "max_intervals": 3},
    )
    lab.round()
    for number in range(3):
        lab.log(number, [number / 10])
    lab.round()
    body = {"value": [routes.rung_json(lab.sweep, rung) for rung in lab.rungs]}
    rungs = rungs_from_json(body)
    assert [(r.trial, r.interval, r.value, r.rank, r.reached, r.decision) for r in rungs] == [
        ("tuning_0", 1, 0.0, 1, 3, "promoted"),
        ("tuning_1", 1, 0.1, 2, 3, "waiting"),
        ("tuning_2", 1, 0.2, 3, 3, "waiting"),
    ]
