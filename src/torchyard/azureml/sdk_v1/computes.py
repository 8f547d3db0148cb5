"""SDK v1's compute service: Resource Manager's computes at another address.

Owns: the name by which SDK v1 can mean this machine's compute.
Leaves: computes to arm/computes.py, jobs on them to execution.py.
Always: SDK v1 itself starts what runs on the target `local`; `local-cluster` is our `local` there,
unless somebody has created a cluster of that name.
"""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse, Response

from torchyard.azureml.arm.computes import Computes
from torchyard.azureml.arm.resources import OPERATIONS, PageRequest, Resource, to_json
from torchyard.azureml.common.calls import AzureCall, Call
from torchyard.azureml.common.paths import ARM
from torchyard.azureml.common.routing import RouteTable
from torchyard.base.errors import NotFound
from torchyard.compute.types import LOCAL
from torchyard.jobs.services import ServicesOf
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_ALL = 1000
LOCAL_CLUSTER = "local-cluster"

routes = RouteTable()


@routes.get("/rp/computes")
@needs(Permission.READ)
def list_all(call: AzureCall, services: ServicesOf) -> JSONResponse:
    page = Computes(services).list(call, PageRequest(limit=_ALL))
    computes = {resource.path[-1]: _json(call, resource) for resource in page.value}
    if LOCAL in computes and LOCAL_CLUSTER not in computes:
        computes[LOCAL_CLUSTER] = _renamed(computes.pop(LOCAL))
    return JSONResponse({"value": list(computes.values())})


@routes.get("/rp/computes/{name}")
@needs(Permission.READ)
def get(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    computes = Computes(services)
    if is_local(computes, call, name):
        return JSONResponse(_renamed(_json(call, computes.get(call, LOCAL))))
    return JSONResponse(_json(call, computes.get(call, name)))


@routes.delete("/rp/computes/{name}")
@needs(Permission.COMPUTE)
def delete(call: AzureCall, services: ServicesOf, name: str) -> Response:
    Computes(services).delete(call, name)
    return Response(status_code=200)


@routes.get(f"/{ARM}/{OPERATIONS}/{{name}}")
@needs(Permission.READ)
def get_operation(call: AzureCall, name: str) -> JSONResponse:
    return JSONResponse({"name": name, "status": "Succeeded"})


def is_local(computes: Computes, call: Call, name: str) -> bool:
    """Whether this name means the compute `local`."""
    if name.lower() != LOCAL_CLUSTER:
        return False
    try:
        computes.get(call, name)
    except NotFound:
        return True
    return False


def _json(call: Call, resource: Resource) -> dict[str, Any]:
    document = to_json(call, resource)
    # The client reads this key without checking that it exists.
    document["properties"]["properties"]["userAccountCredentials"] = {}
    return {key: value for key, value in document.items() if key not in ("identity", "sku")}


def _renamed(document: dict[str, Any]) -> dict[str, Any]:
    top = str(document["id"]).rpartition("/")[0]
    return {**document, "name": LOCAL_CLUSTER, "id": f"{top}/{LOCAL_CLUSTER}"}
