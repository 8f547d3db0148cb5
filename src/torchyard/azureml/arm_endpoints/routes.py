"""Online endpoints and their deployments by Azure Resource Manager's protocol.

Owns: the routes of `MLClient.online_endpoints` and `online_deployments`.
Leaves: the verbs that batch endpoints have, too, to kind_routes.py, their JSON to
endpoint_documents.py and deployment_documents.py, waiting to operations.py, what they mean to
endpoints/actions/.
Always: a request that is refused leaves everything as it was; requests to models do not come here,
but to the endpoint's router.
"""

from __future__ import annotations

from fastapi.responses import JSONResponse, Response

from torchyard.azureml.arm_endpoints import deployment_documents, endpoint_documents, operations
from torchyard.azureml.arm_endpoints.kind_routes import ArmKind
from torchyard.azureml.common.calls import AzureCall, Call
from torchyard.azureml.common.errors import NotServed
from torchyard.base import fields
from torchyard.base.errors import InvalidInput
from torchyard.base.fields import described
from torchyard.endpoints.actions import credentials, deployments, endpoints
from torchyard.jobs.services import ServicesOf
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_LINES = 500
_CONTAINERS = ("inferenceserver", "storageinitializer", "modeldatacollector")


def _deleting(call: Call, endpoint: str, id: str) -> Response:
    return Response(status_code=202, headers=operations.headers(call, endpoint, id, True))


routes = ArmKind(
    type=endpoint_documents.TYPE,
    endpoints=endpoints.ONLINE,
    deployments=deployments.ONLINE_DEPLOYMENTS,
    read=endpoint_documents.read,
    read_patch=endpoint_documents.read_online_patch,
    to_resource=lambda services, call, row: endpoint_documents.to_resource(
        services.home, call, row
    ),
    put_headers=lambda call, row: operations.headers(call, row.name, operations.put_of(row)),
    deleted=lambda call, row: _deleting(call, row.name, operations.deletion_of(row)),
    read_deployment=deployment_documents.read,
    read_deployment_patch=deployment_documents.read_patch,
    deployment_to_resource=deployment_documents.to_resource,
    put_deployment_headers=lambda call, row: operations.headers(
        call, row.endpoint, operations.put_of_deployment(row)
    ),
    deployment_deleted=lambda call, row: _deleting(
        call, row.endpoint, operations.deletion_of_deployment(row)
    ),
    is_named=True,
).routes()


@routes.post("/{name}/listkeys")
@needs(Permission.WRITE)
def list_keys(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    keys = credentials.keys(services.db, call.workspace.name, name)
    return JSONResponse({"primaryKey": keys.primary, "secondaryKey": keys.secondary})


@routes.post("/{name}/regeneratekeys")
@needs(Permission.WRITE)
def regenerate_keys(call: AzureCall, services: ServicesOf, name: str) -> Response:
    """The client sends the key that is to be replaced; another value would be one it chose."""
    workspace = call.workspace.name
    kind = fields.text(call.document, "keyType").lower()
    value = fields.text(call.document, "keyValue")
    keys = credentials.keys(services.db, workspace, name)
    if value and value not in (keys.primary, keys.secondary):
        raise NotServed(
            "an endpoint with a key that its client chose is not served",
            "leave `keyValue` out: the new key is drawn",
            at=["keyValue"],
        )
    credentials.regenerate(services, workspace, name, kind, call.identity)
    return Response(status_code=200)


@routes.post("/{name}/token")
@needs(Permission.WRITE)
def make_token(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    token = credentials.token(services, call.workspace.name, name, call.identity)
    return JSONResponse(
        {
            "accessToken": token.text,
            "tokenType": "Bearer",
            "expiryTimeUtc": int(token.ends_at.timestamp()),
            "refreshAfterTimeUtc": int(token.refresh_after.timestamp()),
        }
    )


@routes.get("/{name}/operationsstatus/{id}")
@needs(Permission.READ)
def get_operation(call: AzureCall, services: ServicesOf, name: str, id: str) -> JSONResponse:
    outcome = operations.outcome(services, call.workspace.name, name, id)
    return JSONResponse(operations.status_json(call, name, id, outcome), 200, operations.POLL)


@routes.get("/{name}/operationresults/{id}")
@needs(Permission.READ)
def get_result(call: AzureCall, services: ServicesOf, name: str, id: str) -> Response:
    outcome = operations.outcome(services, call.workspace.name, name, id)
    return operations.result(call, name, id, outcome)


@routes.post("/{name}/deployments/{deployment}/getlogs")
@needs(Permission.READ)
def get_logs(call: AzureCall, services: ServicesOf, name: str, deployment: str) -> JSONResponse:
    """Of an instance that answers; files are copied by the same program, into the same log."""
    container = fields.text(call.document, "containerType").lower()
    if container and container not in _CONTAINERS:
        raise InvalidInput(
            f"`{container[:40]}` is not a type of container",
            "use `InferenceServer`",
            at=["containerType"],
        )
    tail = call.document.get("tail")
    if tail is not None and (isinstance(tail, bool) or not isinstance(tail, int)):
        raise InvalidInput(f"`tail` must be a whole number, not {described(tail)}", at=["tail"])
    lines = _LINES if tail is None else tail
    text = deployments.logs(services, call.workspace.name, name, deployment, lines, "")
    return JSONResponse({"content": text})


@routes.get("/{name}/deployments/{deployment}/skus")
@needs(Permission.READ)
def list_skus(call: AzureCall, services: ServicesOf, name: str, deployment: str) -> JSONResponse:
    """The cluster decides what an instance runs on; its number can be changed."""
    deployments.get(services.db, call.workspace.name, name, deployment)
    sku = {"resourceType": "Microsoft.MachineLearning.Services/onlineEndpoints/deployments"}
    return JSONResponse({"value": [{**sku, "sku": {"name": "Default"}}]})
