"""Azure ML's APIs: what app.py mounts.

Owns: putting the routes together, and what is told of those that are not served yet.
Leaves: each type and each service to the modules beside.
Always: what Azure ML has and torchyard has not is refused by name, in Azure's envelope.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse

from torchyard.azureml.arm.resources import Kind, VersionedKind, mount, mount_versioned, path_of
from torchyard.azureml.common.calls import Authenticate, Call, Caller
from torchyard.azureml.common.errors import ALL_METHODS, AzureRoute, NotServed
from torchyard.base.db import Database
from torchyard.base.errors import NotFound
from torchyard.base.lazy_routes import LazyRoutes, add_routes

# Types that torchyard does not have yet, and what to tell of them.
NOT_SERVED = {
    "onlineendpoints": "online endpoints",
    "batchendpoints": "batch endpoints",
    "serverlessendpoints": "serverless endpoints",
    "schedules": "schedules",
    "connections": "connections",
    "featuresets": "feature stores",
    "featurestoreentities": "feature stores",
    "outboundrules": "managed networks",
    "hyperdrive": "HyperDrive",
    "pipelines": "pipelines",
    "studioservice": "pipelines",
    "jasmine": "automated machine learning",
    "checkcomputenameavailability": "compute instances",
    "linkedservices": "linked services",
    "resynckeys": "keys of storage accounts",
}


def groups(
    db: Database,
    authenticate: Authenticate,
    kinds: Sequence[Kind],
    versioned: Sequence[VersionedKind],
    services: Sequence[Callable[[Caller], APIRouter]],
) -> list[LazyRoutes]:
    """Everything below `/azureml/{workspace}`, after common/paths.py.

    Args:
        authenticate: from a request to who asks; reads the workspace in `path_params`.
        services: makers of the data plane's routes (history, artifact …); their paths are mixed.
    """
    caller = Caller(db, authenticate)
    the_call = Annotated[Call, Depends(caller)]

    def absent(call: the_call, request: Request, path: str) -> JSONResponse:
        raise _absent(request.method, path)

    def group(fill: Callable[[APIRouter], object], path: str) -> LazyRoutes:
        def make() -> APIRouter:
            routes = APIRouter(route_class=AzureRoute)
            fill(routes)
            routes.add_api_route("/{path:path}", absent, methods=ALL_METHODS)
            return routes

        return LazyRoutes([path], make, within="/azureml/{workspace}")

    def add_services(routes: APIRouter) -> None:
        add_routes(routes, *(one(caller) for one in services))

    return [
        *(group(partial(mount, kind=kind, caller=caller), path_of(kind.type)) for kind in kinds),
        *(
            group(partial(mount_versioned, kind=kind, caller=caller), path_of(kind.type))
            for kind in versioned
        ),
        group(add_services, ""),
    ]


def _absent(method: str, path: str) -> NotFound | NotServed:
    parts: list[Any] = path.split("/")
    word = parts[1] if parts[0] == "arm" and len(parts) > 1 else parts[0]
    if word in NOT_SERVED:
        return NotServed(
            f"torchyard does not serve {NOT_SERVED[word]} yet", "see docs/reference/azure-ml.md"
        )
    return NotFound(
        f"torchyard does not answer {method} `{path[:200]}`", "see docs/reference/azure-ml.md"
    )
