"""Routes as Azure ML's packages declare them.

    routes = RouteTable("/datastore")

    @routes.get("/default")
    @needs(Permission.READ)
    def get_default(call: AzureCall, services: ServicesOf) -> JSONResponse: ...

Owns: collecting the routes of a module, and making a FastAPI router of them.
Leaves: making a router only when a request comes for it to base/lazy_routes.py, what a route needs
to workspaces/guarded_routes.py.
Always: declaring a route costs nothing; FastAPI analyses its function when `router` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import APIRouter

from torchyard.azureml.common.errors import ALL_METHODS, AzureRoute
from torchyard.workspaces.guarded_routes import GuardedRoute

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


@dataclass(frozen=True)
class _Route:
    methods: Sequence[str]
    path: str
    endpoint: Callable[..., Any]


class RouteTable:
    """The routes of one module, in the order in which they are tried."""

    def __init__(self, prefix: str = "", route_class: type[GuardedRoute] = AzureRoute) -> None:
        self._prefix = prefix
        self._route_class = route_class
        self._routes: list[_Route] = []

    def add(self, methods: Sequence[str], path: str, endpoint: Callable[..., Any]) -> None:
        self._routes.append(_Route(methods, self._prefix + path, endpoint))

    def route(self, methods: Sequence[str], *paths: str) -> Callable[[Endpoint], Endpoint]:
        """Declare the decorated function as the endpoint of each of these paths."""

        def declare(endpoint: Endpoint) -> Endpoint:
            for path in paths:
                self.add(methods, path, endpoint)
            return endpoint

        return declare

    def get(self, *paths: str) -> Callable[[Endpoint], Endpoint]:
        return self.route(["GET"], *paths)

    def post(self, *paths: str) -> Callable[[Endpoint], Endpoint]:
        return self.route(["POST"], *paths)

    def put(self, *paths: str) -> Callable[[Endpoint], Endpoint]:
        return self.route(["PUT"], *paths)

    def patch(self, *paths: str) -> Callable[[Endpoint], Endpoint]:
        return self.route(["PATCH"], *paths)

    def delete(self, *paths: str) -> Callable[[Endpoint], Endpoint]:
        return self.route(["DELETE"], *paths)

    def every_method(self, *paths: str) -> Callable[[Endpoint], Endpoint]:
        return self.route(ALL_METHODS, *paths)

    def router(self) -> APIRouter:
        router = APIRouter(route_class=self._route_class)
        for route in self._routes:
            router.add_api_route(
                route.path,
                route.endpoint,
                methods=list(route.methods),
                response_model=None,
                include_in_schema=False,
            )
        return router
