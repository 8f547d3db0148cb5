"""Thousands of trials in one sweep: the list, the charts and the next suggestion.

    python benchmarks/sweep_large.py [--trials 5000] [--rounds 5]

The rows are made up and stored by torchyard's own stores; a `yard-server` is asked in plain HTTP,
and its whole answers are read. Beside it stands Optuna over the same trials in a SQLite file of its
own, loaded again each time, as its dashboard does. The suggestion is TPE's for the next trial: the
first one, with the process that knows all trials, and another. Needs `torchyard[sweeps]`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import optuna
from figures import YARD, clean_variables, progress, remove

from torchyard.app import application as apps
from torchyard.base.clock import SystemClock
from torchyard.jobs.history.history_records import Metric
from torchyard.jobs.records import store
from torchyard.jobs.records.types import NewJob, Status
from torchyard.jobs.requests import parents, runs
from torchyard.sweeps.records import known_trials, trial_store
from torchyard.sweeps.records.trial_store import SweepRow
from torchyard.sweeps.records.types import Outcome, Trial
from torchyard.sweeps.search.search import KnownTrial, Search
from torchyard.sweeps.spec import sweep_spec
from torchyard.workspaces import people

NAME = "large"
_SERVER_S = 60


def document(trials: int) -> dict[str, Any]:
    return {
        "type": "sweep",
        "name": NAME,
        "trial": {
            "command": "train ${{search_space.lr}} ${{search_space.width}} ${{search_space.kind}}",
            "environment": "python",
        },
        "search_space": {
            "lr": {"type": "uniform", "min_value": 0.0, "max_value": 1.0},
            "width": {"type": "uniform", "min_value": 0.0, "max_value": 1.0},
            "kind": {"type": "choice", "values": ["sgd", "adam"]},
        },
        "objective": {"goal": "minimize", "primary_metric": "loss"},
        "limits": {"max_total_trials": trials + 2, "max_concurrent_trials": 1},
        "torchyard": {"sampler": "tpe", "seed": 1},
    }


def made_up(trials: int) -> list[Trial]:
    chance, moment = random.Random(1), SystemClock().now()
    made = []
    for number in range(trials):
        rate = chance.random()
        point: dict[str, Any] = {
            "lr": rate,
            "width": chance.random(),
            "kind": chance.choice(["sgd", "adam"]),
        }
        loss = (rate - 0.3) ** 2 + 0.01 * chance.random()
        made.append(
            Trial(
                number, f"{NAME}_{number}", point, moment, Outcome.COMPLETED, (loss,), intervals=1
            )
        )
    return made


def fill(home: Path, trials: list[Trial]) -> str:
    """A home with one sweep that has ended, and these trials; the token."""
    parts = apps.build(home, "http://127.0.0.1:1", {})
    services = parts.services
    experiment = runs.create_experiment(services, "default", "large", {})
    now = services.clock.now()
    new = NewJob(
        workspace="default",
        name=NAME,
        type=trial_store.TYPE,
        experiment_id=experiment.id,
        status=Status.COMPLETED,
        owner="me",
        display_name=NAME,
        document=document(len(trials)),
        created_at=now,
    )
    with services.db.write() as connection:
        token = people.home_token(connection, "me", now)
        sweep = parents.add(connection, new, ())
        trial_store.add_sweep(connection, SweepRow(sweep.id, len(trials) + 2, now, True))
        ids = []
        for trial in trials:
            child = replace(new, name=trial.name, type="command", parent=NAME, started_at=now)
            job = store.add_job(connection, child)
            trial_store.add_trial(connection, sweep.id, replace(trial, job_id=job.id))
            ids.append(job.id)
    for job_id, trial in zip(ids, trials, strict=True):
        services.history.append(job_id, [Metric("loss", 1000, 0, trial.values[0])])
    parts.scheduler.preparer.close()
    services.db.close()
    return token


def peer_file(folder: Path, trials: list[Trial]) -> str:
    url = f"sqlite:///{folder / 'optuna.db'}"
    study = optuna.create_study(storage=url, study_name=NAME)
    distributions: dict[str, Any] = {
        "lr": optuna.distributions.FloatDistribution(0.0, 1.0),
        "width": optuna.distributions.FloatDistribution(0.0, 1.0),
        "kind": optuna.distributions.CategoricalDistribution(["sgd", "adam"]),
    }
    study.add_trials(
        [
            optuna.trial.create_trial(
                params=dict(trial.parameters), distributions=distributions, value=trial.values[0]
            )
            for trial in trials
        ]
    )
    return url


def load(url: str, sampler: Any = None) -> optuna.Study:
    return optuna.load_study(study_name=NAME, storage=url, sampler=sampler)


def peer_cases(url: str) -> dict[str, Callable[[], Any]]:
    evaluate = optuna.importance.get_param_importances
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    sampler = optuna.samplers.TPESampler(seed=1)
    return {
        "list of all trials": lambda: len(load(url).get_trials()),
        "trials as CSV": lambda: load(url).trials_dataframe().to_csv(),
        "importances": lambda: evaluate(load(url), evaluator=evaluator),
        "suggestion, process started": partial(_asked, url, sampler),
        "suggestion, the next": partial(_asked, url, sampler),
    }


def _asked(url: str, sampler: Any) -> float:
    trial = load(url, sampler).ask()
    trial.suggest_float("lr", 0.0, 1.0)
    trial.suggest_float("width", 0.0, 1.0)
    return len(str(trial.suggest_categorical("kind", ["sgd", "adam"])))


def own_cases(ask: Callable[[str], bytes], trials: list[Trial]) -> dict[str, Callable[[], Any]]:
    spec = sweep_spec.read(document(len(trials)))
    known_before = known_trials.of(trials)
    search = Search()

    def in_new_process() -> Any:
        search.close()
        return search.suggest(spec, len(known_before), known_before, key=NAME)

    def following() -> Any:
        number = len(known_before)
        point: Any = search.suggest(spec, number, known_before, key=NAME)
        more = [*known_before, KnownTrial(number, point, "completed", (0.5,))]
        return search.suggest(spec, number + 1, more, key=NAME)

    base = f"/v1/workspaces/default/sweeps/{NAME}"
    return {
        "list of all trials": partial(ask, f"{base}/trials"),
        "trials as CSV": partial(ask, f"{base}/trials.csv"),
        "importances": partial(ask, f"{base}/importances"),
        "first page of its jobs": partial(ask, f"/v1/workspaces/default/jobs?parent={NAME}"),
        "the sweep itself": partial(ask, f"/v1/workspaces/default/jobs/{NAME}"),
        "suggestion, process started": in_new_process,
        "suggestion, the next": following,
    }


def measured(trials: list[Trial], rounds: int) -> dict[str, tuple[float, float | None]]:
    """By case, median milliseconds of ours and of Optuna, one after the other in each round."""
    folder = Path(tempfile.mkdtemp(prefix="torchyard-large-"))
    home = folder / "home"
    home.mkdir(mode=0o700)
    token, url = fill(home, trials), peer_file(folder, trials)
    variables = clean_variables(TORCHYARD_HOME=str(home))
    subprocess.run([YARD, "server", "start"], env=variables, check=True, capture_output=True)
    try:
        address = urlsplit(json.loads((home / "server.json").read_text())["url"])

        def ask(path: str) -> bytes:
            # A connection that was idle while Optuna was measured may have been closed.
            connection = http.client.HTTPConnection(address.netloc, timeout=_SERVER_S)
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            body = answer.read()
            connection.close()
            assert answer.status == 200, body
            return body

        cases, peers = own_cases(ask, trials), peer_cases(url)
        assert len(
            json.loads(ask(f"/v1/workspaces/default/sweeps/{NAME}/trials"))["trials"]
        ) == len(trials)
        times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in cases}
        for number in range(rounds):
            for name, call in cases.items():
                progress(f"round {number + 1} of {rounds}, {name}")
                times[name][0].append(_ms(call))
                if name in peers:
                    times[name][1].append(_ms(peers[name]))
        return {
            name: (statistics.median(a), statistics.median(b) if b else None)
            for name, (a, b) in times.items()
        }
    finally:
        subprocess.run([YARD, "server", "stop"], env=variables, capture_output=True)
        remove(folder)
        progress("")


def _ms(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    assert call()
    return (time.perf_counter() - begun) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print(f"\na sweep of {options.trials} trials, median ms of {options.rounds} rounds")
    print("| what | torchyard | Optuna | ours/this |\n|---|---|---|---|")
    for name, (own_ms, peer_ms) in measured(made_up(options.trials), options.rounds).items():
        peer = "| | |" if peer_ms is None else f"| {peer_ms:.0f} | {own_ms / peer_ms:.2f} |"
        print(f"| {name} | {own_ms:.0f} {peer}")


if __name__ == "__main__":
    main()
