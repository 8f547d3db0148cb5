"""What SDK v1 logs and reads: rows of different columns, all kinds of numbers, points without
steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from azureml.sdk_v1.test_v1_services import Services, metric
from postgres_server import NewDatabase
from workspaces.served import served


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Services]:
    home = tmp_path_factory.mktemp("home")
    with served(home, new_database(home)) as site:
        yield Services(site, "olga")


@pytest.fixture
def run(v1: Services, request: pytest.FixtureRequest) -> str:
    """A run that is not a job, for the test."""
    name: str = request.node.originalname.removeprefix("test_")
    v1.of("history", "PATCH", f"experiments/e/runs/{name}", {"runId": name})
    return name


def log(v1: Services, run: str, *values: dict[str, Any]) -> Any:
    return v1.of("metric", "POST", f"runs/{run}/batch", {"values": list(values)})["errors"]


def read(v1: Services, run: str, key: str) -> Any:
    return v1.of("metric", "POST", f"runs/{run}/full", {"metricName": key})


def row(number: int, columns: dict[str, str], **data: Any) -> dict[str, Any]:
    at = f"2026-11-21T16:00:0{number}Z"
    return {
        "name": "row",
        "columns": columns,
        "value": [{"metricId": f"r{number}", "createdUtc": at, "data": data}],
        "properties": {"uxMetricType": "azureml.v1.table"},
    }


def test_rows_of_different_columns_are_read_together(v1: Services, run: str) -> None:
    # The later one arrives first: the client sends several batches at once.
    log(v1, run, row(2, {"x": "double", "z": "double"}, x="text", z=3.0))
    log(v1, run, row(1, {"x": "integer", "y": "string"}, x=1, y="q"))
    response = read(v1, run, "row")
    # The client converts each value in a column of type double to a number.
    assert response["columns"] == {"x": "string", "y": "string", "z": "double"}
    assert [item["data"] for item in response["value"]] == [
        {"x": 1, "y": "q", "z": "NaN"},
        {"x": "text", "y": None, "z": 3.0},
    ]


def test_every_kind_of_number_is_a_metric(v1: Services, run: str) -> None:
    at = "2026-11-21T16:00:01Z"
    original = [(True, "boolean"), (3, "integer"), (10**300, "integer"), (float("inf"), "double")]
    for index, (value, kind) in enumerate(original):
        sent = "Infinity" if value == float("inf") else value
        assert log(v1, run, metric(f"k{index}", sent, at, kind)) == []
    keys = v1.site.ask("olga", "GET", f"/v1/workspaces/default/jobs/{run}/metrics").json()
    assert {item["key"]: item["value"] for item in keys["value"]} == {
        "k0": 1.0,
        "k1": 3.0,
        "k2": 1e300,
        "k3": "Infinity",
    }


AT = "2026-11-21T16:00:01Z"


@pytest.mark.parametrize(
    ("sent", "columns", "type", "data"),
    [
        ([2], ["int"], "int", [2]),
        ([2.0], ["double"], "Double", [2.0]),
        ([True, False], ["bool", "bool"], "bool", [True, False]),
        ([1, 2.0], ["int", "double"], "int", [1, 2]),
        ([1, 2.5], ["int", "double"], "Double", [1.0, 2.5]),
        ([True, 2], ["bool", "int"], "Double", [1.0, 2.0]),
        ([2**60], ["int"], "Double", [float(2**60)]),
        (["np.int64(-7)"], ["string"], "int", [-7]),
        (["np.uint64(18446744073709551615)"], ["string"], "Double", [float(2**64)]),
        (["7"], ["string"], "int", [7]),
    ],
    ids=str,
)
def test_numbers_are_read_back_as_they_were_logged(
    v1: Services, run: str, sent: list[Any], columns: list[str], type: str, data: list[Any]
) -> None:
    key = f"{sent}"
    for index, (value, column) in enumerate(zip(sent, columns, strict=True)):
        log(v1, run, metric(key, value, f"2026-11-21T16:00:0{index}Z", column))
    response = read(v1, run, key)
    assert response["columns"] == {key: type}
    values = [item["data"][key] for item in response["value"]]
    assert repr(values) == repr(data)


@pytest.mark.parametrize("text", ["007", "7.", "np.int64", "np.int64(x)", "1e3", ""])
def test_a_text_that_is_no_integer_stays_a_text(v1: Services, run: str, text: str) -> None:
    log(v1, run, {**metric(f"text {text}", text, AT, "string")})
    assert read(v1, run, f"text {text}")["columns"] == {f"text {text}": "string"}


def test_an_invalid_value_does_not_block_the_others(v1: Services, run: str) -> None:
    at = "2026-11-21T16:00:01Z"
    (error,) = log(v1, run, metric("big", 10**400, at, "integer"), metric("good", 1.0, at))
    assert error["metric"]["name"] == "big"
    assert "does not fit" in error["errorResponse"]["error"]["message"]
    assert read(v1, run, "good")["value"][0]["data"] == {"good": 1.0}


def test_points_without_steps_keep_their_order(v1: Services, run: str) -> None:
    later = [metric("down", 1.0 + n, f"2026-11-21T16:00:01.0005{n:02}Z") for n in range(50, 100)]
    first = [metric("down", 1.0 + n, f"2026-11-21T16:00:01.0005{n:02}Z") for n in range(50)]
    for batch in (later, first, later):
        log(v1, run, *batch)
    response = read(v1, run, "down")["value"]
    assert [(item["step"], item["data"]["down"]) for item in response] == [
        (n, 1.0 + n) for n in range(100)
    ]
    path = f"/mlflow/default/api/2.0/mlflow/metrics/get-history?run_id={run}&metric_key=down"
    points = v1.site.ask("olga", "GET", path).json()["metrics"]
    assert [item["step"] for item in points] == list(range(100))
