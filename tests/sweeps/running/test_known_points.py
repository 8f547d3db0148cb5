"""Sweeps that begin with known good points, and sweeps with several objectives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sweeps.running.sweep_lab import SweepLab
from torchyard.base.errors import InvalidSpec
from torchyard.jobs import actions as jobs
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.types import Status
from torchyard.sweeps.records.types import Outcome

LIMITS = {"max_total_trials": 8, "max_concurrent_trials": 2}
TWO = [
    {"primary_metric": "loss", "goal": "minimize"},
    {"primary_metric": "size", "goal": "maximize"},
]


def _lr(parameters: Mapping[str, Any]) -> float:
    return float(parameters["lr"])


def _rates(lab: SweepLab) -> list[float]:
    return [_lr(trial.parameters) for trial in lab.trials]


def test_a_list_of_points_is_run_first(lab: SweepLab) -> None:
    lab.create(torchyard={"warm_start": [{"lr": 0.05}, {"lr": 0.02}]})
    lab.run(_lr)
    assert _rates(lab)[:2] == [0.05, 0.02] and len(set(_rates(lab))) == 4


def test_the_best_points_of_an_earlier_sweep_are_run_first(lab: SweepLab) -> None:
    lab.create(name="first", limits=LIMITS)
    lab.run(_lr)
    best = sorted(_rates(lab))
    lab.create(limits=LIMITS, sampling_algorithm="random", torchyard={"warm_start": "first"})
    lab.run(_lr)
    rates = _rates(lab)
    assert rates[:2] == best[:2], "a quarter of 8 trials"
    assert not set(rates[2:]) & set(best[:2])


def test_points_of_an_earlier_sweep_are_the_same_after_a_kill(lab: SweepLab) -> None:
    lab.create(name="first", limits=LIMITS)
    lab.run(_lr)
    best = max(_rates(lab))
    goal = {"goal": "maximize", "primary_metric": "loss"}
    settings = {"warm_start": "first", "seed": 8}
    lab.create(objective=goal, sampling_algorithm="random", torchyard=settings)
    lab.round()
    lab.kill()
    lab.run(_lr)
    assert _rates(lab).count(best) == 1 and _rates(lab)[0] == best


def test_points_outside_of_the_space_are_left_out(lab: SweepLab) -> None:
    lab.create(name="first", limits=LIMITS)
    lab.run(_lr)
    outside = {"lr": {"type": "uniform", "min_value": 1.0, "max_value": 2.0}}
    lab.create(search_space=outside, torchyard={"warm_start": "first"})
    lab.run(_lr)
    assert min(_rates(lab)) >= 1.0


def test_an_earlier_sweep_that_is_missing_is_refused(lab: SweepLab) -> None:
    with pytest.raises(InvalidSpec, match="sweep `nowhere` does not exist") as caught:
        lab.create(torchyard={"warm_start": "nowhere"})
    assert caught.value.at == ("torchyard", "warm_start")


@pytest.mark.parametrize("sampler", ["random", "nsgaii"])
def test_of_several_objectives_each_trial_has_the_last_values(lab: SweepLab, sampler: str) -> None:
    if sampler == "nsgaii":
        pytest.importorskip("optuna")
    lab.create(
        objective=None,
        sampling_algorithm=None,
        limits={"max_total_trials": 6, "max_concurrent_trials": 2},
        torchyard={"objectives": TWO, "sampler": sampler, "seed": 5},
    )
    for _ in range(30):
        lab.round()
        if lab.status().ended:
            break
        for number in lab.running():
            rate = _lr(lab.trials[number].parameters)
            lab.log(number, [rate / 2, rate])
            lab.end(number, 1.0, 1 - rate, key="size")
    assert lab.status() is Status.COMPLETED
    assert [trial.values for trial in lab.trials] == [(rate, 1 - rate) for rate in _rates(lab)]
    best = min(lab.trials, key=lambda trial: trial.values[0])
    assert lab.sweep.properties["best_child_run_id"] == best.name


def test_a_trial_without_its_second_objective_has_no_value(lab: SweepLab) -> None:
    lab.create(objective=None, torchyard={"objectives": TWO})
    lab.round()
    lab.end(0, 0.5)
    lab.log(1, [0.4])
    lab.end(1, 2.0, key="size")
    lab.round()
    assert [trial.outcome for trial in lab.trials[:2]] == [Outcome.COMPLETED] * 2
    assert lab.trials[0].values == ()
    assert lab.trials[0].reason == "it logged no value of `size`; it logged `loss`"
    (notice,) = notices_of(jobs.events(lab.services.db, lab.sweep))
    assert notice.startswith("trial `tuning_0` ended and logged no `size`; it logged `loss`")
    assert lab.trials[1].values == (0.4, 2.0)
