"""SDK v1's services that torchyard refuses: HyperDrive and secrets of a key vault.

Owns: what `Keyvault`, `run.get_secret` and a HyperDriveConfig get; the shape of an error that
azureml.train.hyperdrive reads, which has a number and a text at the top.
Leaves: other refusals to azureml/apis.py.
"""

from __future__ import annotations

from fastapi.responses import JSONResponse

from torchyard.azureml.common import errors
from torchyard.azureml.common.calls import AzureCall
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.common.routing import RouteTable
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

routes = RouteTable()


@routes.post("/hyperdrive/{path:path}")
@needs(Permission.WRITE)
def refuse_hyperdrive(call: AzureCall, path: str) -> JSONResponse:
    error = NotServed(
        "torchyard does not serve HyperDrive yet",
        "submit a run for each choice of parameters, with `Experiment.submit` in a loop",
    )
    body = errors.envelope(error)
    top = {"code": error.http_status, "message": body["error"]["message"]}
    return JSONResponse({**body, **top}, error.http_status)


@routes.every_method("/credential/{path:path}")
@needs(Permission.READ)
def refuse_secrets(call: AzureCall, path: str) -> JSONResponse:
    raise NotServed(
        "torchyard stores no secrets: a workspace has no key vault",
        "give a run what it needs by `run_config.environment_variables`",
    )
