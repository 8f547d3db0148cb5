"""Changes that a client waits for: their addresses, and how far they have got.

Owns: ids of operations, their JSON, the headers of a response that begins one.
Leaves: how far an endpoint or a deployment has got to endpoints/running/.
Always: an operation has no row: what it says follows from the rows of endpoint and deployment, so
that any server answers it, also after a restart.

Source: https://github.com/Azure/azure-resource-manager-rpc/blob/master/v1.0/async-api-reference.md
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fastapi.responses import JSONResponse, Response

from torchyard.azureml.arm_endpoints.endpoint_documents import TYPE
from torchyard.azureml.common.calls import Call
from torchyard.base.errors import NotFound
from torchyard.endpoints.actions import deployments, endpoints
from torchyard.endpoints.records import address
from torchyard.endpoints.records.types import Deployment, Endpoint, ProvisioningState
from torchyard.jobs.services import FileServices

STATUS, RESULTS = "operationsStatus", "operationResults"
"""What a client asks by the headers Azure-AsyncOperation and Location."""
_ID = re.compile(r"(put|delete)\.(?:([A-Za-z0-9-]{1,64})\.)?(\d{1,20})")
POLL = {"retry-after-ms": "500"}
"""The header that says when a client should ask again."""
_ROUTER_STARTS = timedelta(seconds=30)
"""How long the router may take to say where it listens; a client waits no longer for it."""
_RUNNING, _SUCCEEDED, _FAILED, _CANCELED = "InProgress", "Succeeded", "Failed", "Canceled"
_STATES = {ProvisioningState.SUCCEEDED: _SUCCEEDED, ProvisioningState.FAILED: _FAILED}


@dataclass(frozen=True)
class Outcome:
    """`code` and `message` say why it failed."""

    status: str
    code: str = ""
    message: str = ""


def put_of(endpoint: Endpoint) -> str:
    return f"put.{_stamp(endpoint.created_at)}"


def put_of_deployment(deployment: Deployment) -> str:
    return f"put.{deployment.name}.{deployment.revision}"


def deletion_of(endpoint: Endpoint) -> str:
    return f"delete.{_stamp(endpoint.created_at)}"


def deletion_of_deployment(deployment: Deployment) -> str:
    return f"delete.{deployment.name}.{_stamp(deployment.created_at)}"


def headers(call: Call, endpoint: str, id: str, with_location: bool = False) -> dict[str, str]:
    """Where the client asks how far the operation has got."""
    where = f"{call.base}{call.id(TYPE, endpoint)}"
    there = {**POLL, "azure-asyncoperation": f"{where}/{STATUS}/{id}"}
    return {**there, "location": f"{where}/{RESULTS}/{id}"} if with_location else there


def outcome(services: FileServices, workspace: str, endpoint_name: str, id: str) -> Outcome:
    """
    Raises:
        NotFound: no operation has such an id.
    """
    match = _ID.fullmatch(id)
    if match is None:
        raise NotFound(f"operation `{id[:100]}` does not exist")
    kind, name, number = match[1], match[2] or "", int(match[3])
    endpoint = endpoints.named(services.db, workspace, endpoint_name)
    if not name:
        if endpoint is not None and _stamp(endpoint.created_at) != number:
            endpoint = None
        if kind == "delete":
            return _deleted(endpoint)
        is_early = endpoint is not None and _has_no_address_yet(services, endpoint)
        return Outcome(_RUNNING) if is_early else _put(endpoint)
    deployment = None if endpoint is None else deployments.named(services.db, endpoint, name)
    if kind == "delete":
        is_same = deployment is not None and _stamp(deployment.created_at) == number
        return _deleted(deployment if is_same else None)
    if deployment is not None and deployment.revision < number:
        deployment = None  # one that was created later
    if deployment is not None and deployment.served_revision > number:
        return Outcome(_SUCCEEDED)
    return _put(deployment)


def status_json(call: Call, endpoint: str, id: str, outcome: Outcome) -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": call.id(TYPE, endpoint, STATUS, id),
        "name": id,
        "status": outcome.status,
    }
    if outcome.message:
        document["error"] = {"code": outcome.code, "message": outcome.message}
    return document


def result(call: Call, endpoint: str, id: str, outcome: Outcome) -> Response:
    """What the address of the header Location answers."""
    if outcome.status == _RUNNING:
        return Response(status_code=202, headers=headers(call, endpoint, id, with_location=True))
    if outcome.status == _SUCCEEDED:
        return Response(status_code=200)
    error = {"code": outcome.code, "message": outcome.message, "target": None}
    return JSONResponse({"error": {**error, "details": [], "additionalInfo": []}}, 409)


def _put(row: Endpoint | Deployment | None) -> Outcome:
    if row is None or row.state is ProvisioningState.DELETING:
        return Outcome(_CANCELED, "Canceled", "It was deleted meanwhile")
    status = _STATES.get(row.state, _RUNNING)
    if status != _FAILED:
        return Outcome(status)
    message = row.message or "It failed"
    if isinstance(row, Deployment):
        message += (
            f". Hint: `online_deployments.get_logs(name={row.name!r}, "
            f"endpoint_name={row.endpoint!r}, lines=100)` has the rest"
        )
    return Outcome(_FAILED, "ResourceNotReady", message)


def _has_no_address_yet(services: FileServices, endpoint: Endpoint) -> bool:
    """The first endpoint of a server: a client reads `scoring_uri` once, at the end."""
    if address.read(services.home):
        return False
    return services.clock.now() - endpoint.changed_at < _ROUTER_STARTS


def _deleted(row: Endpoint | Deployment | None) -> Outcome:
    return Outcome(_SUCCEEDED if row is None else _RUNNING)


def _stamp(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000)
