"""Which paths each group of routes has, and which modules hold its routes.

Owns: the table, importing a group's modules when the first request for it comes.
Leaves: finding a request's group to base/lazy_routes.py, the routes to their modules.
Always: each module has its routes as `router`; a group that is never asked for is never imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module

from fastapi import APIRouter

from torchyard.base.lazy_routes import LazyRoutes, add_routes

_W = "/v1/workspaces/{workspace}"
# Those first that are asked for most often: the first group that claims a path has it.
NATIVE: tuple[tuple[Sequence[str], Sequence[str]], ...] = (
    (["/v1/attempts"], ["jobs.http.worker_routes"]),
    (
        [f"{_W}/jobs", f"{_W}/metrics"],
        ["jobs.http.routes", "jobs.http.deletion_routes", "jobs.http.history_routes"],
    ),
    ([f"{_W}/blobs", f"{_W}/snapshots"], ["data.routes"]),
    ([f"{_W}/environments"], ["environments.routes"]),
    (
        [f"{_W}/computes", f"{_W}/compute-sizes"],
        ["compute.routes", "jobs.http.cluster_routes"],
    ),
    ([f"{_W}/data", f"{_W}/datastores", f"{_W}/url-maps"], ["data.asset_routes"]),
    ([f"{_W}/models"], ["models.routes"]),
    ([f"{_W}/components"], ["components.routes"]),
    ([f"{_W}/experiments"], ["jobs.http.experiment_routes"]),
    ([f"{_W}/bundle"], ["jobs.http.bundle_routes"]),
    ([f"{_W}/quotas", f"{_W}/quota-requests"], ["workspaces.quota_routes"]),
    (
        ["/v1/whoami", "/v1/users", "/v1/audit", f"{_W}/people", f"{_W}/audit"],
        ["workspaces.people_routes"],
    ),
    (["/v1/workspaces"], ["workspaces.routes"]),
    (["/v1/gc"], ["jobs.http.reclaiming_routes"]),
)


def native() -> list[LazyRoutes]:
    """The groups of the native API, which OpenAPI describes."""
    return [group(paths, modules, described=True) for paths, modules in NATIVE]


def group(
    paths: Sequence[str], modules: Sequence[str], within: str = "", described: bool = False
) -> LazyRoutes:
    """
    Args:
        modules: below `torchyard`; see LazyRoutes for the others.
    """
    return LazyRoutes(paths, partial(_load, modules), within, described)


def _load(modules: Sequence[str]) -> APIRouter:
    routers = (import_module(f"torchyard.{module}").router for module in modules)
    return add_routes(APIRouter(), *routers)
