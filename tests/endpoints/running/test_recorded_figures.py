"""Figures of a deployment as metrics of an instance's job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from torchyard.endpoints.records.types import Instance, InstanceState
from torchyard.endpoints.running.measuring import Figures
from torchyard.endpoints.running.steps import Steps
from workspaces.served import HERE, JOB, Served, served

_FIGURES = Figures(60, 2.0, 3, 1.5, 4.0, 9.0)


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path, database_url) as made:
        yield made


def instance(site: Served, number: int, state: InstanceState, revision: int = 1) -> Instance:
    name = f"birds-blue-{revision}-{number}"
    site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": name})
    now = site.parts.services.clock.now()
    key = ("default", "birds", "blue", revision, number, name)
    return Instance(*key, state, "/socket", "", now)


def metrics_of(site: Served, job: Instance) -> dict[str, float]:
    metrics = site.ok("dan", "GET", f"{HERE}/jobs/{job.job}/metrics")["value"]
    return {each["key"]: each["value"] for each in metrics}


def test_figures_are_metrics_of_the_first_instance_that_answers(site: Served) -> None:
    there = [
        instance(site, 0, InstanceState.STARTING),
        instance(site, 1, InstanceState.READY),
        instance(site, 2, InstanceState.READY),
    ]
    steps = Steps(site.parts.services)
    steps.record(there, _FIGURES)
    assert metrics_of(site, there[1]) == vars(_FIGURES)
    assert metrics_of(site, there[0]) == metrics_of(site, there[2]) == {}
    # The next revision's, as soon as one of it answers.
    later = instance(site, 0, InstanceState.READY, revision=2)
    steps.record([*there, later], _FIGURES)
    assert metrics_of(site, later) == vars(_FIGURES)


def test_without_an_instance_that_answers_nothing_is_logged(site: Served) -> None:
    there = [instance(site, 0, InstanceState.DRAINING)]
    Steps(site.parts.services).record(there, _FIGURES)
    assert metrics_of(site, there[0]) == {}
