"""Charts, exact history and exports over HTTP; deleting over HTTP."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from torchyard import server
from torchyard.app import application
from torchyard.base.settings import Settings
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions
from torchyard.jobs.history.history_records import SampledMetric, metric, param
from torchyard.jobs.records.store import jobs
from torchyard.jobs.records.types import Status
from torchyard.jobs.requests import runs
from torchyard.jobs.requests.to_json import comparison_json

WORKSPACE = "/v1/workspaces/default"
ODD = 'val/acc @5 % "größte" & -x+?#'


class Served(TestClient):
    """The app, with a way to put runs into it."""

    parts: application.Parts

    def run(
        self,
        metrics: dict[str, list[float]],
        over: bool = True,
        params: Mapping[str, str] | None = None,
        document: dict[str, Any] | None = None,
    ) -> str:
        services = self.parts.services
        experiment_ids = {
            experiment.name: experiment.id
            for experiment in runs.experiments(services.db, "default")
        }
        number = experiment_ids.get("e") or runs.create_experiment(services, "default", "e", {}).id
        now = services.clock.now()
        request = runs.RunRequest("default", number, "me", "", started_at=now, parent="", tags={})
        job = runs.create_run(services, replace(request, document=document))
        services.history.append(job.id, [param(*each) for each in (params or {}).items()])
        for key, values in metrics.items():
            points = [metric(key, value, 10 * step, step) for step, value in enumerate(values)]
            by_worker = [SampledMetric(point) for point in points]
            services.history.append(job.id, by_worker if key in SAMPLED else points)
        if over:
            runs.change_run(services, "default", job.name, status=Status.COMPLETED)
        return job.name

    def ask(self, path: str, **query: Any) -> dict[str, Any]:
        answer = self.get(f"{WORKSPACE}{path}", params=query)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def refused(self, path: str, **query: Any) -> dict[str, Any]:
        answer = self.get(f"{WORKSPACE}{path}", params=query)
        assert 400 <= answer.status_code < 500, answer.text
        body: dict[str, Any] = answer.json()["error"]
        return body


@pytest.fixture
def client(tmp_path: Path, database_url: str) -> Iterator[Served]:
    parts = application.build(
        tmp_path, "http://127.0.0.1:1", os.environ, executor=FakeExecutor(), database=database_url
    )
    server.ensure_token(parts, Settings(tmp_path).token_file)
    made = Served(application.create_app(parts), raise_server_exceptions=False)
    made.parts = parts
    token = Settings(tmp_path).token_file.read_text().strip()
    made.headers["Authorization"] = f"Bearer {token}"
    yield made
    made.close()
    parts.services.db.close()


def test_every_metric_has_a_summary(client: Served) -> None:
    name = client.run({"loss": [3.0, 1.0, 2.0], ODD: [math.nan], "big": [1.0, math.inf]})
    summaries = {
        metric.pop("key"): metric for metric in client.ask(f"/jobs/{name}/metrics")["value"]
    }
    assert summaries["loss"] == {
        "count": 3, "step": 2, "timestamp": 20, "value": 2.0, "min": 1.0, "max": 3.0
    }  # fmt: skip
    assert (summaries[ODD]["value"], summaries[ODD]["min"]) == ("NaN", None)
    assert (summaries["big"]["min"], summaries["big"]["max"]) == (1.0, "Infinity")
    assert client.refused("/jobs/nobody/metrics")["code"] == "job_not_found"


def test_charts_are_reduced_and_exact_when_zoomed(client: Served) -> None:
    values = [math.sin(step / 50) for step in range(5000)]
    values[1234], values[4321] = 9.0, -9.0
    name = client.run({"loss": values, ODD: [math.nan, -math.inf, 1.0]})
    chart = client.ask(f"/jobs/{name}/metrics/chart", key="loss", width=100)
    assert (chart["exact"], chart["count"], len(chart["columns"])) == (False, 5000, 100)
    assert (chart["from"], chart["to"], chart["x"]) == (0, 4999, "step")
    assert min(low for _, low, _ in chart["columns"]) == -9.0
    assert max(high for _, _, high in chart["columns"]) == 9.0
    query = {"key": "loss", "width": 100, "from": 1200, "to": 1399}
    zoomed = client.ask(f"/jobs/{name}/metrics/chart", **query)
    assert zoomed["exact"] and zoomed["points"] == [[x, values[x]] for x in range(1200, 1400)]
    timed = client.ask(f"/jobs/{name}/metrics/chart", key="loss", width=4, x="time")
    assert [x for x, _, _ in timed["columns"]] == [0, 12498, 24996, 37494]
    odd = client.ask(f"/jobs/{name}/metrics/chart", key=ODD)
    assert odd["points"] == [[0, "NaN"], [1, "-Infinity"], [2, 1.0]]
    beside = client.ask(f"/jobs/{name}/metrics/chart", **{"key": "loss", "from": 6000})
    assert beside == {"key": "loss", "x": "step", "exact": True, "count": 0, "points": []}
    assert "did you mean `loss`?" in client.refused(
        f"/jobs/{name}/metrics/chart", key="los"
    )["hint"]  # fmt: skip
    for wrong in ({"width": 0}, {"width": 10**6}, {"x": "epoch"}, {"from": 2**64}):
        client.refused(f"/jobs/{name}/metrics/chart", **{"key": "loss", **wrong})


def test_several_jobs_and_keys_in_one_chart(client: Served) -> None:
    first, second = client.run({"a": [1.0], ODD: [2.0]}), client.run({"a": [3.0]})
    lines = client.ask("/metrics/chart", job=[first, second], key=["a", ODD])["value"]
    assert [(line["job"], line["key"], line["points"]) for line in lines] == [
        (first, "a", [[0, 1.0]]),
        (first, ODD, [[0, 2.0]]),
        (second, "a", [[0, 3.0]]),
    ]
    keys = [f"k{number}" for number in range(101)]
    assert "too much" in client.refused("/metrics/chart", job=first, key=keys)["message"]
    client.refused("/metrics/chart", job=first)


def test_jobs_are_compared_by_the_last_values_of_every_metric(client: Served) -> None:
    logged = {"a": [1.0, 2.0], ODD: [math.nan], SAMPLED[0]: [4.0]}
    first = client.run(logged, params={"lr": "0.1"})
    second = client.run({"a": [3.0]}, params={"lr": "0.2", "seed": "7"})
    with client.parts.services.db.write() as connection:
        changed = update(jobs).where(jobs.c.name == first).values(environment_hash="f1")
        connection.execute(changed)
    compared = client.ask("/metrics/comparison", job=[second, first, second])["value"]
    fields = ("name", "environment_hash", "params", "values")
    assert [tuple(job[field] for field in fields) for job in compared] == [
        (second, "", {"lr": "0.2", "seed": "7"}, {"a": 3.0}),
        (first, "f1", {"lr": "0.1"}, {"a": 2.0, ODD: "NaN"}),
    ]
    missing = client.refused("/metrics/comparison", job=[first, "nobody"])
    assert missing["code"] == "job_not_found"
    names = [f"job-{number}" for number in range(101)]
    assert "too many" in client.refused("/metrics/comparison", job=names)["message"]


def test_compared_jobs_show_no_secret_of_their_own(client: Served) -> None:
    secret = "correct-horse-battery"
    document = {"environment_variables": {"API_KEY": secret}}
    own = client.run({f"loss/{secret}": [1.0]}, params={"key": secret}, document=document)
    other = client.run({f"loss/{secret}": [2.0]})
    first, second = client.ask("/metrics/comparison", job=[own, other])["value"]
    stars = "*" * len(secret)
    assert (first["values"], first["params"]) == ({f"loss/{stars}": 1.0}, {"key": stars})
    assert list(first["spec"]["environment_variables"]) == ["API_KEY"]
    assert secret not in json.dumps(first)
    # The key by which a chart is asked for.
    assert second["values"] == {f"loss/{secret}": 2.0}


def test_a_job_deleted_meanwhile_is_not_compared(client: Served) -> None:
    name, services = client.run({"a": [1.0]}), client.parts.services
    job = actions.get(services, "default", name)
    deleted = replace(job, id=job.id + 1)
    assert [each["name"] for each in comparison_json(services, [deleted, job])["value"]] == [name]


def test_exact_history_page_by_page(client: Served) -> None:
    values = [float(step) for step in range(1500)]
    name = client.run({ODD: values})
    path, seen, offset = f"/jobs/{name}/metrics/history", [], 0
    while offset is not None:
        page = client.ask(path, key=ODD, offset=offset, limit=400)
        seen += page["points"]
        offset = page["next"]
    assert seen == [[step, 10 * step, float(step)] for step in range(1500)]
    assert page["columns"] == ["step", "timestamp", "value"] and page["key"] == ODD
    some = client.ask(path, **{"key": ODD, "x": "time", "from": 100, "to": 120})
    assert [step for step, _, _ in some["points"]] == [10, 11, 12]
    assert client.refused(path, key="nope")["code"] == "metric_not_found"


def test_metrics_are_exported_as_csv(client: Served) -> None:
    name = client.run({"loss": [float(step) for step in range(900)], ODD: [math.nan]})
    answer = client.get(f"{WORKSPACE}/jobs/{name}/metrics/export")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [float(row["value"]) for row in rows if row["key"] == "loss"] == list(range(900))
    query: dict[str, str | int] = {"key": ODD, "from": 0, "to": 5}
    answer = client.get(f"{WORKSPACE}/jobs/{name}/metrics/export", params=query)
    assert [row["value"] for row in csv.DictReader(io.StringIO(answer.text))] == ["NaN"]
    client.refused(f"/jobs/{name}/metrics/export", format="xls")
    client.refused(f"/jobs/{name}/metrics/export", key="nope")


def test_parquet_export_needs_the_extra(client: Served) -> None:
    name = client.run({"loss": [1.0, 2.0]})
    answer = client.get(f"{WORKSPACE}/jobs/{name}/metrics/export", params={"format": "parquet"})
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        assert answer.status_code == 400
        assert "pip install 'torchyard[parquet]'" in answer.json()["error"]["hint"]
    else:
        assert answer.content[:4] == answer.content[-4:] == b"PAR1"


SAMPLED = ["system/node-0/cpu_utilization_percentage", "system/rank-1/process_cpu_percentage"]


def keys_of(client: Served, name: str, **query: str) -> list[str]:
    return [row["key"] for row in client.ask(f"/jobs/{name}/metrics", **query)["value"]]


def test_what_the_worker_samples_is_listed_on_request(client: Served) -> None:
    name = client.run({"loss": [1.0], "system/own": [1.0], **{key: [5.0, 6.0] for key in SAMPLED}})
    assert keys_of(client, name) == ["loss", "system/own"]
    assert keys_of(client, name, system="only") == SAMPLED
    assert keys_of(client, name, system="too") == ["loss", *SAMPLED[:1], "system/own", *SAMPLED[1:]]
    assert set(client.ask(f"/jobs/{name}")["metrics"]) == {"loss", "system/own"}
    assert client.refused(f"/jobs/{name}/metrics", system="yes")["code"] == "invalid_input"


def test_what_the_worker_samples_is_drawn_and_exported_by_name(client: Served) -> None:
    name = client.run({"loss": [1.0], SAMPLED[0]: [5.0, 6.0]})
    chart = client.ask(f"/jobs/{name}/metrics/chart", key=SAMPLED[0], x="time")
    assert [value for _, value in chart["points"]] == [5.0, 6.0]
    exported = client.get(f"{WORKSPACE}/jobs/{name}/metrics/export").text
    assert "loss" in exported and SAMPLED[0] not in exported
    for path in (f"/jobs/{name}/metrics/export", "/metrics/export"):
        query = {"key": SAMPLED[0], "job": name}
        assert client.get(f"{WORKSPACE}{path}", params=query).text.count(SAMPLED[0]) == 2


def test_a_leaderboard_shows_what_the_worker_samples_by_name_only(client: Served) -> None:
    client.run({"loss": [1.0], SAMPLED[0]: [5.0]})
    (row,) = client.ask("/jobs", column="metrics")["value"]
    assert row["metrics"] == {"loss": 1.0}
    (row,) = client.ask("/jobs", column=f"metrics.{SAMPLED[0]}")["value"]
    assert row["metrics"] == {SAMPLED[0]: 5.0}


def test_runs_are_deleted_over_http(client: Served) -> None:
    first, second = client.run({"a": [1.0]}), client.run({"a": [1.0]})
    open_run = client.run({"a": [1.0]}, over=False)
    path = f"{WORKSPACE}/jobs"
    plan = client.post(f"{path}/delete", json={"experiment_name": "e", "dry_run": True}).json()
    assert [(job["name"], job["points"]) for job in plan["jobs"]] == [(second, 1), (first, 1)]
    assert client.delete(f"{path}/{open_run}").json()["error"]["code"] == "job_not_ended"
    assert client.delete(f"{path}/{first}").json() == {
        "deleted": [first],
        "pending": [],
        "kept": [],
    }
    assert client.delete(f"{path}/{first}").status_code == 404
    bodies: tuple[Any, ...] = (
        {},
        [],
        {"names": "x"},
        {"names": [second], "status": "Failed"},
        {"nams": []},
    )
    for wrong in bodies:
        assert client.post(f"{path}/delete", json=wrong).status_code == 400, wrong
    assert client.post(f"{path}/delete", json={"older_than_s": True}).status_code == 400
    assert client.post(f"{path}/delete", json={"older_than_s": 1e300}).status_code == 400
    client.post(f"{path}/delete", json={"experiment_name": "e"})
    assert [job["name"] for job in client.ask("/jobs")["value"]] == [open_run]
