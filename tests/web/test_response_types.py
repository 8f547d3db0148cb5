"""The types that OpenAPI gives to responses, against real ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import openapi_file
from torchyard.data.datastores import ARTIFACT_STORE, artifacts_of
from torchyard.jobs.records import attempt_store, store
from torchyard.jobs.records.types import Attempt
from torchyard.web.response_types import BY_ROUTE
from web.browser_like import code_of, signed_in
from workspaces.served import HERE, JOB, MLFLOW, Served, served

ONE_DATABASE = True
CHECKED_IN = Path(__file__).parents[2] / "ui" / "openapi.json"
_W, _JOB = "/v1/workspaces/{workspace}", "/v1/workspaces/{workspace}/jobs/{name}"


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path, database_url) as made:
        _fill(made)
        yield made


def _fill(site: Served) -> None:
    """A job that waits, and one with all that a job can have."""
    site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "waits"})
    code = f"snapshot:{_snapshot(site)}"
    document = {**JOB, "name": "one", "code": code, "inputs": {"lr": 0.1}, "tags": {"team": "x"}}
    site.ok("carl", "POST", f"{HERE}/jobs", document)
    for key, value in (("loss", 0.5), ("odd", "NaN")):
        point = {"run_id": "one", "key": key, "value": value, "step": 1, "timestamp": 1}
        site.ok("carl", "POST", f"{MLFLOW}/runs/log-metric", point)
    param = {"run_id": "one", "key": "lr", "value": "0.1"}
    site.ok("carl", "POST", f"{MLFLOW}/runs/log-parameter", param)
    services = site.parts.services
    services.logs.append("default", "one", 0, "user_logs/std_log.txt", 0, b"a\nb\n")
    stored = f"{artifacts_of('one')}/outputs/t.csv"
    with services.datastores.writing("default", ARTIFACT_STORE, stored) as writing:
        writing.write(b"a,b\n1,2\n")


def _hold_a_node(site: Served) -> None:
    """A try of the job `one` that held two nodes for half an hour."""
    services = site.parts.services
    start = services.clock.now() - timedelta(hours=1)
    with services.db.write() as connection:
        job = store.job_named(connection, "default", "one")
        assert job is not None
        attempt = Attempt("one-1", job.id, "default", "one", 1, 2, start)
        attempt_store.add_attempt(connection, attempt)
    with services.db.write() as connection:
        ended_at = start + timedelta(minutes=30)
        attempt_store.change_attempt(connection, "one-1", ended_at=ended_at)


REQUESTS: list[tuple[str, str, str, Any]] = [
    ("get", f"{_W}/jobs", f"{HERE}/jobs", None),
    (
        "get",
        f"{_W}/jobs",
        f"{HERE}/jobs?limit=1&column=metrics&column=params&column=inputs&column=waiting",
        None,
    ),
    ("get", _JOB, f"{HERE}/jobs/one", None),
    ("get", _JOB, f"{HERE}/jobs/waits", None),
    ("patch", _JOB, f"{HERE}/jobs/one", {"description": "x"}),
    ("get", f"{_JOB}/files", f"{HERE}/jobs/one/files", None),
    ("get", f"{_JOB}/outputs", f"{HERE}/jobs/one/outputs", None),
    (
        "get",
        f"{_JOB}/logs/index",
        f"{HERE}/jobs/one/logs/index?path=user_logs/std_log.txt",
        None,
    ),
    (
        "get",
        f"{_JOB}/logs/search",
        f"{HERE}/jobs/one/logs/search?path=user_logs/std_log.txt&text=a",
        None,
    ),
    ("get", f"{_JOB}/preview", f"{HERE}/jobs/one/preview?path=outputs/t.csv", None),
    ("get", f"{_JOB}/preview", f"{HERE}/jobs/one/preview?path=user_logs/std_log.txt", None),
    ("get", f"{_JOB}/code", f"{HERE}/jobs/one/code", None),
    ("get", f"{_JOB}/code/file", f"{HERE}/jobs/one/code/file?path=a.py", None),
    ("get", f"{_JOB}/code/diff", f"{HERE}/jobs/one/code/diff?other=waits", None),
    (
        "get",
        f"{_JOB}/code/diff/file",
        f"{HERE}/jobs/one/code/diff/file?other=waits&path=a.py",
        None,
    ),
    ("get", f"{_JOB}/metrics", f"{HERE}/jobs/one/metrics", None),
    ("get", f"{_JOB}/metrics/chart", f"{HERE}/jobs/one/metrics/chart?key=odd", None),
    ("get", f"{_W}/metrics/chart", f"{HERE}/metrics/chart?job=one&key=loss&key=odd", None),
    ("get", f"{_W}/experiments", f"{HERE}/experiments", None),
    ("get", f"{_W}/computes/{{name}}/nodes", f"{HERE}/computes/local/nodes", None),
    ("get", f"{_W}/computes/{{name}}/history", f"{HERE}/computes/local/history", None),
    ("get", f"{_W}/computes/{{name}}/people", f"{HERE}/computes/local/people", None),
    ("get", "/v1/whoami", "/v1/whoami", None),
    ("get", "/v1/sign-in", "/v1/sign-in", None),
    ("post", "/v1/sign-in/links", "/v1/sign-in/links", {}),
    ("get", "/v1/users", "/v1/users", None),
    ("get", "/v1/users/{name}", "/v1/users/dan", None),
    ("get", "/v1/users/{name}/tokens", "/v1/users/dan/tokens", None),
    ("post", f"{_JOB}/cancel", f"{HERE}/jobs/one/cancel", None),
    ("post", f"{_JOB}/archive", f"{HERE}/jobs/one/archive", None),
    ("post", f"{_JOB}/restore", f"{HERE}/jobs/one/restore", None),
]


def test_real_responses_are_what_their_types_say(site: Served) -> None:
    _hold_a_node(site)
    for method, route, path, body in REQUESTS:
        answer = site.ok("home", method.upper(), path, body)
        BY_ROUTE[method, route].model_validate_json(json.dumps(answer), strict=True)
    made = {"id": _snapshot(site)}
    shown = site.ok("dan", "GET", f"{HERE}/snapshots/{made['id']}")
    BY_ROUTE["get", f"{_W}/snapshots/{{snapshot_id}}"].model_validate_json(
        json.dumps(shown), strict=True
    )
    page = signed_in(site, "rita")
    session = page.ask("POST", "/v1/sign-in/session", {"code": code_of(site, "dan")}).json()
    BY_ROUTE["post", "/v1/sign-in/session"].model_validate_json(json.dumps(session), strict=True)
    seen = {(method, route) for method, route, _, _ in REQUESTS}
    others = {("post", "/v1/sign-in/session"), ("get", f"{_W}/snapshots/{{snapshot_id}}")}
    assert seen | others == set(BY_ROUTE)


def _snapshot(site: Served) -> str:
    files = [{"path": "a.py", "sha256": _blob(site), "size": 1, "mode": "0644"}]
    return str(site.ok("dan", "PUT", f"{HERE}/snapshots", {"files": files})["id"])


def _blob(site: Served) -> str:
    import hashlib

    sha256 = hashlib.sha256(b"x").hexdigest()
    headers = {"Authorization": f"Bearer {site.tokens['dan']}"}
    answer = site.client.put(f"{HERE}/blobs/{sha256}", content=b"x", headers=headers)
    assert answer.status_code == 200, answer.text
    return sha256


def test_a_try_counts_with_its_nodes_and_its_time_within_the_period(site: Served) -> None:
    _hold_a_node(site)
    people = f"{HERE}/computes/local/people"
    person = {"owner": "carl", "job_count": 1, "node_hours": 1.0, "gpu_hours": 0.0}
    assert site.ok("rita", "GET", people)["value"] == [person]
    now = site.parts.services.clock.now()
    start = now - timedelta(minutes=45)
    part = f"?since={start:%Y-%m-%dT%H:%M:%S.%fZ}&until={now:%Y-%m-%dT%H:%M:%S.%fZ}"
    [stored] = site.ok("rita", "GET", people + part)["value"]
    assert stored["node_hours"] == pytest.approx(0.5, abs=0.01)
    late = now - timedelta(minutes=20)
    assert site.ok("rita", "GET", f"{people}?since={late:%Y-%m-%dT%H:%M:%SZ}")["value"] == []


def test_the_document_in_the_repository_is_the_servers() -> None:
    text = openapi_file.text()
    current = CHECKED_IN.read_text(encoding="utf-8")
    assert current == text, "write it: python tools/openapi_file.py ui/openapi.json"
