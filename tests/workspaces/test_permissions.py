"""Every route of the server, asked by every role: who may, who may not, and what they are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter
from starlette.routing import BaseRoute

from torchyard.azureml.common.containers import container
from torchyard.base import lazy_routes
from torchyard.workspaces import people
from torchyard.workspaces.guarded_routes import GuardedRoute, Needs, needs
from torchyard.workspaces.permissions import (
    DENIED_TO_JOBS,
    MINIMUM_ROLE,
    OWN_BELOW_OWNER,
    OWN_JOBS_ONLY,
    SERVER_WIDE,
    Permission,
)
from torchyard.workspaces.types import Role, role_named
from workspaces.served import HERE, JOB, MLFLOW, PEOPLE, Served, served

ONE_DATABASE = True

_TEXTS = {
    "workspace": "default", "name": "nothing", "attempt_id": "a", "sha256": "0" * 64,
    "snapshot_id": "0" * 64, "version": "1", "output": "out", "path": "a/b", "number": "1",
    "upload": "0" * 32, "hash": "0" * 64, "model_id": "m-1", "key": "k", "token": "t",
    "request_id": "r", "subscription": "local", "group": "torchyard",
    "experiment": "nothing", "node": "0", "question": "details", "asset": "nothing",
    "id": "nothing", "run": "nothing", "label": "latest", "origin": "ExperimentRun",
    "model": "nothing:1", "compute": "nothing", "rest": "image",
    "input_name": "data", "machine": "nothing", "location": "local",
    "service": "nothing", "instance": "nothing", "parent": "nothing",
    "run_id": "nothing", "endpoint": "nothing", "deployment": "nothing",
    "environment": "nothing", "job": "nothing",
    "container": container("default", "workspaceblobstore"),
}  # fmt: skip


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path, database_url) as made:
        yield made


def every_permission(site: Served) -> dict[tuple[str, str], Permission | None]:
    """What each (method, path) needs, MLflow's with and without a workspace."""
    app: Any = site.client.app
    return {
        (method, path): _permission_of(route)
        for path, route in lazy_routes.every_route(app.routes)
        for method in getattr(route, "methods", None) or ()
    }


def _permission_of(route: BaseRoute) -> Permission | None:
    declared: Needs | None = getattr(route, "needs", None)
    return None if declared is None else declared.permission


def every_route(site: Served) -> list[tuple[str, str]]:
    return list(every_permission(site))


def filled(path: str) -> str:
    for name, text in _TEXTS.items():
        path = path.replace(f"{{{name}}}", text).replace(f"{{{name}:path}}", text)
    assert "{" not in path, f"say in _TEXTS what stands for a part of {path}"
    return path


def test_every_route_has_its_permission(site: Served) -> None:
    permissions = every_permission(site)
    assert len(permissions) > 250
    assert {route for route, permission in permissions.items() if permission is None} == set()


def test_a_route_that_declares_nothing_is_not_made() -> None:
    router = APIRouter(route_class=GuardedRoute)

    def forgotten() -> None: ...

    with pytest.raises(AssertionError, match=r"route `/here` .*forgotten.* declares no"):
        router.get("/here")(forgotten)
    with pytest.raises(AssertionError, match="already declares"):
        needs(Permission.READ)(needs(Permission.WRITE)(forgotten))


def test_the_openapi_has_no_other_routes(site: Served) -> None:
    app: Any = site.client.app
    routes = {(method.lower(), path) for method, path in every_route(site)}
    for path, methods in app.openapi()["paths"].items():
        for method in methods:
            plain = path.replace(":path}", "}")
            assert any(
                (method, route_path.replace(":path}", "}")) == (method, plain)
                for route_method, route_path in routes
                if route_method == method
            ), path


@pytest.mark.parametrize("who", [*PEOPLE, "stranger"])
def test_every_route_as_every_role(site: Served, who: str) -> None:
    """Anyone who lacks the permission is refused at every route, before anything changes."""
    if who == "stranger":
        site.add(who, None)
    role = role_named(PEOPLE[who]) if who in PEOPLE else None
    before = site.rows()
    refused = allowed = 0
    for (method, path), permission in every_permission(site).items():
        assert permission is not None
        if permission is not Permission.SERVER and permission not in MINIMUM_ROLE:
            continue
        least = MINIMUM_ROLE[permission]
        may = role is not None and role.rank >= least.rank and permission not in SERVER_WIDE
        if may:
            allowed += 1
            continue
        answer = site.ask(who, method, filled(path), {})
        assert answer.status_code == 403, (method, path, answer.text[:300])
        refused += 1
    assert site.rows() == before
    assert refused > {"olga": 5, "carl": 10, "dan": 20, "rita": 120, "stranger": 250}[who]
    assert allowed > {"olga": 240, "carl": 240, "dan": 220, "rita": 80, "stranger": -1}[who]


@pytest.mark.slow
def test_a_reader_changes_nothing(site: Served) -> None:
    """At the routes that a reader may ask, too, whatever is sent to them."""
    site.ok("carl", "POST", f"{HERE}/jobs", {**JOB, "name": "one"})
    before = site.rows()
    for (method, path), permission in every_permission(site).items():
        assert permission is not None
        if (
            permission in (Permission.READ, Permission.SELF, Permission.OPEN)
            and "stream" not in path
            # 503 is what these are for, and no scheduler runs here.
            and path not in ("/livez", "/readyz")
            # It makes a code for the person to sign in by.
            and path != "/v1/sign-in/links"
        ):
            path = filled(path.replace("{name}", "one"))
            for body in (None, {}, {"name": "new", "experiment_id": "0"}):
                if "tokens" in path:
                    path = path.replace("/users/one/", "/users/carl/")
                answer = site.ask("rita", method, path, body)
                # 501 is said of what Azure has and torchyard has not.
                assert answer.status_code < 500 or answer.status_code == 501, (method, path)
    assert site.rows() == before


def test_the_words_of_a_refusal(site: Served) -> None:
    error = site.refused("dan", "PUT", f"{HERE}/computes/gpu-cluster", {})
    assert error["code"] == "forbidden"
    assert error["message"] == (
        "`dan` is a data scientist in workspace `default`; the role `contributor` is "
        "required to create, change or delete compute"
    )
    assert "`olga` or `" in error["hint"] and "(owners)" in error["hint"]
    assert "yard user role dan 'contributor' -w default" in error["hint"]
    body = site.refused("rita", "POST", f"{MLFLOW}/runs/create", {"experiment_id": "0"})
    assert body["error_code"] == "PERMISSION_DENIED" and "`rita` is a reader" in body["message"]
    site.add("nina", None)
    error = site.refused("nina", "GET", f"{HERE}/jobs")
    assert "`nina` has no role in workspace `default`" in error["message"]
    assert site.ok("nina", "GET", "/v1/workspaces")["value"] == []


def test_a_data_scientist_uses_what_exists(site: Served) -> None:
    site.ok("carl", "PUT", f"{HERE}/computes/gpu-cluster", {})
    made = site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "compute": "gpu-cluster"})
    assert site.ok("dan", "POST", f"{HERE}/jobs/{made['name']}/cancel")["status"] == "Canceled"
    site.refused("dan", "DELETE", f"{HERE}/computes/gpu-cluster")


def test_own_jobs_and_those_of_others(site: Served) -> None:
    for who in ("dan", "carl"):
        site.ok(who, "POST", f"{HERE}/jobs", {**JOB, "name": f"of-{who}"})
    for method, verb in (("POST", "/cancel"), ("POST", "/archive"), ("PATCH", ""), ("DELETE", "")):
        error = site.refused("dan", method, f"{HERE}/jobs/of-carl{verb}", {})
        assert "belongs to `carl`" in error["message"] and "ask `carl`" in error["hint"]
    for who in ("dan", "carl"):
        site.ok("carl", "POST", f"{HERE}/jobs/of-{who}/cancel")
    error = site.refused("dan", "POST", f"{HERE}/jobs/delete", {"names": ["of-dan", "of-carl"]})
    assert "belongs to `carl`" in error["message"]
    site.ok("dan", "POST", f"{HERE}/jobs/delete", {"names": ["of-dan"]})


@pytest.mark.parametrize(
    ("who", "owner", "permissions"),
    [("dan", "carl", OWN_JOBS_ONLY | OWN_BELOW_OWNER), ("carl", "dan", OWN_BELOW_OWNER)],
)
def test_no_route_changes_or_enters_a_job_of_another(
    site: Served, who: str, owner: str, permissions: frozenset[Permission]
) -> None:
    site.ok(owner, "POST", f"{HERE}/jobs", {**JOB, "name": "other"})
    before = site.rows()
    routes = [
        (method, filled(path.replace("{name}", "other")))
        for (method, path), permission in every_permission(site).items()
        if permission in permissions and path.startswith("/v1/") and "{name}" in path
    ]
    body = {"max_total_trials": 9, "display_name": "mine"}
    for method, path in routes:
        refused = site.refused(who, method, path, {} if "shells" in path else body)
        assert f"job `other` belongs to `{owner}`" in refused["message"], (method, path)
    assert len(routes) == {"dan": 11, "carl": 2}[who]
    assert site.rows() == before


def test_child_jobs_of_others_are_protected(site: Served) -> None:
    site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "above"})
    site.ok("carl", "POST", f"{HERE}/jobs", {**JOB, "name": "below", "parent_job_name": "above"})
    for name in ("above", "below"):
        site.ok("carl", "POST", f"{HERE}/jobs/{name}/cancel")
    for method, path, body in (
        ("DELETE", "/above", None),
        ("POST", "/delete", {"names": ["above"]}),
    ):
        error = site.refused("dan", method, f"{HERE}/jobs{path}", body)
        assert "job `below` belongs to `carl`" in error["message"]
    site.ok("dan", "GET", f"{HERE}/jobs/below")
    assert site.ok("carl", "DELETE", f"{HERE}/jobs/above")["deleted"] == ["above", "below"]


def test_own_runs_and_those_of_others(site: Served) -> None:
    """A tracking client may call the run's user what it likes; the token counts."""
    runs = {}
    for who, refusal_id in (("dan", "daniel"), ("carl", "dan")):
        run = {"experiment_id": "0", "start_time": 1, "user_id": refusal_id}
        made = site.ok(who, "POST", f"{MLFLOW}/runs/create", run)["run"]["info"]
        assert made["user_id"] == refusal_id
        runs[who] = made["run_id"]
    metric = {"key": "m", "value": 1, "timestamp": 1}
    for path, body in (
        ("log-metric", metric),
        ("log-parameter", {"key": "p", "value": "1"}),
        ("log-batch", {"metrics": [metric]}),
        ("set-tag", {"key": "t", "value": "1"}),
        ("update", {"status": "FINISHED"}),
        ("delete", {}),
    ):
        refusal_id = site.refused(
            "dan", "POST", f"{MLFLOW}/runs/{path}", {"run_id": runs["carl"], **body}
        )
        assert "belongs to `carl`" in refusal_id["message"], path
        site.ok("dan", "POST", f"{MLFLOW}/runs/{path}", {"run_id": runs["dan"], **body})
    files = "/mlflow/default/api/2.0/mlflow-artifacts/artifacts/0"
    assert site.ask("dan", "PUT", f"{files}/{runs['carl']}/artifacts/a").status_code == 403
    assert site.ask("dan", "DELETE", f"{files}/{runs['carl']}/artifacts/a").status_code == 403
    site.ok("dan", "PUT", f"{files}/{runs['dan']}/artifacts/a")


@pytest.mark.slow
@pytest.mark.parametrize("owner", ["olga", "carl", "dan"])
def test_a_job_has_its_owners_permissions(site: Served, owner: str) -> None:
    site.ok(owner, "POST", f"{HERE}/jobs", {**JOB, "name": "one"})
    site.job_token("one", owner)
    who = f"job of {owner}"
    site.ok(who, "POST", f"{HERE}/jobs", {**JOB, "name": "child"})
    site.ok(who, "POST", f"{MLFLOW}/runs/set-tag", {"run_id": "one", "key": "a", "value": "b"})
    made = site.ask(who, "PUT", f"{HERE}/computes/new", {})
    assert made.status_code == (403 if owner == "dan" else 200)
    for (method, path), permission in every_permission(site).items():
        if permission in DENIED_TO_JOBS:
            refusal = site.refused(who, method, filled(path), {})
            assert "a job's token may not" in str(refusal), path
    for path in ("/v1/users", f"/v1/users/{owner}", f"/v1/users/{owner}/tokens"):
        site.refused(who, "GET", path)
    site.refused(who, "POST", f"/v1/users/{owner}/tokens", {"name": "mine"})
    site.ok("home", "POST", "/v1/workspaces", {"name": "vision"})
    site.refused(who, "GET", "/v1/workspaces/vision/jobs")
    whoami = site.ok(who, "GET", "/v1/whoami")
    assert (whoami["user"], whoami["job"], whoami["workspace"]) == (owner, "one", "default")


def test_nothing_acts_for_an_owner_who_is_gone(site: Served) -> None:
    site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "one"})
    site.ok("carl", "POST", f"{HERE}/jobs", {**JOB, "name": "other"})
    site.job_token("one", "dan")
    site.ok("home", "DELETE", "/v1/users/dan")
    tag = {"key": "a", "value": "b"}
    for who in ("dan", "job of dan"):
        for method, path, body in (
            ("POST", f"{MLFLOW}/runs/set-tag", {"run_id": "one", **tag}),
            ("GET", f"{HERE}/jobs/one", None),
            ("GET", f"{HERE}/data", None),
            ("POST", f"{HERE}/jobs", JOB),
            ("GET", "/v1/whoami", None),
        ):
            assert site.ask(who, method, path, body).status_code == 401, (who, path)


@pytest.mark.parametrize("role", [None, Role.READER])
def test_a_jobs_token_is_refused_while_its_owner_has_no_role_to_run_it(
    site: Served, role: Role | None
) -> None:
    site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "one"})
    site.job_token("one", "dan")
    services, secret = site.parts.services, site.tokens["job of dan"]
    site.ok("job of dan", "GET", f"{HERE}/jobs/one")
    # As a sign-in or another server takes it: the job has not been stopped yet.
    people.set_role(services.db, services.clock, "dan", "default", role, "home")
    for method, path, body in (
        ("POST", f"{MLFLOW}/runs/set-tag", {"run_id": "one", "key": "a", "value": "b"}),
        ("GET", f"{HERE}/jobs/one", None),
        ("GET", "/v1/whoami", None),
        ("POST", f"{HERE}/jobs", JOB),
    ):
        assert site.refused("job of dan", method, path, body), path
    identity = site.client.get("/msi/token?resource=x", headers={"secret": secret})
    assert identity.status_code == 403
    site.ok("home", "PUT", f"{HERE}/people/dan", {"role": "data-scientist"})
    site.ok("job of dan", "GET", f"{HERE}/jobs/one")


def test_roles_in_any_spelling() -> None:
    for text in ("data-scientist", "Data Scientist", "DATA_SCIENTIST", "AzureML Data Scientist"):
        assert role_named(text) is Role.DATA_SCIENTIST
    with pytest.raises(Exception, match="no role `ownr`") as raised:
        role_named("ownr")
    assert "did you mean `owner`?" in raised.value.hint  # type: ignore[attr-defined]


def test_a_job_of_another_person_is_not_taken_for_the_same(site: Served) -> None:
    job = {**JOB, "name": "the-next-trial"}
    site.ok("dan", "POST", f"{HERE}/jobs", job)
    assert site.ask("dan", "POST", f"{HERE}/jobs", job).status_code in (200, 201)
    answer = site.ask("carl", "POST", f"{HERE}/jobs", job)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "job_exists")
