"""Lists, changes, archive: what people do with existing jobs."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.support import WORKSPACE, again, submit
from torchyard.base.errors import Conflict, InvalidInput, InvalidSpec, NotFound
from torchyard.jobs import actions
from torchyard.jobs.records.types import Status
from torchyard.jobs.requests import job_queries, runs
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services


def listed(services: Services, **filters: Any) -> list[str]:
    return [job.name for job in job_queries.list_in(services, WORKSPACE, **filters)]


def test_an_archived_job_is_hidden_and_found_by_name(services: Services) -> None:
    for name in ("one", "two"):
        submit(services, name=name)
    with pytest.raises(Conflict, match="one"):
        actions.archive(services, WORKSPACE, "one")
    actions.cancel(services, WORKSPACE, "one")
    assert actions.archive(services, WORKSPACE, "one").archived
    assert listed(services, archived=False) == ["two"]
    assert listed(services, archived=True) == ["one"]
    assert listed(services, archived=None) == ["two", "one"]
    assert actions.get(services, WORKSPACE, "one").archived
    assert not actions.archive(services, WORKSPACE, "one", archived=False).archived
    assert listed(services, archived=False) == ["two", "one"]


def test_lists_are_filtered_by_tag(services: Services) -> None:
    submit(services, name="a", tags={"team": "vision", "x.y z": 1})
    submit(services, name="b", tags={"team": "speech"})
    submit(services, name="c")
    assert listed(services, tags=["team"]) == ["b", "a"]
    assert listed(services, tags=["team=vision"]) == ["a"]
    assert listed(services, tags=["team=vision", "x.y z=1"]) == ["a"]
    assert listed(services, tags=["team=vision", "x=1"]) == []
    with pytest.raises(InvalidInput):
        listed(services, tags=["=x"])
    with pytest.raises(NotFound):
        listed(services, parent="none")


def test_name_description_and_tags_may_change(services: Services) -> None:
    submit(services, name="job", tags={"a": "1", "b": "2"}, description="old")
    changed = actions.update(
        services, WORKSPACE, "job",
        {"display_name": "A name", "description": "new", "tags": {"a": None, "c": 3}},
    )  # fmt: skip
    assert (changed.display_name, changed.description) == ("A name", "new")
    assert changed.tags == {"b": "2", "c": "3"}
    assert actions.update(services, WORKSPACE, "job", {"display_name": ""}).display_name == "job"
    for change, at in (
        ({"command": "x"}, ("command",)),
        ({"displayname": "x"}, ("displayname",)),
        ({"display_name": 5}, ("display_name",)),
        ({"display_name": "x" * 300}, ("display_name",)),
        ({"tags": ["a"]}, ("tags",)),
        ({"tags": {"a": [1]}}, ("tags", "a")),
    ):
        with pytest.raises(InvalidSpec) as refused:
            actions.update(services, WORKSPACE, "job", change)
        assert refused.value.at == at
    assert actions.get(services, WORKSPACE, "job") == actions.update(services, WORKSPACE, "job", {})


def test_a_job_that_has_begun_stays_in_its_experiment_until_it_ends(
    services: Services, scheduler: Scheduler
) -> None:
    """Its script knows the experiment by its environment."""
    job = submit(services, name="job", experiment_name="first")
    early = actions.update(services, WORKSPACE, "job", {"experiment_name": "early"})
    assert early.experiment_name == "early" and not early.status.ended
    scheduler.run_round()
    assert again(services, job).status is Status.STARTING
    with pytest.raises(Conflict, match="is Starting and can't move"):
        actions.update(services, WORKSPACE, "job", {"experiment_name": "second"})
    assert actions.get(services, WORKSPACE, "job").experiment_name == "early"


def test_an_ended_job_moves_to_another_experiment(services: Services) -> None:
    submit(services, name="job", experiment_name="first")
    changes = {"experiment_name": "second"}
    actions.cancel(services, WORKSPACE, "job")
    assert actions.update(services, WORKSPACE, "job", changes).experiment_name == "second"
    moved = job_queries.list_in(services, WORKSPACE, experiment_name="second")
    assert [job.name for job in moved] == ["job"]
    assert job_queries.list_in(services, WORKSPACE, experiment_name="first") == []
    spaces = {"experiment_name": "updated experiment name"}
    assert actions.update(services, WORKSPACE, "job", spaces).experiment_name.endswith("t name")
    assert submit(services, name="twin", **spaces).experiment_name == spaces["experiment_name"]
    for wrong in (" a", "a ", "a\tb", "-a"):
        with pytest.raises(InvalidSpec):
            actions.update(services, WORKSPACE, "job", {"experiment_name": wrong})


def test_the_document_makes_the_job_again(services: Services) -> None:
    job = submit(services, name="job", tags={"a": "1"}, **{"$schema": "x"})
    document = actions.document(services, WORKSPACE, "job")
    assert "name" not in document and document["command"] == "true"
    twin = submit(services, **document)
    assert (twin.document, twin.tags) == (job.document, job.tags) and twin.name != job.name


def test_experiments_count_their_jobs(services: Services) -> None:
    for name, experiment in (("a", "x"), ("b", "x"), ("c", "y")):
        submit(services, name=name, experiment_name=experiment)
    by_name = {run.name: run.id for run in runs.experiments(services.db, WORKSPACE)}
    counts = runs.job_counts(services.db, WORKSPACE)
    assert {name: counts[number][0] for name, number in by_name.items()} == {"x": 2, "y": 1}
