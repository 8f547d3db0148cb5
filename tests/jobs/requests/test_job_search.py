"""Lists of jobs: every order and page agrees with sorting all jobs in Python."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cmp_to_key
from typing import Any

import pytest
from sqlalchemy import insert

from jobs import support
from jobs.support import WORKSPACE
from torchyard.base.clock import FakeClock, to_text
from torchyard.base.errors import InvalidInput
from torchyard.jobs.history import history_store
from torchyard.jobs.records import store
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import runs, submission
from torchyard.jobs.requests.answer_types import JobRow
from torchyard.jobs.requests.job_queries import ListRequest, list_page
from torchyard.jobs.services import Services

JOBS = 24
SCORES = (None, 0.25, 0.5, 0.5, 1e-7, float("inf"))
RATES = (0.1, "1e-3", 2, "adam", "Adam", {"type": "number", "value": 0.02}, True)


def log_score(services: Services, job: Job, score: float | None) -> None:
    """None is a NaN."""
    row = {"job_id": job.id, "key": "score", "points": 1, "blocks": 0, "tail": b""}
    row |= {"latest_step": 0, "latest_timestamp": 0, "latest_value": score}
    with services.db.write() as connection:
        connection.execute(insert(history_store.metrics), row | {"max_step": 0, "max_timestamp": 0})


def fill(services: Services, clock: FakeClock) -> None:
    chance = random.Random(17)
    for number in range(JOBS):
        clock.advance(60)
        changes: dict[str, Any] = {"name": f"job-{number:02}"}
        if chance.random() < 0.8:
            changes["inputs"] = {"lr": chance.choice(RATES)}
        if chance.random() < 0.8:
            changes["tags"] = {"team": chance.choice(["3", "20", "x"])}
        job = support.submit(services, **changes)
        if chance.random() < 0.8:
            log_score(services, job, chance.choice(SCORES))
        if chance.random() < 0.5:
            with services.db.write() as connection:
                history_store.add_params(connection, job.id, {"epochs": str(number % 12)})
                store.change_job(connection, job.id, duration_s=float(number % 5))


def pages(services: Services, request: ListRequest) -> list[JobRow]:
    """The rows of all pages, one after the other."""
    rows: list[JobRow] = []
    while True:
        page = list_page(services, WORKSPACE, request)
        assert len(page["value"]) <= request.limit
        rows += page["value"]
        if page["next"] is None:
            return rows
        request = replace(request, before=str(page["next"]))


def values_of(rows: Sequence[Mapping[str, Any]], sort: str) -> list[Any]:
    group, _, key = sort.partition(".")
    return [row[group].get(key) if key else row[sort] for row in rows]


def segment_of(value: Any) -> tuple[int, Any]:
    """As the page promises: numbers, texts, NaN, nothing."""
    if value is None:
        return (3, 0)
    if value == "NaN":
        return (2, 0)
    if value == "Infinity":
        return (0, float("inf"))
    try:
        return (0, float(value))
    except ValueError:
        return (1, value)


@pytest.mark.parametrize("descending", [False, True])
def test_every_order_has_each_job_once_on_pages_of_any_size(
    services: Services, clock: FakeClock, descending: bool
) -> None:
    fill(services, clock)
    columns = ("metrics", "params", "inputs")
    newest = [f"job-{number:02}" for number in reversed(range(JOBS))]
    rows = pages(services, ListRequest(columns=columns, limit=7))
    assert [row["name"] for row in rows] == newest
    for sort in ("metrics.score", "params.epochs", "tags.team", "duration_s", "name", "inputs.lr"):
        request = ListRequest(sort=sort, descending=descending, columns=columns, limit=100)
        rows = pages(services, request)
        assert sorted((row["name"] for row in rows), reverse=True) == newest, sort
        for limit in (1, 7):
            assert pages(services, replace(request, limit=limit)) == rows, (sort, limit)
        if sort not in ("name", "inputs.lr"):
            check_order([segment_of(value) for value in values_of(rows, sort)], descending)


def check_order(positions: list[tuple[int, Any]], descending: bool) -> None:
    def compare(left: tuple[int, Any], right: tuple[int, Any]) -> int:
        if left[0] != right[0]:
            return left[0] - right[0]
        order = int(left[1] > right[1]) - int(left[1] < right[1])
        return -order if descending else order

    assert positions == sorted(positions, key=cmp_to_key(compare))


def test_inputs_are_sorted_as_numbers_however_they_were_written(services: Services) -> None:
    for name, rate in {"a": 10, "b": "9", "c": {"type": "number", "value": 0.5}, "d": "x"}.items():
        support.submit(services, name=name, inputs={"lr": rate})
    support.submit(services, name="e")
    rows = pages(services, ListRequest(sort="inputs.lr", columns=("inputs.lr",)))
    assert [row["name"] for row in rows] == ["c", "b", "a", "d", "e"]
    assert [row["inputs"].get("lr") for row in rows] == [0.5, "9", 10, "x", None]


def test_a_list_has_jobs_of_one_type(services: Services) -> None:
    job = support.submit(services, name="a")
    request = runs.RunRequest(WORKSPACE, job.experiment_id, "me", "b", None, "", {}, name="b")
    runs.create_run(services, request)
    for kind, names in {"": "ba", "command": "a", "Run": "b"}.items():
        rows = pages(services, ListRequest(type=kind))
        assert "".join(row["name"] for row in rows) == names
    with pytest.raises(InvalidInput, match="`type` is `pipe`"):
        list_page(services, WORKSPACE, ListRequest(type="pipe"))


def test_conditions_leave_out_other_jobs(services: Services, clock: FakeClock) -> None:
    before = to_text(clock.now())
    support.submit(services, name="a", display_name="ResNet 50%", tags={"team": "x"})
    clock.advance(60)
    later = to_text(clock.now())
    support.submit(services, name="b", description="a resnet", tags={"team": "y", "kept": ""})
    other = replace(support.ME, user="you")
    support.add_owners(services.db, clock, other.user)
    submission.create(services, WORKSPACE, {**support.JOB, "name": "c"}, other)
    expected = {
        ListRequest(text="RESNET"): "ba",
        ListRequest(text="50%"): "a",
        ListRequest(text="%"): "a",
        ListRequest(text="t_5"): "",
        ListRequest(tags=("team",)): "ba",
        ListRequest(tags=("team=y", "kept")): "b",
        ListRequest(owner="you"): "c",
        ListRequest(created_after=later): "cb",
        ListRequest(created_after=before, created_before=later): "a",
        ListRequest(text="resnet", sort="name"): "ab",
    }
    for request, names in expected.items():
        assert "".join(row["name"] for row in pages(services, request)) == names, request


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (ListRequest(sort="loss"), "can't be sorted by `loss`"),
        (ListRequest(sort="metrics."), "can't be sorted"),
        (ListRequest(sort="inputs.a'b"), "not the name of an input"),
        (ListRequest(sort='tags.a"b'), "not a tag"),
        (ListRequest(descending=True), "`descending` needs `sort`"),
        (ListRequest(columns=("loss",)), "has no column `loss`"),
        (ListRequest(columns=("metrics.",)), "has no column"),
        (
            ListRequest(columns=("metrics",), limit=101),
            "between 1 and 100, not 101",
        ),
        (ListRequest(limit=0), "`limit` must be between 1 and 1000, not 0"),
        (ListRequest(tags=("=x",)), "is not a tag"),
        (ListRequest(created_after="yesterday"), "`created_after` is not a time"),
        (ListRequest(created_after="0001-01-01T00:00:00+14:00"), "is not a time"),
        (ListRequest(before="x"), "is not where a list"),
        (ListRequest(before="9" * 19), "is not where a list"),
        (ListRequest(before="7", sort="name"), "is not where a list"),
    ],
)
def test_what_a_list_can_not_do_is_refused(
    services: Services, request_: ListRequest, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        list_page(services, WORKSPACE, request_)


def test_a_place_is_good_for_its_own_order_only(services: Services) -> None:
    for name in "abc":
        log_score(services, support.submit(services, name=name), 0.5)
    request = ListRequest(sort="metrics.score", limit=1)
    token = str(list_page(services, WORKSPACE, request)["next"])
    assert [row["name"] for row in pages(services, replace(request, before=token))] == ["b", "c"]
    for value in (10**400, 2**63, float("nan"), "x", None):
        body = json.dumps(["metrics", "score", False, 0, value, 1]).encode()
        forged = base64.urlsafe_b64encode(body).decode()
        with pytest.raises(InvalidInput, match="is not where a list"):
            list_page(services, WORKSPACE, replace(request, before=forged))
    others = [replace(request, descending=True), replace(request, sort="metrics.loss")]
    for other in [*others, replace(request, sort="name"), replace(request, sort="")]:
        with pytest.raises(InvalidInput, match="is not where a list"):
            list_page(services, WORKSPACE, replace(other, before=token))
