"""A compute instance whose owner is removed: its schedule and a restart start nothing any more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchyard.instances import actions, store
from torchyard.instances.keeper import Keeper
from torchyard.instances.types import STOPPED, Instance
from torchyard.jobs import actions as jobs
from torchyard.workspaces import rights
from workspaces.served import HERE, Served, served

LAB = f"{HERE}/instances/carls-lab"
DOCUMENT = {"type": "computeinstance", "torchyard": {"environment": "python"}}


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path, database_url) as made:
        made.ok("carl", "PUT", LAB, DOCUMENT)
        yield made


def instance(site: Served) -> Instance:
    return actions.get(site.parts.services.db, "default", "carls-lab")


def job_names(site: Served) -> list[str]:
    return [row["name"] for row in site.ok("home", "GET", f"{HERE}/jobs")["value"]]


@pytest.mark.parametrize("state", ["Running", "restarting"])
def test_it_stops_says_why_and_is_not_started_again(site: Served, state: str) -> None:
    services = site.parts.services
    if state == "restarting":
        site.ok("carl", "POST", f"{LAB}/restart")
        assert instance(site).message == actions.RESTARTING
    assert job_names(site) == ["instance-carls-lab-1"]
    site.ok("home", "DELETE", "/v1/users/carl")
    keeper = Keeper(services)
    for _ in range(3):
        asyncio.run(keeper.round())
    job = jobs.get(services, "default", "instance-carls-lab-1")
    assert job.status.ended
    assert instance(site).state == STOPPED
    assert instance(site).message == rights.refusal("carl", "default").message
    assert job_names(site) == ["instance-carls-lab-1"]


def test_another_owner_starts_it_once_they_have_taken_it_over(site: Served) -> None:
    site.ok("home", "DELETE", "/v1/users/carl")
    asyncio.run(Keeper(site.parts.services).round())
    assert site.refused("olga", "POST", f"{LAB}/start")["code"] == rights.CODE
    changed = {**DOCUMENT, "torchyard": {"environment": {"pip_requirements": ["six"]}}}
    assert site.refused("olga", "PUT", LAB, changed)["code"] == "must_take_over"
    taken = {**DOCUMENT, "torchyard": {**DOCUMENT["torchyard"], "take_over": True}}  # type: ignore[dict-item]
    assert site.ok("olga", "PUT", LAB, taken)["owner"] == "olga"
    assert site.ok("olga", "POST", f"{LAB}/start")["owner"] == "olga"
    with site.parts.services.db.read() as connection:
        assert store.get(connection, "default", "carls-lab") is not None
    assert len(job_names(site)) == 2
