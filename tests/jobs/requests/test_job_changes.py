"""Lists, changes, archive: what people do with jobs that exist."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.rooms import WORKSPACE, submit
from torchyard.base.errors import Conflict, InvalidInput, InvalidSpec, NotFound
from torchyard.jobs import actions
from torchyard.jobs.requests import runs
from torchyard.jobs.services import Room


def listed(room: Room, **filters: Any) -> list[str]:
    return [job.name for job in actions.list_in(room, WORKSPACE, **filters)]


def test_an_archived_job_is_hidden_and_found_by_name(room: Room) -> None:
    for name in ("one", "two"):
        submit(room, name=name)
    with pytest.raises(Conflict, match="one"):
        actions.archive(room, WORKSPACE, "one")
    actions.cancel(room, WORKSPACE, "one")
    assert actions.archive(room, WORKSPACE, "one").archived
    assert listed(room, archived=False) == ["two"]
    assert listed(room, archived=True) == ["one"]
    assert listed(room, archived=None) == ["two", "one"]
    assert actions.get(room, WORKSPACE, "one").archived
    assert not actions.archive(room, WORKSPACE, "one", archived=False).archived
    assert listed(room, archived=False) == ["two", "one"]


def test_lists_are_filtered_by_tag(room: Room) -> None:
    submit(room, name="a", tags={"team": "vision", "x.y z": 1})
    submit(room, name="b", tags={"team": "speech"})
    submit(room, name="c")
    assert listed(room, tags=["team"]) == ["b", "a"]
    assert listed(room, tags=["team=vision"]) == ["a"]
    assert listed(room, tags=["team=vision", "x.y z=1"]) == ["a"]
    assert listed(room, tags=["team=vision", "x=1"]) == []
    with pytest.raises(InvalidInput):
        listed(room, tags=["=x"])
    with pytest.raises(NotFound):
        listed(room, parent="none")


def test_name_description_and_tags_may_change(room: Room) -> None:
    submit(room, name="job", tags={"a": "1", "b": "2"}, description="old")
    changed = actions.update(
        room, WORKSPACE, "job",
        {"display_name": "A name", "description": "new", "tags": {"a": None, "c": 3}},
    )  # fmt: skip
    assert (changed.display_name, changed.description) == ("A name", "new")
    assert changed.tags == {"b": "2", "c": "3"}
    assert actions.update(room, WORKSPACE, "job", {"display_name": ""}).display_name == "job"
    for change, at in (
        ({"command": "x"}, ("command",)),
        ({"displayname": "x"}, ("displayname",)),
        ({"display_name": 5}, ("display_name",)),
        ({"display_name": "x" * 300}, ("display_name",)),
        ({"tags": ["a"]}, ("tags",)),
        ({"tags": {"a": [1]}}, ("tags", "a")),
    ):
        with pytest.raises(InvalidSpec) as refused:
            actions.update(room, WORKSPACE, "job", change)
        assert refused.value.at == at
    assert actions.get(room, WORKSPACE, "job") == actions.update(room, WORKSPACE, "job", {})


def test_the_document_makes_the_job_again(room: Room) -> None:
    job = submit(room, name="job", tags={"a": "1"}, **{"$schema": "x"})
    document = actions.document(room, WORKSPACE, "job")
    assert "name" not in document and document["command"] == "true"
    twin = submit(room, **document)
    assert (twin.spec, twin.tags) == (job.spec, job.tags) and twin.name != job.name


def test_experiments_count_their_jobs(room: Room) -> None:
    for name, experiment in (("a", "x"), ("b", "x"), ("c", "y")):
        submit(room, name=name, experiment_name=experiment)
    by_name = {one.name: one.id for one in runs.experiments(room, WORKSPACE)}
    counts = runs.job_counts(room, WORKSPACE)
    assert {name: counts[number][0] for name, number in by_name.items()} == {"x": 2, "y": 1}
