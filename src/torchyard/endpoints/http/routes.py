"""HTTP: online endpoints and their deployments."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response

from torchyard.base import fields
from torchyard.base.clock import to_text
from torchyard.base.errors import Forbidden
from torchyard.endpoints.actions import credentials, deployments, endpoints, trial_requests
from torchyard.endpoints.actions.deployments import Accepted
from torchyard.endpoints.actions.to_json import deployment_json, endpoint_json
from torchyard.endpoints.records.types import AuthMode
from torchyard.endpoints.spec import deployment_spec
from torchyard.jobs.services import RecordServices, ServicesOf
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/online-endpoints",
    tags=["endpoints"],
    route_class=GuardedRoute,
)


@router.get("")
@needs(Permission.READ)
def list_endpoints(services: ServicesOf, workspace: str) -> dict[str, Any]:
    there = endpoints.list_in(services, workspace)
    return {"value": [endpoint_json(services.home, each) for each in there]}


@router.get("/{endpoint}")
@needs(Permission.READ)
def show(services: ServicesOf, workspace: str, endpoint: str) -> dict[str, Any]:
    return endpoint_json(services.home, endpoints.get(services.db, workspace, endpoint))


@router.put("/{endpoint}")
@needs(Permission.WRITE)
def create(
    services: ServicesOf,
    workspace: str,
    endpoint: str,
    identity: Person,
    document: Annotated[Any, Body()],
    response: Response,
) -> dict[str, Any]:
    """Create an endpoint, or replace the file of one."""
    endpoint_document = fields.with_path_name(
        fields.mapping(document, "the endpoint's document"), endpoint
    )
    made, is_new = endpoints.create(services, workspace, endpoint_document, identity)
    response.status_code = 201 if is_new else 200
    return endpoint_json(services.home, made)


@router.patch("/{endpoint}")
@needs(Permission.WRITE)
def update(
    services: ServicesOf,
    workspace: str,
    endpoint: str,
    identity: Person,
    changes: Annotated[Any, Body()],
) -> dict[str, Any]:
    """Change single keys, such as `traffic`."""
    mapping = fields.mapping(changes, "the document of changes")
    return endpoint_json(
        services.home, endpoints.update(services, workspace, endpoint, mapping, identity)
    )


@router.delete("/{endpoint}")
@needs(Permission.WRITE)
def delete(services: ServicesOf, workspace: str, endpoint: str, identity: Person) -> dict[str, Any]:
    """Delete an endpoint with its deployments; it is gone once their instances have ended."""
    return endpoint_json(services.home, endpoints.delete(services, workspace, endpoint, identity))


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


@router.get("/{endpoint}/deployments")
@needs(Permission.READ)
def list_deployments(services: ServicesOf, workspace: str, endpoint: str) -> dict[str, Any]:
    there = deployments.list_in(services, workspace, endpoint)
    return {
        "value": [deployment_json(each, deployments.instances_of(services, each)) for each in there]
    }


@router.get("/{endpoint}/deployments/{deployment}")
@needs(Permission.READ)
def show_deployment(
    services: ServicesOf, workspace: str, endpoint: str, deployment: str
) -> dict[str, Any]:
    row = deployments.get(services.db, workspace, endpoint, deployment)
    return deployment_json(row, deployments.instances_of(services, row))


@router.put("/{endpoint}/deployments/{deployment}")
@needs(Permission.WRITE)
def create_deployment(
    services: ServicesOf,
    workspace: str,
    endpoint: str,
    deployment: str,
    identity: Person,
    document: Annotated[Any, Body()],
    response: Response,
) -> dict[str, Any]:
    """Create a deployment, or replace the file of one."""
    deployment_document = fields.with_path_name(
        fields.mapping(document, "the deployment's document"), deployment
    )
    deployment_document.setdefault("endpoint_name", endpoint)
    accepted = deployments.create(services, workspace, endpoint, deployment_document, identity)
    response.status_code = 201 if accepted.is_new else 200
    return _accepted_json(services, accepted)


@router.post("/{endpoint}/deployments/{deployment}/validate")
@needs(Permission.READ)
def validate_deployment(
    workspace: str, endpoint: str, deployment: str, document: Annotated[Any, Body()]
) -> dict[str, Any]:
    """Check a deployment's keys and values, before its files are sent; nothing is stored."""
    deployment_document = fields.with_path_name(
        fields.mapping(document, "the deployment's document"), deployment
    )
    deployment_document.setdefault("endpoint_name", endpoint)
    return {"notices": list(deployment_spec.read(deployment_document).notices)}


@router.patch("/{endpoint}/deployments/{deployment}")
@needs(Permission.WRITE)
def update_deployment(
    services: ServicesOf,
    workspace: str,
    endpoint: str,
    deployment: str,
    identity: Person,
    changes: Annotated[Any, Body()],
) -> dict[str, Any]:
    """Change single keys, such as `instance_count`."""
    mapping = fields.mapping(changes, "the document of changes")
    accepted = deployments.update(services, workspace, endpoint, deployment, mapping, identity)
    return _accepted_json(services, accepted)


@router.delete("/{endpoint}/deployments/{deployment}")
@needs(Permission.WRITE)
def delete_deployment(
    services: ServicesOf, workspace: str, endpoint: str, deployment: str, identity: Person
) -> dict[str, Any]:
    """Delete a deployment without traffic; it is gone once its instances have ended."""
    deleted = deployments.delete(services, workspace, endpoint, deployment, identity)
    return deployment_json(deleted, deployments.instances_of(services, deleted))


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


def _accepted_json(services: RecordServices, accepted: Accepted) -> dict[str, Any]:
    instances = deployments.instances_of(services, accepted.deployment)
    return deployment_json(accepted.deployment, instances, accepted.notices)
