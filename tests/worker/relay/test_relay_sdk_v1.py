"""The relay on Azure's paths, as SDK v1 asks inside jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchyard.shared import sdk_v1_records
from torchyard.shared.record_rules import InvalidRecord
from torchyard.worker.relay import sdk_v1_addresses
from worker.relays import Script, plan_for, relay_to, server_of
from worker.stub_server import StubServer

WORKSPACE = (
    "/subscriptions/local/resourceGroups/torchyard/providers/"
    "Microsoft.MachineLearningServices/workspaces/default"
)
OWN = f"/history/v1.0{WORKSPACE}/experimentids/1/runs/job-1"
MOMENT = "2026-11-21T10:00:00.123456Z"
MOMENT_US = 1_795_255_200_123_456


class AzureStub(StubServer):
    """Knows the runs `job-1` and `child` on Azure's paths; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str]] = []

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> Any:
        run_path = sdk_v1_records.run_path(path)
        if run_path is None:
            return super().answer(method, path, query, body)
        self.asked.append((method, path))
        if run_path.run not in ("job-1", "child"):
            return 404, {"error": {"code": "UserError", "message": "no such run"}}
        if run_path.verb == "history":
            return 200, {"runId": run_path.run, "tags": {"old": "1"}, "properties": {}}
        return 200, {"errors": [], "path": path}


@pytest.fixture
def server() -> Iterator[AzureStub]:
    made = AzureStub()
    made.start()
    yield made
    made.stop()


def test_the_plugins_paths_are_mlflows(tmp_path: Path) -> None:
    runs = f"/mlflow/v2.0{WORKSPACE}/api/2.0/mlflow/runs"
    seen: list[tuple[str, str]] = []

    class Stub(StubServer):
        def answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> Any:
            if "/mlflow/" not in path:
                return super().answer(method, path, query, body)
            seen.append((method, path))
            return 200, {"run": {"info": {"run_id": "job-1", "artifact_uri": path}}}

    server = Stub()
    server.start()
    with relay_to(server, tmp_path) as (relay, script):
        metric = {"run_id": "job-1", "key": "loss", "value": 0.5, "timestamp": 1, "step": 1}
        assert posted(script, f"{runs}/log-metric", metric) == (200, {})
        run = posted(script, f"{runs}/get?run_id=job-1", None, "GET")[1]["run"]
        plain = posted(script, "/api/2.0/mlflow/runs/get?run_id=job-1", None, "GET")[1]["run"]
        server.stop()
        # Each client gets the addresses that it can read, from memory too.
        assert posted(script, f"{runs}/get?run_id=job-1", None, "GET")[1]["run"] == run
        assert run["info"]["artifact_uri"] != plain["info"]["artifact_uri"]
        server.start()
        assert relay.finish(10.0)
    server.stop()
    assert seen == [("GET", f"{runs}/get"), ("GET", "/mlflow/default/api/2.0/mlflow/runs/get")]
    assert [record["key"] for record in server.history[0]] == ["loss"]


def log_path(run: str) -> str:
    return f"/metric/v2.0{WORKSPACE}/runs/{run}/batch"


def scalar(key: str, value: Any, step: int | None = None) -> dict[str, Any]:
    record = {"metricId": f"id-{value}", "createdUtc": MOMENT, "step": step, "data": {key: value}}
    return {"name": key, "columns": {key: "double"}, "value": [record]}


def posted(script: Script, path: str, body: Any, method: str = "POST") -> tuple[int, Any]:
    status, content = script.send(method, path, json.dumps(body))
    return status, json.loads(content)


def test_what_is_logged_arrives_as_records(server: AzureStub, tmp_path: Path) -> None:
    table = {
        "name": "table",
        "columns": {"a": "double"},
        "properties": {"uxMetricType": "azureml.v1.table"},
        "value": [{"metricId": "r1", "createdUtc": MOMENT, "data": {"a": float("nan")}}],
    }
    values = [scalar("loss", 0.5), scalar("loss", float("nan"), 3), scalar("word", "x"), table]
    with relay_to(server, tmp_path) as (relay, script):
        # The client writes a second slash behind the address.
        assert posted(script, "/" + log_path("job-1"), {"values": values})[1] == {"errors": []}
        assert relay.finish(10.0)
    assert server.asked == []
    point = {"kind": "metric", "run": "job-1", "key": "loss", "moment_us": MOMENT_US}
    word, row = server.history[0][2:]
    assert server.history[0][:2] == [
        {**point, "step": None, "value": 0.5},
        {**point, "step": 3, "value": "NaN"},
    ]
    assert (word["kind"], word["values"], word["type"]) == (
        "row",
        {"word": "x"},
        "azureml.v1.scalar",
    )
    assert (row["id"], row["values"], row["moment_us"]) == ("r1", {"a": "nan"}, MOMENT_US)


def test_another_run_is_known_once_the_server_took_something(
    server: AzureStub, tmp_path: Path
) -> None:
    with relay_to(server, tmp_path) as (relay, script):
        assert posted(script, log_path("nobody"), {"values": []})[0] == 404
        assert posted(script, log_path("nobody"), {"values": []})[0] == 404
        assert posted(script, log_path("child"), {"values": [scalar("a", 1.0)]})[0] == 200
        assert posted(script, log_path("child"), {"values": [scalar("a", 2.0)]})[0] == 200
        assert relay.finish(10.0)
    assert [path.split("/runs/")[1] for _, path in server.asked] == [
        "nobody/batch",
        "nobody/batch",
        "child/batch",
    ]
    assert [record["value"] for record in server.history[0]] == [2.0]


def test_the_jobs_own_tags_and_properties_do_not_wait(server: AzureStub, tmp_path: Path) -> None:
    with relay_to(server, tmp_path) as (relay, script):
        assert posted(script, OWN, None, "GET")[1]["tags"] == {"old": "1"}
        tags = {"a": "1", "x": None}
        change = {"runId": "job-1", "tags": tags, "properties": {"p": "2"}, "status": None}
        response = posted(script, OWN, change, "PATCH")[1]
        assert response["tags"] == {"old": "1", **tags} and response["properties"] == {"p": "2"}
        # A name is more than that: the server says what became of it.
        posted(script, OWN, {"runId": "job-1", "displayName": "n"}, "PATCH")
        wait = f"/history/v1.0{WORKSPACE}/experiments/e/runs/job-1/metricsingest/wait"
        assert posted(script, wait, None, "GET") == (200, {})
        assert relay.finish(10.0)
    assert [method for method, _ in server.asked] == ["GET", "PATCH"]
    assert [(record["kind"], record["key"], record["value"]) for record in server.history[0]] == [
        ("tag", "a", "1"),
        ("tag", "x", ""),
        ("property", "p", "2"),
    ]


def test_the_own_run_is_told_from_memory_while_the_server_is_away(
    server: AzureStub, tmp_path: Path
) -> None:
    with relay_to(server, tmp_path) as (_, script):
        posted(script, OWN, None, "GET")
        server.stop()
        assert posted(script, OWN, {"tags": {"a": "1"}}, "PATCH")[0] == 200
        assert posted(script, OWN, None, "GET")[1]["tags"] == {"old": "1", "a": "1"}
        assert posted(script, log_path("job-1"), {"values": [scalar("a", 1.0)]})[0] == 200


def test_only_the_server_can_tell_of_a_run_that_was_never_read(tmp_path: Path) -> None:
    with server_of("http://127.0.0.1:9", tmp_path) as script:
        assert posted(script, OWN, None, "GET")[0] == 503


def test_services_are_told_without_the_server(tmp_path: Path) -> None:
    base = "https://127.0.0.1:1"
    with server_of("http://127.0.0.1:9", tmp_path, AZUREML_SERVICE_ENDPOINT=base) as script:
        status, content = script.send("GET", "/discovery")
    assert status == 200 and json.loads(content)["history"] == base


def test_the_server_learns_where_scripts_reach_it_for_links_to_files(tmp_path: Path) -> None:
    seen: list[str | None] = []

    class Stub(AzureStub):
        def answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> Any:
            seen.append(self.headers.get(sdk_v1_records.BASE_HEADER))
            return super().answer(method, path, query, body)

    server = Stub()
    server.start()
    base = "https://127.0.0.1:1"
    with server_of(server.url, tmp_path, AZUREML_SERVICE_ENDPOINT=base) as script:
        for path in ("/artifacts/batch/metadata", "/artifacts/contentinfo/a", "/children"):
            posted(script, OWN + path, {})
    server.stop()
    assert seen == [base, base, None]


def test_only_jobs_with_a_way_in_are_led_to_the_relay() -> None:
    plan = plan_for("http://127.0.0.1:9")
    assert sdk_v1_addresses.variables(plan, "http://relay") == {}
    with_way = replace(plan, variables={"AZUREML_RUN_TOKEN": "t"})
    assert sdk_v1_addresses.variables(with_way, "http://relay") == {
        "AZUREML_DEV_URL_METRICS": "http://relay",
        "AZUREML_DEV_URL_RUN_HISTORY": "http://relay",
        "AZUREML_DISCOVERY_SERVICE_ENDPOINT": "http://relay/discovery",
    }


def test_whoever_has_no_token_is_refused(server: AzureStub, tmp_path: Path) -> None:
    with relay_to(server, tmp_path) as (relay, script):
        for token in ("", "yard_r_other"):
            with Script(f"http://127.0.0.1:{script.port}", token) as stranger:
                assert posted(stranger, log_path("job-1"), {"values": []})[0] == 401
        assert relay.finish(5.0)
    assert server.history == {}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"values": {}},
        {"values": [3]},
        {"values": [{"name": "a", "value": [3]}]},
        {"values": [{"name": "a", "value": 3}]},
        {"values": [{"name": "", "columns": {}, "value": [{"data": {"x": "y"}}]}]},
    ],
)
def test_a_body_of_another_form_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecord):
        sdk_v1_records.logged("job-1", body)
