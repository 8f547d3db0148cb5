"""SDK v1's services that torchyard refuses: secrets of a key vault.

Owns: what `Keyvault` and `run.get_secret` get.
Leaves: other refusals to azureml/apis.py.
"""

from __future__ import annotations

from fastapi.responses import JSONResponse

from torchyard.azureml.common.calls import AzureCall
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.common.routing import RouteTable
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

routes = RouteTable()


@routes.every_method("/credential/{path:path}")
@needs(Permission.READ)
def refuse_secrets(call: AzureCall, path: str) -> JSONResponse:
    raise NotServed(
        "torchyard stores no secrets: a workspace has no key vault",
        "give a run what it needs by `run_config.environment_variables`",
    )
