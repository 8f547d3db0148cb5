from __future__ import annotations

import importlib.util
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from torchyard.base.errors import Internal, InvalidSpec, Timeout
from torchyard.sweeps.search.search import KnownTrial, Search, needed
from torchyard.sweeps.spec.search_space import contains
from torchyard.sweeps.spec.sweep_spec import SweepSpec, read

needs_optuna = pytest.mark.skipif(
    importlib.util.find_spec("optuna") is None, reason="optuna is not installed"
)

FLAT = {
    "x": {"type": "uniform", "min_value": -5, "max_value": 10},
    "lr": {"type": "loguniform", "min_value": -7, "max_value": 0},
    "act": {"type": "choice", "values": ["relu", "tanh", "gelu"]},
    "n": {"type": "randint", "upper": 20},
}
NESTED: dict[str, Any] = {
    **FLAT,
    "model": {
        "type": "choice",
        "values": [
            {"kind": "a", "w": {"type": "quniform", "min_value": 0, "max_value": 1, "q": 0.1}},
            {"kind": "b", "z": {"type": "normal", "mu": 0, "sigma": 1}},
            "none",
        ],
    },
}


def sweep(
    sampler: str,
    trials: int = 25,
    at_once: int = 1,
    space: dict[str, Any] = FLAT,
    seed: int | None = 3,
    **settings: Any,
) -> SweepSpec:
    words = " ".join(f"${{{{search_space.{name}}}}}" for name in space)
    seeds = {} if seed is None else {"seed": seed}
    return read(
        {
            "type": "sweep",
            "trial": {"command": f"train {words}", "environment": "python"},
            "search_space": space,
            "objective": {"goal": "minimize", "primary_metric": "loss"},
            "limits": {"max_total_trials": trials, "max_concurrent_trials": at_once},
            "torchyard": {"sampler": sampler, **seeds, **settings},
        }
    )


def loss(point: dict[str, Any]) -> float:
    bonus = {"relu": 0.0, "tanh": 1.0, "gelu": 2.0}[point["act"]]
    return float((point["x"] - 1) ** 2 + math.log(point["lr"]) ** 2 + bonus + abs(point["n"] - 7))


def ended(number: int, point: dict[str, Any], objectives: int = 1) -> KnownTrial:
    if number % 7 == 5:
        return KnownTrial(number, point, "failed")
    if number % 7 == 6:
        return KnownTrial(number, point, "completed", (math.nan,) * objectives)
    if number % 7 == 4 and objectives == 1:
        return KnownTrial(number, point, "stopped", (loss(point),), 3)
    return KnownTrial(number, point, "completed", (loss(point), -point["x"])[:objectives])


def run(spec: SweepSpec, search: Search, kills: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """Trials end in order, as soon as `max_concurrent_trials` are there."""
    points: list[dict[str, Any]] = []
    trials: list[KnownTrial] = []
    for number in range(spec.limits.max_total_trials):
        if number in kills:
            search.close()
        point = search.suggest(spec, number, trials, key="sweep")
        assert point is not None
        points.append(point)
        trials.append(KnownTrial(number, point, "running"))
        oldest = number + 1 - spec.limits.max_concurrent_trials
        if oldest >= 0:
            trials[oldest] = ended(oldest, points[oldest], len(spec.objectives))
    return points


@pytest.fixture
def search() -> Iterator[Search]:
    search = Search()
    yield search
    search.close()


@needs_optuna
def test_tpe_suggests_what_plain_optuna_does(search: Search) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial: optuna.Trial) -> float:
        return loss(
            {
                "x": trial.suggest_float("x", -5, 10),
                "lr": trial.suggest_float("lr", math.exp(-7), 1, log=True),
                "act": trial.suggest_categorical("act", ["relu", "tanh", "gelu"]),
                "n": trial.suggest_int("n", 0, 19),
            }
        )

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=3))
    study.optimize(objective, n_trials=25)
    spec = sweep("tpe")
    trials: list[KnownTrial] = []
    for number in range(25):
        point: Any = search.suggest(spec, number, trials, key="sweep")
        trials.append(KnownTrial(number, point, "completed", (loss(point),)))
    assert [trial.parameters for trial in trials] == [trial.params for trial in study.trials]


@needs_optuna
@pytest.mark.parametrize(
    "sampler",
    [
        "tpe",
        pytest.param("cmaes", marks=pytest.mark.slow),
        pytest.param("nsgaii", marks=pytest.mark.slow),
        pytest.param("qmc", marks=pytest.mark.slow),
    ],
)
def test_a_killed_search_suggests_what_it_would_have(sampler: str, search: Search) -> None:
    spec = sweep(sampler, 20, at_once=3, space=NESTED)
    points = run(spec, search)
    search.close()
    assert run(spec, search, kills=(16,)) == points
    assert all(contains(spec.space, point) for point in points)
    assert len({repr(point) for point in points}) > 15


@needs_optuna
def test_trials_that_ended_too_early_do_not_change_a_suggestion(search: Search) -> None:
    spec = sweep("tpe", 21, at_once=4)
    points = run(spec, search)
    assert needed(spec, 2) == range(0) and needed(spec, 20) == range(17)
    search.close()
    # All have ended; those that are not needed are passed over.
    trials = [ended(number, point) for number, point in enumerate(points[:20])]
    assert search.suggest(spec, 20, trials, key="sweep") == points[20]
    assert search.suggest(spec, 20, trials, key="sweep") == points[20]


@needs_optuna
def test_several_objectives_and_constraints_are_told(search: Search) -> None:
    objectives = [{"goal": "maximize", "primary_metric": "accuracy"}]
    spec = sweep("tpe", 14, objectives=objectives, constraints=["memory"])
    trials: list[KnownTrial] = []
    for number in range(14):
        point: Any = search.suggest(spec, number, trials, key="sweep")
        values = (loss(point), point["x"])
        trials.append(KnownTrial(number, point, "completed", values, 0, (point["x"] - 2,)))
    assert len(trials) == 14


@needs_optuna
def test_points_to_begin_with_come_first_and_are_learnt_from(search: Search) -> None:
    first = {"x": 1.0, "lr": 0.9, "act": "relu", "n": 7}
    spec = sweep("tpe", 14, warm_start=[first])
    assert run(spec, search)[0] == first


@needs_optuna
def test_trials_of_an_earlier_sweep_are_learnt_from(search: Search) -> None:
    spec = sweep("tpe", 3)
    center = {"x": 1.0, "lr": 1.0, "act": "relu", "n": 7}
    points: list[dict[str, Any]] = [{**center, "x": 1.0 + number / 50} for number in range(30)] + [
        {"x": 9.0, "lr": 0.001, "act": "gelu", "n": 19}
    ] * 10
    earlier = [KnownTrial(n, point, "completed", (loss(point),)) for n, point in enumerate(points)]
    outside = KnownTrial(99, {"x": 99.0}, "completed", (0.0,))
    point: Any = search.suggest(spec, 0, [], key="sweep", earlier=[*earlier, outside])
    assert abs(point["x"] - 1) < 3 and point["act"] == "relu"


@needs_optuna
def test_a_process_that_was_killed_is_replaced_in_the_middle(search: Search) -> None:
    spec = sweep("tpe", 12)
    points = run(spec, search)
    trials = [ended(number, point) for number, point in enumerate(points)]
    _, process = search._processes["sweep"]
    assert process._process is not None
    os.kill(process._process.pid, signal.SIGKILL)
    assert search.suggest(spec, 11, trials[:11], key="sweep") == points[11]


def test_random_and_grid_need_no_process(search: Search) -> None:
    for sampler in ("random", "sobol"):
        search.check(sweep(sampler))
        assert run(sweep(sampler), search) == run(sweep(sampler), search)
    finite = {name: FLAT[name] for name in ("act", "n")}
    spec = sweep("grid", space=finite, warm_start=[{"act": "gelu", "n": 3}])
    assert search.suggest(spec, 0, []) == {"act": "gelu", "n": 3}
    assert search.suggest(spec, 1, []) == {"act": "relu", "n": 0}
    assert search.suggest(spec, 61, []) is None
    assert not search._processes


def test_the_server_does_not_import_optuna() -> None:
    program = (
        "import sys, torchyard.sweeps.search.search; "
        "print([name for name in ('optuna', 'scipy', 'torch', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_what_is_not_installed_is_told_at_submission(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", missing)
    search.check(sweep("random"))
    with pytest.raises(InvalidSpec, match="needs optuna") as error:
        search.check(sweep("tpe"))
    assert "torchyard[sweeps]" in error.value.hint
    assert error.value.code == "extra_missing"


@pytest.mark.parametrize(
    ("program", "error", "words"),
    [
        ("import time; time.sleep(60)", Timeout, "did not answer"),
        ("", Internal, "ended"),
        (
            "import json; input(); print(json.dumps({'error': 'ValueError: no'}))",
            Internal,
            "ValueError: no",
        ),
    ],
)
def test_a_sampler_that_fails_is_told_in_time(
    program: str,
    error: type[Exception],
    words: str,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in = tmp_path / "python"
    code = program.replace("input()", "import sys; sys.stdin.buffer.read(1)")
    stand_in.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S -c "{code}"\n')
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    search = Search(timeout_s=1.0 if error is Timeout else 60.0)
    with pytest.raises(error, match=words):
        search.suggest(sweep("tpe"), 0, [], key="sweep")
    search.close()


def test_known_trials_are_needed_only_with_a_seed_and_a_search_that_learns() -> None:
    assert needed(sweep("tpe", at_once=2), 5) == range(4)
    assert needed(sweep("random"), 5) == range(0)
    assert needed(sweep("tpe", seed=None), 5) == range(0)
    first = {"x": 1.0, "lr": 0.9, "act": "relu", "n": 7}
    assert needed(sweep("tpe", warm_start=[first] * 3), 2) == range(0)


@needs_optuna
def test_without_a_seed_whatever_has_ended_is_learnt_from(search: Search) -> None:
    spec = sweep("tpe", 14, at_once=4, seed=None).with_seed(11)
    points = run(spec, search, kills=(6,))
    assert all(contains(spec.space, point) for point in points)
    assert len({repr(point) for point in points}) == 14
