"""Azure ML's APIs: which routes there are, and what is not served yet.

Owns: the groups of routes below `/azureml`, `/azureml-above` and `/azureml-blob`, which
common/paths.py makes of Azure's paths; the response to requests for which there is no route.
Leaves: the routes to the modules that declare them.
Always: what Azure ML has and torchyard does not is refused by name, in Azure's envelope; a group is
made, and its modules are imported, when the first request comes for it.
"""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from torchyard.azureml.arm.resource_types import RESOURCE_TYPES
from torchyard.azureml.arm.resources import path_of_type
from torchyard.azureml.common import errors
from torchyard.azureml.common.calls import AzureCall
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.common.paths import ABOVE
from torchyard.azureml.common.routing import RouteTable
from torchyard.base.errors import NotFound
from torchyard.base.lazy_routes import LazyRoutes, add_routes
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

# By the first part of a path (of ARM: the type), what torchyard does not have yet.
NOT_SERVED = {
    "serverlessendpoints": "serverless endpoints",
    "schedules": "schedules",
    "featuresets": "feature stores",
    "featurestoreentities": "feature stores",
    "outboundrules": "managed networks",
    "hyperdrive": "HyperDrive",
    "pipelines": "pipelines",
    "studioservice": "pipelines",
    "jasmine": "automated machine learning",
    "linkedservices": "linked services",
    "resynckeys": "keys of storage accounts",
}

# SDK v1's `Pipeline` reads the keys of an error with a capital.
_IN_CAPITALS = ("pipelines", "studioservice")

_rest = RouteTable()


@_rest.every_method("/{path:path}")
@needs(Permission.READ)
def not_found(call: AzureCall, request: Request, path: str) -> JSONResponse:
    """The last route of each group in a workspace."""
    parts = path.split("/")
    service = parts[1] if parts[0] == "arm" and len(parts) > 1 else parts[0]
    if service in NOT_SERVED:
        error = NotServed(
            f"torchyard does not serve {NOT_SERVED[service]} yet", "see docs/reference/azure-ml.md"
        )
        if service not in _IN_CAPITALS:
            raise error
        content = errors.envelope(error)
        fields = {key.capitalize(): value for key, value in content["error"].items()}
        return JSONResponse({**content, "Error": fields}, error.http_status)
    raise NotFound(
        f"torchyard does not answer {request.method} `{path[:200]}`",
        "see docs/reference/azure-ml.md",
    )


def _services() -> APIRouter:
    """The data plane. Services share paths, so the order counts: the first match answers."""
    from torchyard.azureml.arm import resolved_uris, workspace_routes
    from torchyard.azureml.blob import artifact_routes
    from torchyard.azureml.history import experiment_routes, run_routes
    from torchyard.azureml.sdk_v1 import (
        assets,
        computes,
        datasets,
        datastores,
        environment_builds,
        environments,
        execution,
        hyperdrive,
        local_runs,
        metric_queries,
        metrics,
        models,
        refused_services,
        snapshots,
    )
    from torchyard.azureml.web_services import routes as web_services

    return _router(
        workspace_routes.in_workspace,
        artifact_routes.routes,
        run_routes.routes,
        experiment_routes.routes,
        run_routes.batch_routes,
        resolved_uris.routes,
        computes.routes,
        environment_builds.routes,
        environments.routes,
        datastores.routes,
        snapshots.routes,
        execution.routes,
        hyperdrive.routes,
        local_runs.routes,
        metrics.routes,
        metric_queries.routes,
        refused_services.routes,
        web_services.routes,
        models.routes,
        assets.routes,
        datasets.routes,
        _rest,
    )


def _online_endpoints() -> APIRouter:
    from torchyard.azureml.arm_endpoints import routes

    return _router(routes.routes, _rest)


def _batch_endpoints() -> APIRouter:
    from torchyard.azureml.arm_endpoints import batch_routes

    return _router(batch_routes.routes, _rest)


def _above_workspaces() -> APIRouter:
    from torchyard.azureml.arm import location_routes, workspace_routes

    return _router(location_routes.routes, workspace_routes.above_workspaces)


def _blobs() -> APIRouter:
    from torchyard.azureml.blob import routes

    return _router(routes.routes)


def _router(*tables: RouteTable) -> APIRouter:
    return add_routes(APIRouter(), *(table.router() for table in tables))


_WORKSPACE = "/azureml/{workspace}"

router = APIRouter()
router.routes.extend(
    [
        *(
            LazyRoutes(
                [path_of_type(type.type)],
                partial(_router, type.routes(), _rest),
                within=_WORKSPACE,
            )
            for type in RESOURCE_TYPES
        ),
        LazyRoutes([path_of_type("onlineEndpoints")], _online_endpoints, within=_WORKSPACE),
        LazyRoutes([path_of_type("batchEndpoints")], _batch_endpoints, within=_WORKSPACE),
        LazyRoutes([""], _services, within=_WORKSPACE),
        LazyRoutes(["/azureml-blob"], _blobs),
        LazyRoutes([ABOVE], _above_workspaces),
    ]
)
