"""Groups of routes: which one answers, when it is made, and that none hides another's routes."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.testclient import TestClient
from starlette.routing import BaseRoute

from torchyard.app import application
from torchyard.base.lazy_routes import LazyRoutes, add_routes, every_route
from torchyard.executors.fake import FakeExecutor

ONE_DATABASE = True


class ImportedGroups:
    """`made` are the groups in the order in which they were made."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def group(self, name: str, *paths: str, within: str = "") -> LazyRoutes:
        def make() -> APIRouter:
            self.made.append(name)
            routes = APIRouter()

            def body(request: Request) -> dict[str, Any]:
                return {"group": name, "params": request.path_params, "path": request.url.path}

            for path in (*paths, *(f"{path}/{{rest:path}}" for path in paths)):
                routes.add_api_route(path or "/", body, methods=["GET"])
            return routes

        return LazyRoutes(paths, make, within)


def _served(*routes: BaseRoute) -> TestClient:
    face = FastAPI(openapi_url=None)
    face.router.routes.extend(routes)
    return TestClient(face)


def test_a_group_is_made_when_it_is_asked_for_and_once() -> None:
    groups = ImportedGroups()
    client = _served(groups.group("jobs", "/{w}/jobs", "/{w}/runs"), groups.group("rest", "/{w}"))
    assert groups.made == []
    assert client.get("/a/jobs/x").json() == {
        "group": "jobs",
        "params": {"w": "a", "rest": "x"},
        "path": "/a/jobs/x",
    }
    assert client.get("/b/runs").json()["group"] == "jobs"
    assert groups.made == ["jobs"]
    assert client.get("/b/jobsters").json()["group"] == "rest"
    assert groups.made == ["jobs", "rest"]


def test_many_first_requests_make_it_once() -> None:
    groups, go = ImportedGroups(), threading.Barrier(8)
    group = groups.group("jobs", "/jobs")

    def ask() -> int:
        go.wait(60)
        return id(group.router)

    with ThreadPoolExecutor(8) as pool:
        matched = [pool.submit(ask) for _ in range(8)]
        assert len({element.result() for element in matched}) == 1
    assert groups.made == ["jobs"]


def test_what_is_before_a_group_is_told_by_name() -> None:
    groups = ImportedGroups()
    inner = LazyRoutes(
        ["/deep"], lambda: add_routes(APIRouter(), groups.group("b", "/deep").router), "/y/{z}"
    )
    outer = LazyRoutes([""], lambda: _with(APIRouter(), inner), within="/x/{w}")
    client = _served(outer, groups.group("rest", "/x"))
    body = client.get("/x/1/y/2/deep").json()
    assert body == {"group": "b", "params": {"w": "1", "z": "2"}, "path": "/x/1/y/2/deep"}
    assert client.get("/x").json()["group"] == "rest"
    assert [path for path, _ in every_route([outer])] == [
        "/x/{w}/y/{z}/deep",
        "/x/{w}/y/{z}/deep/{rest:path}",
    ]


def _with(router: APIRouter, *routes: BaseRoute) -> APIRouter:
    router.routes.extend(routes)
    return router


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/jobs/x/y", 200), ("POST", "/jobs", 405), ("GET", "/job", 404), ("GET", "/", 404)],
)
def test_a_path_or_a_method_that_nobody_has(method: str, path: str, status: int) -> None:
    assert (
        _served(ImportedGroups().group("jobs", "/jobs")).request(method, path).status_code == status
    )


def test_no_group_of_the_server_hides_anothers_routes(tmp_path: Path, database_url: str) -> None:
    """Each path reaches the group that has its route."""
    parts = application.build(
        tmp_path, "http://127.0.0.1:1", os.environ, executor=FakeExecutor(), database=database_url
    )
    try:
        _all_reached(application.create_app(parts).router.routes)
    finally:
        parts.services.db.close()


def _all_reached(routes: list[BaseRoute]) -> None:
    groups = [element for element in routes if isinstance(element, LazyRoutes)]
    for group in groups:
        for path, _ in every_route([group]):
            above = group.within.replace("{", "").replace("}", "")
            client = above + path.removeprefix(group.within).replace("{path:path}", "some/path")
            scope = {"type": "http", "path": client}
            matched = next((element for element in groups if element.matches(scope)[0].value), None)
            catches_all = path.endswith("/{path:path}")
            assert matched is group or catches_all, path
        _all_reached(group.router.routes)
