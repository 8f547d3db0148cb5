"""The types that routes return, from which OpenAPI describes answers, against real answers."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ConfigDict, TypeAdapter

import openapi_file
from torchyard.base.lazy_routes import every_route
from torchyard.data.datastores import ARTIFACT_STORE, artifacts_of
from torchyard.jobs.records import attempt_store, store
from torchyard.jobs.records.types import Attempt
from torchyard.workspaces.guarded_routes import GuardedRoute
from web.browser_like import code_of, signed_in
from workspaces.served import HERE, JOB, MLFLOW, Served, served

ONE_DATABASE = True
CHECKED_IN = Path(__file__).parents[2] / "ui" / "openapi.json"
ANYWHERE = "/v1/workspaces/{workspace}"
STRICT = ConfigDict(extra="forbid", strict=True)


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path, database_url) as made:
        _fill(made)
        yield made


SWEEP = {
    "type": "sweep",
    "name": "tuned",
    "trial": {"command": "echo ${{search_space.lr}}", "environment": "python"},
    "search_space": {"lr": {"type": "choice", "values": [1, 2]}},
    "sampling_algorithm": "random",
    "objective": {"goal": "minimize", "primary_metric": "loss"},
    "limits": {"max_total_trials": 2},
}


STEPS = {
    "type": "pipeline",
    "name": "steps",
    "jobs": {
        "first": {**JOB, "outputs": {"data": None}},
        "second": {**JOB, "inputs": {"data": "${{parent.jobs.first.outputs.data}}"}},
    },
}


def _fill(site: Served) -> None:
    """A job that waits, a sweep, a job with all that one can have, and a quota."""
    site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "waits"})
    site.ok("home", "POST", f"{HERE}/jobs", SWEEP)
    site.ok("home", "POST", f"{HERE}/jobs", STEPS)
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
    site.ok("home", "PUT", f"{HERE}/quotas", {"limits": {"nodes": 20}})


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


GET_PATHS = (
    f"{HERE}/jobs",
    f"{HERE}/jobs?limit=1&column=metrics&column=params&column=inputs&column=waiting",
    f"{HERE}/jobs/one",
    f"{HERE}/jobs/waits",
    f"{HERE}/jobs/one/files",
    f"{HERE}/jobs/one/outputs",
    f"{HERE}/jobs/one/logs/index?path=user_logs/std_log.txt",
    f"{HERE}/jobs/one/logs/search?path=user_logs/std_log.txt&text=a",
    f"{HERE}/jobs/one/preview?path=outputs/t.csv",
    f"{HERE}/jobs/one/preview?path=user_logs/std_log.txt",
    f"{HERE}/jobs/one/code",
    f"{HERE}/jobs/one/code/file?path=a.py",
    f"{HERE}/jobs/one/code/diff?other=waits",
    f"{HERE}/jobs/one/code/diff/file?other=waits&path=a.py",
    f"{HERE}/jobs/one/metrics",
    f"{HERE}/jobs/one/metrics/chart?key=odd",
    f"{HERE}/jobs/one/metrics/chart?key=loss&x=time&width=1",
    f"{HERE}/metrics/chart?job=one&key=loss&key=odd",
    f"{HERE}/metrics/comparison?job=one&job=waits",
    f"{HERE}/experiments",
    f"{HERE}/computes/local/nodes",
    f"{HERE}/computes/local/history",
    f"{HERE}/computes/local/people",
    f"{HERE}/computes/local/engine",
    f"{HERE}/sweeps/tuned/trials",
    f"{HERE}/sweeps/tuned/importances",
    f"{HERE}/sweeps/tuned/rungs",
    f"{HERE}/pipelines/steps/steps",
    f"{HERE}/explanations/steps",
    f"{HERE}/explanations/waits",
    f"{HERE}/lineage/jobs/one",
    f"{HERE}/blobs/{'0' * 64}/part",
    "/v1/whoami",
    "/v1/sign-in",
    "/v1/users",
    "/v1/users/dan",
    "/v1/users/dan/tokens",
)
OTHER_REQUESTS: tuple[tuple[str, str, Any], ...] = (
    ("PATCH", f"{HERE}/jobs/one", {"description": "x"}),
    ("POST", f"{HERE}/jobs/one/cancel", None),
    ("POST", f"{HERE}/jobs/one/archive", None),
    ("POST", f"{HERE}/jobs/one/restore", None),
    ("POST", f"{HERE}/jobs", {**JOB, "name": "two"}),
    ("POST", f"{HERE}/sweeps/tuned/extend", {"max_total_trials": 5}),
    ("POST", f"{HERE}/jobs/steps/cancel", None),
    ("POST", "/v1/sign-in/links", {}),
    ("POST", "/v1/users", {"name": "ann"}),
    ("POST", "/v1/users/ann/tokens", {"name": "a"}),
    ("POST", "/v1/users/ann/tokens/a/rotate", {}),
    ("PUT", "/v1/users/ann/role", {"role": "reader"}),
    ("PUT", f"{HERE}/people/ann", {"role": "reader"}),
    ("POST", f"{HERE}/quota-requests", {"name": "nodes", "most": 30, "reason": "x"}),
    ("GET", f"{HERE}/quotas", None),
    ("GET", f"{HERE}/quota-requests", None),
)


# They take a running job or one that has ended, a sign-in provider, or what another answer tells;
# lineages of assets are as those of jobs.
UNSEEN = {
    ("POST", f"{ANYWHERE}/jobs/{{name}}/preempt"),
    ("POST", f"{ANYWHERE}/pipelines/{{name}}/retry"),
    ("POST", f"{ANYWHERE}/jobs/{{name}}/release"),
    ("GET", f"{ANYWHERE}/lineage/data/{{name}}/versions/{{version}}"),
    ("GET", f"{ANYWHERE}/lineage/models/{{name}}/versions/{{version}}"),
    ("POST", f"{ANYWHERE}/jobs/{{name}}/services/{{service}}/link"),
    ("POST", f"{ANYWHERE}/jobs/{{name}}/shells"),
    ("POST", "/v1/sign-in/token"),
    ("POST", f"{ANYWHERE}/quota-requests/{{request_id}}/approve"),
    ("POST", f"{ANYWHERE}/quota-requests/{{request_id}}/deny"),
}


def test_real_answers_are_what_their_routes_return(site: Served) -> None:
    _hold_a_node(site)
    answers = [("GET", path, site.ok("home", "GET", path)) for path in GET_PATHS]
    for method, path, body in OTHER_REQUESTS:
        answers.append((method, path, site.ok("home", method, path, body)))
    path = f"{HERE}/snapshots/{_snapshot(site)}"
    answers.append(("GET", path, site.ok("dan", "GET", path)))
    page, path = signed_in(site, "rita"), "/v1/sign-in/session"
    answers.append(("POST", path, page.ask("POST", path, {"code": code_of(site, "dan")}).json()))
    described, seen = _described(site), set()
    for method, path, answer in answers:
        route = _route(described[method], path)
        # A list hands its configuration down to the types in it.
        types: Any = list[route.answer]  # type: ignore[name-defined]
        TypeAdapter(types, config=STRICT).validate_json(json.dumps([answer]))
        seen.add((method, route.path_format))
    unseen = {(method, route.path_format) for method in described for route in described[method]}
    assert unseen - seen == UNSEEN


def _described(site: Served) -> dict[str, list[GuardedRoute]]:
    """By method."""
    app: Any = site.client.app
    described = defaultdict[str, list[GuardedRoute]](list)
    for _, route in every_route(app.router.routes):
        if isinstance(route, GuardedRoute) and route.answer is not None:
            for method in route.methods or ():
                described[method].append(route)
    return described


def _route(routes: list[GuardedRoute], path: str) -> GuardedRoute:
    return next(route for route in routes if route.path_regex.match(path.partition("?")[0]))


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
