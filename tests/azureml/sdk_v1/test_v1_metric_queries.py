"""`metrics:query`, which SDK v1's notebook widget sends every five seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import steps
from azureml.sdk_v1.test_v1_services import Services, metric
from postgres_server import NewDatabase
from torchyard.azureml.sdk_v1 import metric_queries
from torchyard.base.errors import InvalidInput
from workspaces.served import served

QUERY = "experiments/seen/metrics:query"
AT = "2026-11-21T16:00:{:02}.000000Z"


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Services]:
    home = tmp_path_factory.mktemp("home")
    with served(home, new_database(home)) as site:
        services = Services(site, "olga")
        for run in ("seen_1", "seen_2"):
            services.of("history", "PATCH", f"experiments/seen/runs/{run}", {"runId": run})
        numbers = [metric("loss", 1 / (n + 1), AT.format(n)) for n in range(7)]
        image = "aml://artifactId/ExperimentRun/dcid.seen_1/plot.png"
        rows = [
            metric("word", "hello", AT.format(1), "String"),
            {
                "name": "table",
                "columns": {"a": "Double", "b": "Double"},
                "properties": {"uxMetricType": "azureml.v1.table"},
                "value": [{"metricId": "r1", "createdUtc": AT.format(2), "data": {"a": 1, "b": 2}}],
            },
            {
                "name": "plot",
                "columns": {"plot": "Artifact"},
                "properties": {"uxMetricType": "azureml.v2.image"},
                "value": [{"metricId": "r2", "createdUtc": AT.format(2), "data": {"plot": image}}],
            },
        ]
        body = {"values": [*numbers, metric("odd", "NaN", AT.format(3)), *rows]}
        services.of("metric", "POST", "runs/seen_1/batch", body)
        other = {"values": [metric("loss", 5.0, AT.format(0))]}
        services.of("metric", "POST", "runs/seen_2/batch", other)
        yield services


def asked(v1: Services, filter: str, **overrides: Any) -> list[dict[str, Any]]:
    response: list[dict[str, Any]] = v1.of(
        "history", "POST", QUERY, {"filter": filter, **overrides}
    )["value"]
    return response


def test_a_point_is_one_object(v1: Services) -> None:
    result = [item for item in asked(v1, "(RunId eq seen_1)") if item["name"] == "loss"]
    assert [item["cells"] for item in result] == [[{"loss": 1 / (n + 1)}] for n in range(7)]
    first = result[0]
    assert first["runId"] == "seen_1" and first["metricType"] == "azureml.v1.scalar"
    # The client compares this with types in lower case.
    assert first["schema"]["properties"] == [
        {"propertyId": "loss", "name": "loss", "type": "double"}
    ]
    assert len({item["metricId"] for item in result}) == 7


def test_rows_and_pictures_are_returned(v1: Services) -> None:
    result = {item["name"]: item for item in asked(v1, "(RunId eq seen_1)")}
    assert result["word"]["cells"] == [{"word": "hello"}]
    assert result["table"]["cells"] == [{"a": 1, "b": 2}]
    assert result["plot"]["dataLocation"].endswith("/plot.png")
    assert result["odd"]["cells"] == [{"odd": "NaN"}]


def test_a_point_keeps_its_id_when_an_earlier_one_arrives_late(v1: Services) -> None:
    before = {item["metricId"] for item in asked(v1, "(RunId eq seen_2)")}
    late = {"values": [metric("loss", 6.0, "2026-11-21T15:59:00.000000Z")]}
    v1.of("metric", "POST", "runs/seen_2/batch", late)
    after = {item["metricId"] for item in asked(v1, "(RunId eq seen_2)")}
    assert before < after and len(after) == len(before) + 1


@pytest.mark.parametrize(
    ("overrides", "count"),
    [
        (" and CreatedUtc gt 2026-11-21T16:00:04.000000Z", 2),
        (" and name eq loss", 7),
        (" and MetricType eq azureml.v1.table or MetricType eq azureml.v1.list", 1),
        (" or RunId eq seen_2 and MetricType eq azureml.v1.scalar and name eq nothing", 0),
    ],
)
def test_filters_as_the_client_writes_them(v1: Services, overrides: str, count: int) -> None:
    assert len(asked(v1, f"(RunId eq seen_1{overrides})")) == count


def test_results_are_paged(v1: Services) -> None:
    everything = asked(v1, "(RunId eq seen_1)")
    body: dict[str, Any] = {"filter": "(RunId eq seen_1)", "top": 3}
    result: list[dict[str, Any]] = []
    while True:
        response = v1.of("history", "POST", QUERY, body)
        assert len(response["value"]) <= 3
        result += response["value"]
        if response["continuationToken"] is None:
            break
        body["continuationToken"] = response["continuationToken"]
    assert result == everything


@pytest.mark.parametrize(
    "filter",
    ["", "name eq loss", "RunId gt a", "RunId eq a and CreatedUtc gt noon", "RunId eq a or (b)"],
)
def test_an_unreadable_filter_is_refused(v1: Services, filter: str) -> None:
    code, message = v1.refusal("history", "POST", QUERY, {"filter": filter})
    assert code in (400, 404), message
    assert "can't be read" in message or "does not exist" in message


@pytest.mark.parametrize("top", [0, -1, "many", True])
def test_the_size_of_a_page_is_checked(v1: Services, top: Any) -> None:
    body = {"filter": "(RunId eq seen_1)", "top": top}
    code, message = v1.refusal("history", "POST", QUERY, body)
    assert code == 400 and "`top`" in message, message


def test_a_missing_run_is_reported(v1: Services) -> None:
    code, message = v1.refusal("history", "POST", QUERY, {"filter": "(RunId eq nobody)"})
    assert code == 404 and "nobody" in message


@pytest.mark.parametrize(
    "text",
    [
        "RunId eq a" + " " * 10_000 + "x" * 50_000,
        "RunId eq " * 7_000,
        " and " * 10_000,
        "RunId eq a" + " and" * 10_000,
        "(" * 60_000,
    ],
    ids=lambda text: text[:20],
)
def test_a_long_filter_is_read_at_once(text: str) -> None:
    with suppress(InvalidInput):
        steps.at_most(1_000_000, lambda: metric_queries._read(text))


def test_values_of_a_filter_may_hold_spaces_and_the_words_of_the_language() -> None:
    text = "(RunId eq a or RunId eq b c and Name eq train and loss and CreatedUtc gt 2024-01-01Z)"
    filter = metric_queries._read(text.replace("2024-01-01Z", "2024-01-01T00:00:00Z"))
    assert filter.runs == ["a", "b c"]
    assert filter.keys == ["train and loss"]
    assert filter.after is not None


@pytest.mark.parametrize("text", ["", "x", "RunId", "RunId eq", "and RunId eq a", "Name eq a",
                                  "RunId gt a", "x RunId eq a", "RunId eq a and CreatedUtc gt x",
                                  "RunId eq " + "a" * 70_000])  # fmt: skip
def test_a_filter_that_can_not_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        metric_queries._read(text)
