"""SDK v1's compute service: the same computes as Resource Manager's, at another address."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse, Response

from torchyard.azureml.calls import Call, Caller
from torchyard.azureml.computes import Computes
from torchyard.azureml.errors import AzureRoute
from torchyard.azureml.paths import ARM
from torchyard.azureml.resources import OPERATIONS, Ask, Resource, to_json

_ALL = 1000


def routes(computes: Computes, caller: Caller) -> APIRouter:
    """`/rp/workspaces`, what azureml.core.compute asks of computes that are there."""
    found = APIRouter(route_class=AzureRoute)
    the_call = Annotated[Call, Depends(caller)]

    @found.get("/rp/computes")
    def list_all(call: the_call) -> JSONResponse:
        page = computes.list(call, Ask(most=_ALL))
        return JSONResponse({"value": [_json(call, one) for one in page.value]})

    @found.get("/rp/computes/{name}")
    def get(call: the_call, name: str) -> JSONResponse:
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
