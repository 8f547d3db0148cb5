"""Routes that are made when the first request comes for one of them.

Owns: which group of routes a path is for, making a group once, groups below a common path.
Leaves: the routes to the packages, which paths belong to which to app/application.py.
Always: a request goes to the first group that claims its path, and no other is made for it; those
that are never requested cost nothing at the start.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

_PART = "[^/]+"


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

    @property
    def router(self) -> APIRouter:
        with self._making:
            if self._made is None:
                self._made = self._make()
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

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        made = self._made
        if made is None:
            made = await run_in_threadpool(lambda: self.router)
        await made(scope, receive, send)


def add_routes(router: APIRouter, *others: APIRouter) -> APIRouter:
    """Give `router` the routes of others, as they are, and return it.

    FastAPI's `include_router` makes every one of them again.
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


def _pattern(path: str, part: str) -> str:
    return re.sub(r"\\{(\w+)\\}", part, re.escape(path))
