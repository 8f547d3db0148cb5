"""Every route answers a stranger, and who has a wrong token, before it reads a byte of the body."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from torchyard.app import application
from torchyard.base.lazy_routes import every_route
from torchyard.workspaces.guarded_routes import GuardedRoute
from torchyard.workspaces.permissions import Permission
from workspaces.served import Served, http_scope, served

ONE_DATABASE = True
_VALUES = {
    "workspace": "default",
    "container": "azureml-blobstore-00000000-0000-0000-0000-000000000000",
    "sha256": "0" * 64,
    "path": "a/b",
    "number": "1",
    "version": "1",
}
Header = tuple[bytes, bytes]
_WRONG = (b"authorization", b"Bearer x")
_STRANGERS: list[list[Header]] = [
    [(b"transfer-encoding", b"chunked")],
    [(b"content-length", b"60000000"), _WRONG],
]


# Who signs in has no token yet: its body, of 64 KiB at most, is read.
_SENT_BY_STRANGERS = ("/v1/sign-in/token", "/v1/sign-in/session")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    with served(home, f"sqlite:///{home}/torchyard.db") as made:
        yield made


def _routes(app: Any) -> list[tuple[str, str, GuardedRoute]]:
    """(method, path, route) of all there are."""
    return [
        (method, re.sub(r"{(\w+)(:\w+)?}", lambda name: _VALUES.get(name[1], "x"), path), route)
        for path, route in every_route(app.router.routes)
        if isinstance(route, GuardedRoute)
        for method in sorted(route.methods or ())
    ]


async def _status(app: Any, method: str, path: str, headers: list[Header], address: str) -> int:
    """The status of the answer to a request from `address` whose body never comes.

    Raises:
        AssertionError: it asked for the body.
    """
    statuses: list[int] = []

    async def receive() -> Any:
        raise AssertionError(f"{method} {path} reads the body")

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = http_scope(method, path, headers) | {"client": (address, 50000)}
    await asyncio.wait_for(app(scope, receive, send), 60)
    return statuses[0]


def test_the_token_is_checked_before_any_byte_of_the_body_is_read(site: Served) -> None:
    app = application.create_app(site.parts)
    routes = [route for route in _routes(app) if route[1] not in _SENT_BY_STRANGERS]

    async def ask_all() -> list[str]:
        wrong = []
        for number, (method, path, route) in enumerate(routes):
            # One of its own, for an address that fails often never comes to the routes.
            address = f"10.0.{number // 256}.{number % 256}"
            assert route.needs is not None
            is_open = route.needs.permission is Permission.OPEN
            for headers in _STRANGERS:
                status = await _status(app, method, path, headers, address)
                if not is_open and status not in (401, 403):
                    wrong.append(f"{method} {path} answers {status}")
        return wrong

    assert len(routes) > 300
    assert asyncio.run(ask_all()) == []
