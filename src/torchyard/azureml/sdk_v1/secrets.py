"""SDK v1's secrets of a key vault, of which there is only the refusal.

Owns: what is told to `Keyvault` and to `run.get_secret`.
Leaves: what is refused elsewhere to azureml/routes.py.
"""

from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.azureml.common.calls import Call, Caller
from torchyard.azureml.common.errors import ALL_METHODS, AzureRoute, NotServed


def routes(caller: Caller) -> APIRouter:
    """`/credential/v1.0`, the requests of azureml.core.keyvault."""
    found = APIRouter(prefix="/credential", route_class=AzureRoute)
    the_call = Annotated[Call, Depends(caller)]

    def refused(call: the_call, path: str) -> JSONResponse:
        raise NotServed(
            "torchyard keeps no secrets: a workspace has no key vault",
            "give a run what it needs by `run_config.environment_variables`",
        )

    found.add_api_route("/{path:path}", refused, methods=ALL_METHODS)
    return found
