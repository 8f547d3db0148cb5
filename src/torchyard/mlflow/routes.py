"""MLflow's REST API: what server.py mounts.

Owns: putting the routes together, what an MLflow server tells of itself.
Leaves: experiments, runs, artifacts and models to the modules beside.
Always: an endpoint we lack answers as an MLflow server without it, so that clients go on.
"""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from torchyard.base.lazy_routes import add_routes
from torchyard.jobs.history.history import History
from torchyard.jobs.records.types import Job
from torchyard.mlflow import (
    artifact_routes,
    experiment_routes,
    logged_model_routes,
    metric_routes,
    multipart_routes,
    registry_routes,
    run_routes,
    version_routes,
)
from torchyard.mlflow.calls import Authenticate, Caller, MaskerOf
from torchyard.mlflow.errors import MlflowRoute, NoSuchEndpoint
from torchyard.mlflow.registry import Registry
from torchyard.mlflow.runs import Runs
from torchyard.workspaces.types import Identity

# The API we speak; clients ask to know what they may try.
MLFLOW_VERSION = "2.22.0"
PATHS = ("/api", "/ajax-api", "/get-artifact", "/model-versions", "//model-versions", "/version")
"""What the routes here are below."""
_ALL = ["GET", "POST", "PUT", "PATCH", "DELETE"]


class _AsApi:
    """MLflow's page asks below `/ajax-api/` what its clients ask below `/api/`."""

    def __init__(self, api: ASGIApp) -> None:
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].replace("/ajax-api/", "/api/", 1)
        await self._api({**scope, "path": path, "raw_path": path.encode()}, receive, send)


def _unchanged(job: Job) -> None:
    return None


def router(
    runs: Runs,
    registry: Registry,
    history: History,
    authenticate: Authenticate,
    changed: Callable[[Job], None] = _unchanged,
    masker_of: MaskerOf | None = None,
) -> APIRouter:
    """The whole API, for below `/mlflow/{workspace}` and, without that, for `PATHS`.

    Args:
        authenticate: from a request to who asks; reads the workspace in `path_params`, if any.
        changed: told of every run whose history, tags or status a request changed.
        masker_of: what hides the secrets of who asks, in all that he writes but files.
    """
    routes = APIRouter(route_class=MlflowRoute, include_in_schema=False)
    call = Caller(authenticate, masker_of) if masker_of else Caller(authenticate)
    add_routes(
        routes,
        run_routes.router(runs, registry, history, call, changed),
        experiment_routes.router(runs, call),
        artifact_routes.router(runs, registry, authenticate, call),
        multipart_routes.router(runs, registry, authenticate, call),
        metric_routes.router(runs, history, call),
        registry_routes.router(registry, call),
        version_routes.router(registry, call),
        logged_model_routes.router(registry, runs, call),
    )

    @routes.get("/version")
    def version() -> PlainTextResponse:
        return PlainTextResponse(MLFLOW_VERSION)

    @routes.get("/api/3.0/mlflow/server-info")
    def server_info() -> dict[str, Any]:
        return {
            "store_type": "SqlStore",
            "workspaces_enabled": False,
            "trace_archival_enabled": False,
            "multipart_uploads_enabled": True,
            "multipart_downloads_enabled": False,
        }

    def absent(
        request: Request, path: str, identity: Annotated[Identity, Depends(authenticate)]
    ) -> JSONResponse:
        raise NoSuchEndpoint(f"torchyard does not answer {request.method} `{request.url.path}`")

    routes.routes.append(Route("/ajax-api/{path:path}", _AsApi(routes)))
    for prefix in ("/api/2.0/mlflow", "/api/2.0/mlflow-artifacts", "/api/3.0/mlflow"):
        routes.add_api_route(prefix + "/{path:path}", absent, methods=_ALL)
    return routes
