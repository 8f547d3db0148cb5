"""SDK v1's HyperDrive service, of which there is only the refusal.

Owns: the shape of an error that azureml.train.hyperdrive reads: a number and a text at the top.
Leaves: what is refused elsewhere to azureml/routes.py.
"""

from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.azureml.common import errors
from torchyard.azureml.common.calls import Call, Caller
from torchyard.azureml.common.errors import AzureRoute, NotServed

_REFUSAL = NotServed(
    "torchyard does not serve HyperDrive yet",
    "submit a run for each choice of parameters, with `Experiment.submit` in a loop",
)


def routes(caller: Caller) -> APIRouter:
    """`/hyperdrive/v1.0`, what Experiment.submit posts a HyperDriveConfig to."""
    found = APIRouter(prefix="/hyperdrive", route_class=AzureRoute)
    the_call = Annotated[Call, Depends(caller)]

    @found.post("/{path:path}")
    def refused(call: the_call, path: str) -> JSONResponse:
        body = errors.envelope(_REFUSAL)
        told = {"code": _REFUSAL.http_status, "message": body["error"]["message"]}
        return JSONResponse({**body, **told}, _REFUSAL.http_status)

    return found
