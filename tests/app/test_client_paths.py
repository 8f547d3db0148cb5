"""Every path that the command, the SDK and the node agent request is a route of the server."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from torchyard.base import lazy_routes
from torchyard.base.clock import FakeClock
from workspaces.served import served

ONE_DATABASE = True

SOURCE = Path(__file__).resolve().parents[2] / "src" / "torchyard"
CLIENTS = ("client", "cli", "notebook", "node_agent")
# The path is the first argument of these methods of a Transport, the second of those.
PATH_FIRST = {"get": "GET", "post": "POST", "put": "PUT", "delete": "DELETE", "stream": ""}
PATH_SECOND = ("call", "send")
# What stands in a path for a value: one segment, or several of a prefix that a caller passes.
VALUE = "{}"


class Request(NamedTuple):
    where: str
    method: str  # empty for any
    path: str


class Source:
    """One module, whose expressions are read as the paths that they may be."""

    def __init__(self, file: Path) -> None:
        self.name = file.relative_to(SOURCE).as_posix()
        self.tree = ast.parse(file.read_text())
        self.values: dict[str, list[ast.expr]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef):
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Return) and inner.value is not None:
                        self.values.setdefault(node.name, []).append(inner.value)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                self.values.setdefault(node.targets[0].attr, []).append(node.value)

    def requests(self) -> Iterator[Request]:
        functions = [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)]
        for function in functions:
            local: dict[str, list[ast.expr]] = {}
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    local.setdefault(node.targets[0].id, []).append(node.value)
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    yield from self._requests(node, node.func, local)

    def _requests(
        self, call: ast.Call, func: ast.Attribute, local: dict[str, list[ast.expr]]
    ) -> Iterator[Request]:
        if not ast.unparse(func.value).endswith("transport"):
            return
        if func.attr in PATH_FIRST and call.args:
            method, path = PATH_FIRST[func.attr], call.args[0]
        elif func.attr in PATH_SECOND and isinstance(call.args[0], ast.Constant):
            method, path = str(call.args[0].value), call.args[1]
        else:
            return
        for each in self._paths(path, local, 0):
            yield Request(f"{self.name}:{call.lineno}", method, each)

    def _paths(self, node: ast.expr, local: dict[str, list[ast.expr]], depth: int) -> set[str]:
        """What the expression may be; VALUE where it says nothing of it."""
        name = ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return {node.value}
        if isinstance(node, ast.JoinedStr):
            return self._joined(node.values, local, depth)
        if isinstance(node, ast.FormattedValue):
            return self._paths(node.value, local, depth)
        if isinstance(node, ast.BinOp):
            return self._joined([node.left, node.right], local, depth)
        if isinstance(node, ast.IfExp):
            return self._joined([node.body], local, depth) | self._joined(
                [node.orelse], local, depth
            )
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("self."):
            name = ast.unparse(node.func).removeprefix("self.")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
        elif isinstance(node, ast.Attribute):
            name = node.attr
        elif isinstance(node, ast.Name):
            name = node.id
        values = local.get(name) if isinstance(node, ast.Name) else self.values.get(name)
        if not values or depth > 8:
            return {VALUE}
        return set().union(*(self._paths(value, local, depth + 1) for value in values))

    def _joined(
        self, nodes: list[ast.expr], local: dict[str, list[ast.expr]], depth: int
    ) -> set[str]:
        parts = [self._paths(node, local, depth) for node in nodes]
        return {"".join(words) for words in itertools.product(*parts)}


def is_route(request: Request, routes: set[tuple[str, str]]) -> bool:
    """Whether some route has the path; VALUE at its beginning is a prefix of any length."""
    segments = request.path.split("/")
    for method, path in routes:
        there = path.split("/")
        if segments[0] == VALUE:
            there = there[-len(segments) + 1 :]
            there.insert(0, VALUE)
        if request.method in (method, "") and len(there) == len(segments):
            if all(map(_is_segment, segments, there)):
                return True
    return False


def _is_segment(requested: str, served: str) -> bool:
    """Whether they are one word; or the request has a value, and the route a parameter or a word.

    A word of a request is never a parameter's value, so a mistyped one is not taken for a name.
    """
    return requested == served or bool(
        VALUE in requested and re.fullmatch(re.escape(requested).replace(r"\{\}", ".+"), served)
    )


@pytest.fixture
def routes(tmp_path: Path, database_url: str, clock: FakeClock) -> Iterator[set[tuple[str, str]]]:
    with served(tmp_path, database_url, clock) as site:
        app: Any = site.client.app
        yield {
            (method, path)
            for path, route in lazy_routes.every_route(app.routes)
            for method in getattr(route, "methods", None) or ()
        }


def test_every_path_that_a_client_requests_is_a_route(routes: set[tuple[str, str]]) -> None:
    requests = [
        request
        for top in CLIENTS
        for file in sorted((SOURCE / top).rglob("*.py"))
        for request in Source(file).requests()
        if re.search(r"[a-z]", request.path)
    ]
    assert len(requests) > 150
    assert [str(each) for each in requests if not is_route(each, routes)] == []


@pytest.mark.parametrize(
    ("method", "path", "is_there"),
    [
        ("GET", "/v1/workspaces/{}/computes", True),
        ("GET", "{}/jobs/{}/metrics", True),
        ("", "{}/jobs/{}/metrics/export", True),
        ("GET", "{}/jobs/{}/metric", False),
        ("PUT", "{}/jobs/{}/metrics", False),
        ("GET", "/v1/workspaces/{}/compute", False),
        ("GET", "/v1/workspaces/default/computes", False),
    ],
)
def test_a_mistyped_path_is_not_a_route(
    method: str, path: str, is_there: bool, routes: set[tuple[str, str]]
) -> None:
    assert is_route(Request("here", method, path), routes) == is_there
