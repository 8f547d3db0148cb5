"""SDK v1's compute service: the same computes as Resource Manager's, at another address.

Owns: the name by which SDK v1 can mean this machine's compute.
Leaves: computes to arm/computes.py, jobs on them to execution.py.
Always: to SDK v1 `local` is where it runs things itself, without a server; `local-cluster` is our
`local` there, unless somebody has made a cluster of that name.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse, Response

from torchyard.azureml.arm.computes import Computes
from torchyard.azureml.arm.resources import OPERATIONS, Ask, Resource, to_json
from torchyard.azureml.common.calls import Call, Caller
from torchyard.azureml.common.errors import AzureRoute
from torchyard.azureml.common.paths import ARM
from torchyard.base.errors import NotFound
from torchyard.compute.types import LOCAL

_ALL = 1000
LOCAL_CLUSTER = "local-cluster"


def is_local(computes: Computes, call: Call, name: str) -> bool:
    """Whether this name means the compute `local`."""
    if name.lower() != LOCAL_CLUSTER:
        return False
    try:
        computes.get(call, name)
    except NotFound:
        return True
    return False


def routes(computes: Computes, caller: Caller) -> APIRouter:
    """`/rp/workspaces`, what azureml.core.compute asks of computes that are there."""
    found = APIRouter(route_class=AzureRoute)
    the_call = Annotated[Call, Depends(caller)]

    @found.get("/rp/computes")
    def list_all(call: the_call) -> JSONResponse:
        page = computes.list(call, Ask(most=_ALL))
        found = {one["name"]: one for one in (_json(call, each) for each in page.value)}
        if LOCAL in found and LOCAL_CLUSTER not in found:
            found[LOCAL_CLUSTER] = _renamed(found.pop(LOCAL))
        return JSONResponse({"value": list(found.values())})

    @found.get("/rp/computes/{name}")
    def get(call: the_call, name: str) -> JSONResponse:
        if is_local(computes, call, name):
            return JSONResponse(_renamed(_json(call, computes.get(call, LOCAL))))
        return JSONResponse(_json(call, computes.get(call, name)))

    @found.delete("/rp/computes/{name}")
    def delete(call: the_call, name: str) -> Response:
        computes.delete(call, name)
        return Response(status_code=200)

    @found.get(f"/{ARM}/{OPERATIONS}/{{name}}")
    def operation(call: the_call, name: str) -> JSONResponse:
        return JSONResponse({"name": name, "status": "Succeeded"})

    return found


def _json(call: Call, resource: Resource) -> dict[str, Any]:
    found = to_json(call, resource)
    # The client looks into these without asking whether they are there.
    found["properties"]["properties"]["userAccountCredentials"] = {}
    return {key: value for key, value in found.items() if key not in ("identity", "sku")}


def _renamed(found: dict[str, Any]) -> dict[str, Any]:
    top = str(found["id"]).rpartition("/")[0]
    return {**found, "name": LOCAL_CLUSTER, "id": f"{top}/{LOCAL_CLUSTER}"}
