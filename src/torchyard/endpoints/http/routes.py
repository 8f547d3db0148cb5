"""HTTP: online endpoints and their deployments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Body

from torchyard.base import fields
from torchyard.base.clock import to_text
from torchyard.base.errors import Forbidden
from torchyard.endpoints.actions import credentials, deployments, endpoints, to_json, trial_requests
from torchyard.endpoints.http import kind_routes
from torchyard.endpoints.records.types import AuthMode, Deployment, Endpoint
from torchyard.endpoints.spec import deployment_spec
from torchyard.jobs.services import Services, ServicesOf
from torchyard.workspaces.guarded_routes import Person, needs
from torchyard.workspaces.permissions import Permission


def _endpoint_json(services: Services, endpoint: Endpoint) -> dict[str, Any]:
    return to_json.endpoint_json(services.home, endpoint)


def _deployment_json(
    services: Services, deployment: Deployment, notices: Sequence[str]
) -> dict[str, Any]:
    instances = deployments.instances_of(services, deployment)
    return to_json.deployment_json(deployment, instances, notices)


router = kind_routes.KindRoutes(
    endpoints.ONLINE,
    deployments.ONLINE_DEPLOYMENTS,
    _endpoint_json,
    _deployment_json,
    {
        "create": "Create an endpoint, or replace the file of one.",
        "update": "Change single keys, such as `traffic`.",
        "delete": "Delete an endpoint with its deployments; it is gone once their instances have "
        "ended.",
        "create_deployment": "Create a deployment, or replace the file of one.",
        "update_deployment": "Change single keys, such as `instance_count`.",
        "delete_deployment": "Delete a deployment without traffic; it is gone once its instances "
        "have ended.",
    },
).router()


@router.post("/{endpoint}/keys")
@needs(Permission.WRITE)
def show_keys(services: ServicesOf, workspace: str, endpoint: str) -> dict[str, Any]:
    """POST, so that the audit says who saw them."""
    keys = credentials.keys(services.db, workspace, endpoint)
    return {"primaryKey": keys.primary, "secondaryKey": keys.secondary}


@router.post("/{endpoint}/keys/regenerate")
@needs(Permission.WRITE)
def regenerate_keys(
    services: ServicesOf,
    workspace: str,
    endpoint: str,
    identity: Person,
    key_type: Annotated[Any, Body(embed=True)],
    key_value: Annotated[Any, Body(embed=True)] = "",
) -> dict[str, Any]:
    """Replace the `primary` or the `secondary` key, by `key_value` if it is given."""
    written = {"key_type": key_type, "key_value": key_value}
    kind, value = fields.text(written, "key_type"), fields.text(written, "key_value")
    keys = credentials.regenerate(services, workspace, endpoint, kind, identity, value)
    return {"primaryKey": keys.primary, "secondaryKey": keys.secondary}


@router.post("/{endpoint}/token")
@needs(Permission.WRITE)
def make_token(
    services: ServicesOf, workspace: str, endpoint: str, identity: Person
) -> dict[str, Any]:
    """A token for `auth_mode: aml_token`."""
    token = credentials.token(services, workspace, endpoint, identity)
    return {
        "accessToken": token.text,
        "tokenType": "Bearer",
        "expiryTimeUtc": to_text(token.ends_at),
        "refreshAfterTimeUtc": to_text(token.refresh_after),
    }


@router.get("/{endpoint}/access")
@needs(Permission.READ)
def check_access(
    services: ServicesOf, workspace: str, endpoint: str, identity: Person
) -> dict[str, Any]:
    """Whether the caller may score; the router asks it for `auth_mode: aad_token`."""
    row = endpoints.get(services.db, workspace, endpoint)
    if row.auth_mode is not AuthMode.AAD_TOKEN:
        raise Forbidden(f"endpoint `{row.name}` does not take the tokens of people")
    return {"user": identity.user}


@router.post("/{endpoint}/try")
@needs(Permission.WRITE)
def try_request(
    services: ServicesOf,
    workspace: str,
    endpoint: str,
    identity: Person,
    request: Annotated[Any, Body(embed=True)],
    deployment: Annotated[Any, Body(embed=True)] = "",
) -> dict[str, Any]:
    """Send `request`, a text of JSON, as a caller of the endpoint would."""
    written = {"request": request, "deployment": deployment}
    answer = trial_requests.send(
        services,
        workspace,
        endpoint,
        fields.text(written, "deployment"),
        fields.text(written, "request"),
        identity,
    )
    return {
        "status": answer.status,
        "content": answer.text,
        "milliseconds": round(answer.milliseconds, 1),
    }


@router.post("/{endpoint}/deployments/{deployment}/validate")
@needs(Permission.READ)
def validate_deployment(
    workspace: str, endpoint: str, deployment: str, document: Annotated[Any, Body()]
) -> dict[str, Any]:
    """Check a deployment's keys and values, before its files are sent; nothing is stored."""
    named = kind_routes.deployment_document(document, endpoint, deployment)
    return {"notices": list(deployment_spec.read(named).notices)}


@router.get("/{endpoint}/deployments/{deployment}/logs")
@needs(Permission.READ)
def show_logs(
    services: ServicesOf,
    workspace: str,
    endpoint: str,
    deployment: str,
    lines: int = 50,
    instance: str = "",
) -> dict[str, Any]:
    """The last lines that an instance printed."""
    text = deployments.logs(services, workspace, endpoint, deployment, lines, instance)
    return {"content": text}
