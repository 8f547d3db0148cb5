"""Routes that are made when the first request comes for one of them.

Owns: which group of routes a path is for, making a group once, groups below a common path, the
short way to routes that are requested again and again.
Leaves: the routes to the packages, which paths belong to which to app/application.py.
Always: a request goes to the first group that claims its path, and no other is made for it; those
that are never requested cost nothing at the start; a route with a `direct_handler` comes before all
others that match its path.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette._utils import get_route_path
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

_PART = "[^/]+"


class _Direct(NamedTuple):
    """A route that is found by its path alone.

    `handle` needs nothing that FastAPI prepares, and responds to its own errors.
    """

    route: APIRoute
    handle: Callable[[Request], Coroutine[Any, Any, Response]]


class LazyRoutes(BaseRoute):
    """One group.

    Args:
        paths: what the group claims, each with all that is below it; `{name}` stands for one part.
        make: its routes; their paths begin after `within`.
        within: as `/mlflow/{workspace}`: stands before all of them, and gives `path_params`.
        described: whether OpenAPI tells of them.
    """

    def __init__(
        self,
        paths: Sequence[str],
        make: Callable[[], APIRouter],
        within: str = "",
        described: bool = False,
    ) -> None:
        self.within = within
        self.described = described
        above = _pattern(within, rf"(?P<\1>{_PART})")
        claimed = "|".join(_pattern(path, _PART) for path in paths)
        self._claimed = re.compile(rf"(?P<above_>{above})(?:{claimed})(?=/|\Z)")
        self._make = make
        self._making = threading.Lock()
        self._made: APIRouter | None = None
        self._direct: dict[tuple[str, str], _Direct] = {}

    @property
    def router(self) -> APIRouter:
        with self._making:
            if self._made is None:
                made = self._make()
                self._direct = _direct_routes(made)
                self._made = made
        return self._made

    def claims(self, path: str) -> bool:
        return self._claimed.match(path) is not None

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return Match.NONE, {}
        root = scope.get("root_path", "")
        match = self._claimed.match(scope["path"].removeprefix(root))
        if match is None:
            return Match.NONE, {}
        if not self.within:
            return Match.FULL, {}
        texts = match.groupdict()
        above = texts.pop("above_")
        return Match.FULL, {
            "path_params": {**scope.get("path_params", {}), **texts},
            "app_root_path": scope.get("app_root_path", root),
            "root_path": root + above,
        }

    def direct(self, method: str, path: str) -> _Direct | None:
        """The direct route of a whole path that this group was the first to claim."""
        return None if self.within else self._direct.get((method, path))

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        made = self._made
        if made is None:
            made = await run_in_threadpool(lambda: self.router)
        direct = self._direct.get((scope["method"], get_route_path(scope)))
        if direct is None:
            await made(scope, receive, send)
            return
        # Trying a hundred patterns in turn would take longer than to store a metric.
        await _run(direct, scope, receive, send)


class ShortWay:
    """ASGI middleware next to the routes: direct routes that were found before.

    It leaves out what FastAPI and Starlette do for each request between here and there: patterns,
    context for dependencies, layers for errors. All other middleware is outside of it.

    Args:
        routes: the app's.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes = routes
        self._found: dict[tuple[str, str], _Direct] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope.get("root_path"):
            await self._app(scope, receive, send)
            return
        place = scope["method"], scope["path"]
        direct = self._found.get(place)
        if direct is not None:
            await _run(direct, scope, receive, send)
            return
        await self._app(scope, receive, send)
        route = scope.get("route")
        if getattr(route, "direct_handler", None) is not None:
            self._learn(place, route)

    def _learn(self, place: tuple[str, str], route: Any) -> None:
        """Remember a route that was found by its whole path."""
        for group in self._routes:
            if isinstance(group, LazyRoutes):
                direct = group.direct(*place)
                if direct is not None and direct.route is route:
                    self._found[place] = direct
                    return


async def _run(direct: _Direct, scope: Scope, receive: Receive, send: Send) -> None:
    scope["route"], scope["endpoint"] = direct.route, direct.route.endpoint
    response = await direct.handle(Request(scope, receive, send))
    await response(scope, receive, send)


def add_routes(router: APIRouter, *others: APIRouter) -> APIRouter:
    """Give `router` the routes of others, as they are, and return it.

    FastAPI's `include_router` makes every one of them anew.
    """
    for other in others:
        router.routes.extend(other.routes)
    return router


def every_route(routes: Sequence[BaseRoute], above: str = "") -> Iterator[tuple[str, BaseRoute]]:
    """Each with its whole path; groups that were not made yet are made."""
    for route in routes:
        if isinstance(route, LazyRoutes):
            yield from every_route(route.router.routes, above + route.within)
        else:
            yield above + getattr(route, "path", ""), route


def _direct_routes(router: APIRouter) -> dict[tuple[str, str], _Direct]:
    """By method and path, the routes without parameters that have a `direct_handler`."""
    direct: dict[tuple[str, str], _Direct] = {}
    for route in router.routes:
        handle = getattr(route, "direct_handler", None)
        if handle is not None and isinstance(route, APIRoute) and "{" not in route.path:
            for method in route.methods or ():
                direct.setdefault((method, route.path), _Direct(route, handle))
    return direct


def _pattern(path: str, part: str) -> str:
    return re.sub(r"\\{(\w+)\\}", part, re.escape(path))
