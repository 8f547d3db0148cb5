"""Which paths each group of routes has, and which modules hold its routes.

Owns: the table, importing a group's modules when the first request for it comes.
Leaves: finding a request's group to base/lazy_routes.py, the routes to their modules.
Always: each module has its routes as `router`; a group that nobody requests is never imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module

from fastapi import APIRouter

from torchyard import azureml, mlflow
from torchyard.base.lazy_routes import LazyRoutes, add_routes


@dataclass(frozen=True)
class Group:
    """Routes that are imported together.

    Args:
        modules: below `torchyard`.
        within: a path that all of `paths` are below; see LazyRoutes.
        described: whether OpenAPI describes them.
    """

    paths: Sequence[str]
    modules: Sequence[str]
    within: str = ""
    described: bool = True


_W = "/v1/workspaces/{workspace}"
# The first group that claims a path serves it, so those with the most requests come first.
GROUPS: tuple[Group, ...] = (
    Group([""], ["mlflow.routes"], within="/mlflow/{workspace}", described=False),
    Group(mlflow.PATHS, ["mlflow.routes"], described=False),
    Group(
        ["/v1/attempts"],
        ["jobs.http.worker_routes", "jobs.http.node_routes", "jobs.http.tunnel_routes"],
    ),
    Group(
        [f"{_W}/jobs", f"{_W}/metrics"],
        [
            "jobs.http.routes",
            "jobs.http.deletion_routes",
            "jobs.http.history_routes",
            "jobs.http.file_routes",
            "interactive.job_routes",
        ],
    ),
    Group([f"{_W}/sweeps"], ["sweeps.http.routes"]),
    Group([f"{_W}/instances"], ["instances.routes"]),
    Group([f"{_W}/online-endpoints"], ["endpoints.http.routes"]),
    Group([f"{_W}/batch-endpoints"], ["batch_endpoints.http.routes"]),
    # For Prometheus, which reads no description.
    Group([f"{_W}/endpoint-metrics"], ["app.monitoring.endpoint_metrics"], described=False),
    Group([f"{_W}/shells"], ["interactive.shell_routes"]),
    Group([f"{_W}/blobs", f"{_W}/snapshots"], ["data.routes"]),
    Group([f"{_W}/environments"], ["environments.routes"]),
    Group(
        [f"{_W}/environment-releases", f"{_W}/release-schedules", f"{_W}/advisories"],
        ["releases.routes"],
    ),
    Group(
        [f"{_W}/computes", f"{_W}/compute-sizes"],
        ["compute.routes", "jobs.http.cluster_routes"],
    ),
    Group([f"{_W}/machines", "/v1/invitations"], ["compute.machine_routes"]),
    Group([f"{_W}/data", f"{_W}/datastores", f"{_W}/url-maps"], ["data.asset_routes"]),
    Group([f"{_W}/models"], ["models.routes"]),
    Group([f"{_W}/components"], ["components.routes"]),
    Group([f"{_W}/experiments"], ["jobs.http.experiment_routes"]),
    Group([f"{_W}/bundle"], ["jobs.http.bundle_routes"]),
    Group([f"{_W}/quotas", f"{_W}/quota-requests"], ["workspaces.quota_routes"]),
    Group(
        ["/v1/whoami", "/v1/users", "/v1/audit", f"{_W}/people", f"{_W}/audit"],
        ["workspaces.people_routes"],
    ),
    Group(["/v1/sign-in"], ["sign_in.routes", "web.session_routes"]),
    Group([f"{_W}/events"], ["web.event_routes"]),
    Group(["/ui"], ["web.static_routes"], described=False),
    Group(["/v1/workspaces"], ["workspaces.routes"]),
    Group(["/v1/gc", "/v1/disk"], ["jobs.http.reclaiming_routes"]),
    Group(azureml.ENTRY_PATHS, ["azureml.entry_routes"], described=False),
    Group(azureml.PATHS, ["azureml.apis"], described=False),
)


def lazy_routes() -> list[LazyRoutes]:
    """Every group, ready to be mounted; nothing is imported yet."""
    return [
        LazyRoutes(group.paths, partial(_load, group.modules), group.within, group.described)
        for group in GROUPS
    ]


def _load(modules: Sequence[str]) -> APIRouter:
    routers = (import_module(f"torchyard.{module}").router for module in modules)
    return add_routes(APIRouter(), *routers)
