"""MLflow's REST API: the router that the app mounts.

Owns: putting the routes together, what an MLflow server says about itself.
Leaves: experiments, runs, artifacts and models to the modules beside.
Always: an endpoint that torchyard lacks responds as an MLflow server without it, so that clients
go on.
"""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from torchyard.base.lazy_routes import add_routes
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
from torchyard.mlflow.errors import EndpointNotFound, MlflowRoute
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

# The version of the API that torchyard implements; clients use it to choose what to call.
MLFLOW_VERSION = "2.22.0"
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


class _OtherPrefix:
    """Serve paths below `prefix` as those that begin with `actual`."""

    def __init__(self, api: ASGIApp, prefix: str, actual: str) -> None:
        self._api = api
        self._prefix = prefix
        self._actual = actual

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].replace(self._prefix, self._actual, 1)
        await self._api({**scope, "path": path, "raw_path": path.encode()}, receive, send)


router = APIRouter(route_class=MlflowRoute, include_in_schema=False)
add_routes(
    router,
    run_routes.router,
    experiment_routes.router,
    artifact_routes.router,
    multipart_routes.router,
    metric_routes.router,
    registry_routes.router,
    version_routes.router,
    logged_model_routes.router,
)


@router.get("/version")
@needs(Permission.OPEN)
def version() -> PlainTextResponse:
    return PlainTextResponse(MLFLOW_VERSION)


@router.get("/api/3.0/mlflow/server-info")
@needs(Permission.OPEN)
def server_info() -> dict[str, Any]:
    return {
        "store_type": "SqlStore",
        "workspaces_enabled": False,
        "trace_archival_enabled": False,
        "multipart_uploads_enabled": True,
        "multipart_downloads_enabled": False,
    }


# MLflow's page calls the first; MLflow 1 has its registry below the second.
for _prefix, _actual in (("/ajax-api/", "/api/"), ("/api/2.0/preview/mlflow/", "/api/2.0/mlflow/")):
    router.routes.append(Route(_prefix + "{path:path}", _OtherPrefix(router, _prefix, _actual)))


@router.api_route("/api/2.0/mlflow/{path:path}", methods=_METHODS)
@router.api_route("/api/2.0/mlflow-artifacts/{path:path}", methods=_METHODS)
@router.api_route("/api/3.0/mlflow/{path:path}", methods=_METHODS)
@needs(Permission.READ)
def unknown_endpoint(request: Request, path: str) -> JSONResponse:
    raise EndpointNotFound(f"torchyard does not support {request.method} `{request.url.path}`")
