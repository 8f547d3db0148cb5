"""Workspaces as Azure Resource Manager shows them, and what is above them.

Owns: subscriptions, resource groups, workspaces: reading, creating, changing, deleting.
Leaves: what a workspace is to workspaces/, which property is which of its keys to
workspace_documents.py, what is in one to the other modules.
Always: subscriptions and resource groups are only names that workspaces have; people see the
workspaces in which they have a role.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Request, Response
from fastapi.responses import JSONResponse

from torchyard.azureml.arm import computes, workspace_documents, workspace_templates
from torchyard.azureml.arm.resources import timestamp
from torchyard.azureml.common.calls import AzureCall, base_url, resource_id, tracking_uri
from torchyard.azureml.common.containers import account, workspace_guid
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.common.paths import ABOVE, ARM, PROVIDER, SCOPE_KEY, AzurePath
from torchyard.azureml.common.routing import RouteTable
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.jobs.requests import workspace_lifecycle
from torchyard.jobs.services import Services, ServicesOf
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces import people
from torchyard.workspaces.guarded_routes import Person, needs
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity, Workspace

_SUBSCRIPTION = "/subscriptions/{subscription}"
_GROUP = f"{_SUBSCRIPTION}/resourcegroups/{{group}}"
_DEPLOYMENT = f"{_GROUP}/providers/microsoft.resources/deployments/{{name}}"
_KINDS = ("", "default")
_FIXED = ("name", "subscription_id", "resource_group", "location")
_SEE_CONFIG = "`yard workspace config` writes a correct config.json; see `yard workspace list`"

Document = Annotated[Any, Body()]

in_workspace = RouteTable(f"/{ARM}")
"""The routes of one workspace."""

above_workspaces = RouteTable(ABOVE)
"""The routes of subscriptions and resource groups."""


@in_workspace.get("")
@needs(Permission.READ)
def get(call: AzureCall, services: ServicesOf) -> JSONResponse:
    return JSONResponse(to_json(call.workspace, call.base, services.for_nodes.server_id))


@in_workspace.patch("")
@needs(Permission.SETTINGS)
def update(call: AzureCall, services: ServicesOf) -> JSONResponse:
    changes = workspace_documents.of_body(call.document, call.workspace.name)
    changes = workspace_documents.replaced_tags(call.workspace, changes)
    workspace = workspaces.update(services.db, call.workspace.name, changes)
    return JSONResponse(to_json(workspace, call.base, services.for_nodes.server_id))


@in_workspace.delete("")
@needs(Permission.SERVER)
def delete(call: AzureCall, services: ServicesOf) -> Response:
    workspace_lifecycle.delete_empty(services, call.workspace.name)
    return Response(status_code=200)


@in_workspace.put("")
@needs(Permission.SERVER)
def create(
    request: Request, identity: Person, services: ServicesOf, document: Document
) -> JSONResponse:
    name, base = request.path_params["workspace"], base_url(request)
    path: AzurePath = request.scope.get(SCOPE_KEY) or AzurePath(request.url.path)
    requested = _requested(name, path.subscription, path.resource_group, document)
    existing = _find(services.db, name, path.subscription, path.resource_group)
    server_id = services.for_nodes.server_id
    if existing is None:
        return JSONResponse(to_json(_create(services, requested), base, server_id), 201)
    changes = {key: value for key, value in requested.items() if key not in _FIXED and value}
    changes = workspace_documents.replaced_tags(existing, changes)
    workspace = workspaces.update(services.db, existing.name, changes)
    return JSONResponse(to_json(workspace, base, server_id))


@in_workspace.post("/checkcomputenameavailability")
@needs(Permission.READ)
def check_compute_name(call: AzureCall, services: ServicesOf) -> dict[str, Any]:
    return computes.name_availability(services.db, call)


@above_workspaces.get("/subscriptions")
@needs(Permission.SELF)
def list_subscriptions(identity: Person, services: ServicesOf) -> dict[str, Any]:
    names = {workspace.subscription_id for workspace in _visible(services.db, identity)}
    return {"value": [_subscription(name) for name in sorted(names)]}


@above_workspaces.get(_SUBSCRIPTION)
@needs(Permission.SELF)
def get_subscription(identity: Person, services: ServicesOf, subscription: str) -> dict[str, Any]:
    for workspace in _visible(services.db, identity, subscription):
        return _subscription(workspace.subscription_id)
    raise NotFound(f"subscription `{subscription}` does not exist", _SEE_CONFIG)


@above_workspaces.get(f"{_SUBSCRIPTION}/resourcegroups")
@needs(Permission.SELF)
def list_groups(identity: Person, services: ServicesOf, subscription: str) -> dict[str, Any]:
    visible = _visible(services.db, identity, subscription)
    groups = {workspace.resource_group: workspace for workspace in visible}
    return {"value": [_group(groups[name]) for name in sorted(groups)]}


@above_workspaces.get(_GROUP)
@needs(Permission.SELF)
def get_group(
    identity: Person, services: ServicesOf, subscription: str, group: str
) -> dict[str, Any]:
    for workspace in _visible(services.db, identity, subscription, group):
        return _group(workspace)
    raise NotFound(
        f"resource group `{group}` does not exist in subscription `{subscription}`", _SEE_CONFIG
    )


# SDK v1 creates the resource group of a workspace first. It exists once a workspace names it.
@above_workspaces.put(_GROUP)
@needs(Permission.SERVER)
def create_group(
    identity: Person, services: ServicesOf, subscription: str, group: str, document: Document
) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise InvalidInput("the resource group's body is not a JSON object")
    for workspace in _visible(services.db, identity, subscription, group):
        return _group(workspace)
    return _group_document(subscription, group, str(document.get("location") or ""))


# The locations in which workspaces can be: SDK v1 requests them before it creates one.
@above_workspaces.get(f"{_SUBSCRIPTION}/providers/{PROVIDER.lower()}")
@needs(Permission.SELF)
def get_provider(identity: Person, services: ServicesOf, subscription: str) -> dict[str, Any]:
    visible = _visible(services.db, identity)
    return workspace_templates.provider([workspace.location for workspace in visible])


# SDK v1 lists the resources of a subscription, and keeps only the workspaces.
@above_workspaces.get(
    f"{_SUBSCRIPTION}/providers/{PROVIDER.lower()}/workspaces", f"{_SUBSCRIPTION}/resources"
)
@needs(Permission.SELF)
def list_in_subscription(
    request: Request, identity: Person, services: ServicesOf, subscription: str
) -> dict[str, Any]:
    return _list(request, services, _visible(services.db, identity, subscription))


@above_workspaces.get(f"{_GROUP}/providers/{PROVIDER.lower()}/workspaces")
@needs(Permission.SELF)
def list_in_group(
    request: Request, identity: Person, services: ServicesOf, subscription: str, group: str
) -> dict[str, Any]:
    return _list(request, services, _visible(services.db, identity, subscription, group))


# Registries are shared by workspaces, and a server has none.
@above_workspaces.get(
    f"{_SUBSCRIPTION}/providers/{PROVIDER.lower()}/registries",
    f"{_GROUP}/providers/{PROVIDER.lower()}/registries",
)
@needs(Permission.SELF)
def list_registries(identity: Person, subscription: str) -> dict[str, Any]:
    return {"value": []}


@above_workspaces.every_method(f"{_GROUP}/providers/{PROVIDER.lower()}/registries/{{name}}")
@needs(Permission.SELF)
def refuse_registry(identity: Person, name: str) -> dict[str, Any]:
    raise NotServed(
        "torchyard has no registries", "register what a registry would share in each workspace"
    )


# SDK v2 deletes a workspace's storage account before the workspace, of which it is a part here.
@above_workspaces.delete(f"{_GROUP}/providers/microsoft.storage/storageaccounts/{{name}}")
@needs(Permission.SERVER)
def delete_account(identity: Person, name: str) -> Response:
    return Response(status_code=204)


@above_workspaces.put(_DEPLOYMENT)
@needs(Permission.SERVER)
def deploy(
    identity: Person,
    services: ServicesOf,
    subscription: str,
    group: str,
    name: str,
    document: Document,
) -> JSONResponse:
    """Create a workspace by the SDK's template."""
    body = workspace_templates.requested_workspace(document)
    requested = _requested(body["workspaceName"], subscription, group, body)
    if _find(services.db, requested["name"], subscription, group) is None:
        _create(services, requested)
    return JSONResponse(_deployment(subscription, group, name), 201)


# SDK v1 cleans up its old deployments before one more; those here end with the request.
@above_workspaces.get(f"{_SUBSCRIPTION}/providers/microsoft.resources/deployments")
@needs(Permission.SELF)
def list_deployments(identity: Person, subscription: str) -> dict[str, Any]:
    return {"value": []}


@above_workspaces.get(_DEPLOYMENT)
@needs(Permission.SELF)
def get_deployment(identity: Person, subscription: str, group: str, name: str) -> dict[str, Any]:
    return _deployment(subscription, group, name)


@above_workspaces.get(f"{_GROUP}/deployments/{{name}}/operations")
@needs(Permission.SELF)
def list_operations(identity: Person, subscription: str, group: str, name: str) -> dict[str, Any]:
    return {"value": []}


@above_workspaces.every_method("/subscriptions/{path:path}")
@needs(Permission.SELF)
def not_found(request: Request, identity: Person, path: str) -> JSONResponse:
    raise NotFound(
        f"torchyard does not answer {request.method} `/subscriptions/{path[:200]}`",
        "see docs/reference/azure-ml.md",
    )


def to_json(workspace: Workspace, base: str, server_id: str) -> dict[str, Any]:
    path = resource_id(workspace)
    group = path.partition("/providers/")[0]
    created_at = timestamp(workspace.created_at)
    return {
        "id": path,
        "name": workspace.name,
        "type": f"{PROVIDER}/workspaces",
        "location": workspace.location,
        "tags": workspace.tags,
        "kind": "Default",
        "sku": {"name": "Basic", "tier": "Basic"},
        "identity": {"type": "SystemAssigned", "principalId": "", "tenantId": ""},
        "systemData": {"createdAt": created_at, "lastModifiedAt": created_at},
        "properties": {
            **workspace_documents.properties_of(workspace),
            "workspaceId": workspace_guid(server_id, workspace.name),
            "creationTime": created_at,
            "storageAccount": f"{group}/providers/Microsoft.Storage/storageAccounts/"
            f"{account(workspace.name)}",
            # There are none; SDK v1 reads these keys without checking that they exist.
            "keyVault": "",
            "applicationInsights": "",
            "containerRegistry": "",
            "discoveryUrl": f"{base}/discovery",
            "mlFlowTrackingUri": tracking_uri(base, path),
            "provisioningState": "Succeeded",
        },
    }


def _visible(
    db: Database, identity: Identity, subscription: str = "", group: str = ""
) -> list[Workspace]:
    """The workspaces that a person sees, of a subscription and of a resource group."""
    return [
        workspace
        for workspace in people.workspaces_of(db, identity)
        if subscription.lower() in ("", workspace.subscription_id.lower())
        and group.lower() in ("", workspace.resource_group.lower())
    ]


def _list(request: Request, services: Services, visible: list[Workspace]) -> dict[str, Any]:
    base, server_id = base_url(request), services.for_nodes.server_id
    return {"value": [to_json(workspace, base, server_id) for workspace in visible]}


def _create(services: Services, document: dict[str, Any]) -> Workspace:
    """A new workspace; its subscription and group are spelled as those of other workspaces."""
    for key in ("subscription_id", "resource_group"):
        names = {getattr(workspace, key) for workspace in workspaces.list_all(services.db)}
        same = [name for name in names if name.lower() == document[key].lower()]
        document = {**document, key: min(same, default=document[key])}
    workspace = workspaces.create(services.db, services.clock, document)
    workspace_lifecycle.provision(services, workspace.name)
    return workspace


def _requested(name: Any, subscription: str, group: str, body: Any) -> dict[str, Any]:
    """A workspace's document, as workspaces/ reads it.

    Raises:
        InvalidInput: the body is not a JSON object.
        NotServed: it is not a plain workspace.
    """
    if not isinstance(body, dict):
        raise InvalidInput("the workspace's body is not a JSON object")
    kind = str(body.get("kind") or "").lower()
    if kind not in _KINDS:
        raise NotServed(
            f"torchyard has no workspaces of the kind `{kind[:30]}`", "leave `kind` out"
        )
    is_template = "workspaceName" in body and not isinstance(body.get("properties"), dict)
    return {
        **(
            workspace_documents.of_parameters(body)
            if is_template
            else workspace_documents.of_body(body, str(name))
        ),
        "name": name,
        "subscription_id": subscription,
        "resource_group": group,
        "location": body.get("location") or "",
    }


def _find(db: Database, name: str, subscription: str, group: str) -> Workspace | None:
    """
    Raises:
        Conflict: a workspace of this name exists in another subscription or resource group.
    """
    for workspace in workspaces.list_all(db):
        if workspace.name.lower() != name.lower():
            continue
        actual = (workspace.subscription_id.lower(), workspace.resource_group.lower())
        if subscription and actual != (subscription.lower(), group.lower()):
            raise Conflict(
                f"workspace `{workspace.name}` exists already, in subscription "
                f"`{workspace.subscription_id}`, resource group `{workspace.resource_group}`",
                "workspace names are unique on a server: choose another",
            )
        return workspace
    return None


def _subscription(name: str) -> dict[str, Any]:
    return {
        "id": f"/subscriptions/{name}",
        "subscriptionId": name,
        "displayName": name,
        "state": "Enabled",
        "tenantId": "",
    }


def _group(workspace: Workspace) -> dict[str, Any]:
    return _group_document(workspace.subscription_id, workspace.resource_group, workspace.location)


def _group_document(subscription: str, group: str, location: str) -> dict[str, Any]:
    return {
        "id": f"/subscriptions/{subscription}/resourceGroups/{group}",
        "name": group,
        "type": "Microsoft.Resources/resourceGroups",
        "location": location,
        "properties": {"provisioningState": "Succeeded"},
    }


def _deployment(subscription: str, group: str, name: str) -> dict[str, Any]:
    path = f"/subscriptions/{subscription}/resourceGroups/{group}"
    return {
        "id": f"{path}/providers/Microsoft.Resources/deployments/{name}",
        "name": name,
        "type": "Microsoft.Resources/deployments",
        "properties": {
            "provisioningState": "Succeeded",
            "mode": "Incremental",
            "duration": "PT1S",
            "correlationId": name,
        },
    }
