"""Limits that a job asks for, and those of its workspace."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.jobs.spec import job_spec, limit_properties
from torchyard.shared.plan import LimitsPlan
from torchyard.workspaces.types import Workspace

PLACE = Workspace("w", "s", "g", "l", datetime(2026, 1, 1, tzinfo=timezone.utc))


def test_an_ordinary_job_has_many_processes_and_an_open_network() -> None:
    limit_properties.check({}, PLACE, 4, "mpi")
    assert limit_properties.plan({}, PLACE, 2) == LimitsPlan(8192, 0, 0, "open")
    assert limit_properties.recorded({"a": "b"}, PLACE) == {"a": "b"}
    assert limit_properties.notices({}, PLACE) == []


def test_the_workspaces_limits_hold_where_a_job_says_nothing() -> None:
    limits = replace(PLACE, max_processes=500, disk_quota_mb=100, network="none")
    assert limit_properties.plan({}, limits, 2) == LimitsPlan(500, 0, 100 << 20, "none")
    assert limit_properties.recorded({}, limits) == {"torchyard.network": "none"}
    assert limit_properties.notices({}, limits) == [
        "workspace `w` sets `torchyard.network` to `none`"
    ]


def test_a_job_may_ask_for_less() -> None:
    limits = replace(PLACE, max_processes=500, disk_quota_mb=100, network="workspace")
    properties = {
        "torchyard.max_processes": "100",
        "torchyard.disk_quota_mb": "10",
        "torchyard.max_open_files": "512",
        "torchyard.network": "none",
    }
    limit_properties.check(properties, limits, 1, "")
    assert limit_properties.plan(properties, limits, 1) == LimitsPlan(100, 512, 10 << 20, "none")


def test_a_workspace_that_became_stricter_counts_at_the_launch() -> None:
    limits = replace(PLACE, max_processes=70, disk_quota_mb=5, network="none")
    properties = {"torchyard.max_processes": "100", "torchyard.disk_quota_mb": "10"}
    assert limit_properties.plan(properties, limits, 1) == LimitsPlan(70, 0, 5 << 20, "none")


@pytest.mark.parametrize(
    ("key", "value"),
    [("max_processes", "501"), ("disk_quota_mb", "101"), ("network", "open")],
)
def test_a_job_that_asks_for_more_than_its_workspace_allows_is_refused(
    key: str, value: str
) -> None:
    limits = replace(PLACE, max_processes=500, disk_quota_mb=100, network="workspace")
    with pytest.raises(InvalidSpec) as caught:
        limit_properties.check({f"torchyard.{key}": value}, limits, 1, "")
    assert caught.value.code == "limit_exceeded"
    assert caught.value.at == ("properties", f"torchyard.{key}")
    assert "workspace `w` allows" in caught.value.message


@pytest.mark.parametrize(
    ("nodes", "distribution", "network"), [(2, "pytorch", "none"), (1, "mpi", "workspace")]
)
def test_a_network_that_the_nodes_cannot_do_with_is_refused(
    nodes: int, distribution: str, network: str
) -> None:
    with pytest.raises(InvalidSpec) as caught:
        limit_properties.check({"torchyard.network": network}, PLACE, nodes, distribution)
    assert caught.value.code == "network_unavailable"


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("network", "non", "did you mean `none`?"),
        ("max_processes", "3", "a number from 64 to"),
        ("disk_quota_mb", "much", "a number from 1 to"),
        ("max_open_files", "99.5", "a whole number"),
    ],
)
def test_what_is_not_understood_is_refused(key: str, value: str, hint: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        limit_properties.read({f"torchyard.{key}": value})
    assert hint in caught.value.hint


def _job(**more: object) -> dict[str, object]:
    return {"command": "true", "environment": "python", **more}


def test_the_mapping_torchyard_means_the_same_as_properties() -> None:
    settings = {"network": "none", "retry": {"max_attempts": 3}, "secrets": ["A"]}
    variables = {"A": "value"}
    spec = job_spec.read(_job(torchyard=settings, environment_variables=variables))
    assert spec.properties["torchyard.network"] == "none"
    assert spec.properties["torchyard.retry.max_attempts"] == "3"
    assert spec.properties["torchyard.secrets"] == "A"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"torchyard": "none"}, "`torchyard` is not a mapping"),
        ({"torchyard": {"netwrk": "none"}}, "`torchyard.netwrk` is not a property of torchyard"),
        (
            {"torchyard": {"network": "none"}, "properties": {"torchyard.network": "open"}},
            "`torchyard.network` is `none`, and `open` in `properties`",
        ),
    ],
)
def test_a_wrong_mapping_is_refused(more: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        job_spec.read(_job(**more))
    assert caught.value.message == message
