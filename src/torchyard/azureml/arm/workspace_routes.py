"""Workspaces as Azure Resource Manager tells them, and what lies above them.

Owns: subscriptions, resource groups, workspaces: reading, creating, changing, deleting.
Leaves: what a workspace is to workspaces/, what is in one to the other modules.
Always: subscriptions and resource groups are words that workspaces bear; nobody is shown a
workspace where they are nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request, Response
from fastapi.responses import JSONResponse

from torchyard.azureml.arm.resources import timestamp
from torchyard.azureml.common.calls import Authenticate, Call, Caller, base_url, part, resource_id
from torchyard.azureml.common.containers import account, workspace_guid
from torchyard.azureml.common.errors import ALL_METHODS, AzureRoute, NotServed
from torchyard.azureml.common.paths import ABOVE, ARM, KEY, PROVIDER, Asked
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces import people
from torchyard.workspaces.types import Identity, Workspace

_GROUP = "/subscriptions/{subscription}/resourcegroups/{group}"
_DEPLOYMENT = f"{_GROUP}/providers/microsoft.resources/deployments/{{name}}"
_KINDS = ("", "default")
Document = Annotated[Any, Body()]


@dataclass(frozen=True)
class Site:
    """What the routes work on.

    Attributes:
        administrator: who asks, when they may make and delete workspaces.
        furnish: gives a new workspace what every one has.
        delete: deletes an empty one.
    """

    db: Database
    clock: Clock
    server_id: str
    person: Authenticate
    administrator: Authenticate
    furnish: Callable[[str], None]
    delete: Callable[[str], None]

    def shown(self, workspace: Workspace, base: str) -> dict[str, Any]:
        return to_json(workspace, base, self.server_id)

    def create(self, document: dict[str, Any]) -> Workspace:
        """A new workspace; subscription and group are spelt as others there spell them."""
        for key in ("subscription_id", "resource_group"):
            known = {getattr(one, key) for one in workspaces.list_all(self.db)}
            alike = [name for name in known if name.lower() == document[key].lower()]
            document = {**document, key: min(alike, default=document[key])}
        made = workspaces.create(self.db, self.clock, document)
        self.furnish(made.name)
        return made


def inside(site: Site) -> Callable[[Caller], APIRouter]:
    """What is asked of one workspace."""

    def routes_of(caller: Caller) -> APIRouter:
        routes = APIRouter(route_class=AzureRoute)
        the_call = Annotated[Call, Depends(caller)]
        administrator = Annotated[Identity, Depends(site.administrator)]

        @routes.get(f"/{ARM}")
        def get(call: the_call) -> JSONResponse:
            return JSONResponse(site.shown(call.workspace, call.base))

        @routes.patch(f"/{ARM}")
        def update(call: the_call) -> JSONResponse:
            description = part(call.document, "properties").get("description")
            changes = {} if description is None else {"description": description}
            changed = workspaces.update(site.db, call.workspace.name, changes)
            return JSONResponse(site.shown(changed, call.base))

        @routes.delete(f"/{ARM}")
        def delete(call: the_call) -> Response:
            site.delete(call.workspace.name)
            return Response(status_code=200)

        @routes.put(f"/{ARM}")
        def create(request: Request, identity: administrator, document: Document) -> JSONResponse:
            workspace = request.path_params["workspace"]
            asked: Asked = request.scope.get(KEY) or Asked(request.url.path)
            wanted = _wanted(workspace, asked.subscription, asked.resource_group, document)
            known = _known(site.db, workspace, asked.subscription, asked.resource_group)
            if known is None:
                return JSONResponse(site.shown(site.create(wanted), base_url(request)), 201)
            changes = {"description": wanted["description"]} if wanted["description"] else {}
            changed = workspaces.update(site.db, known.name, changes)
            return JSONResponse(site.shown(changed, base_url(request)))

        return routes

    return routes_of


def above(site: Site) -> APIRouter:
    """What is asked of a subscription or a resource group."""
    routes = APIRouter(prefix=ABOVE, route_class=AzureRoute, include_in_schema=False)
    person = Annotated[Identity, Depends(site.person)]
    administrator = Annotated[Identity, Depends(site.administrator)]

    def found(identity: Identity, subscription: str = "", group: str = "") -> list[Workspace]:
        return [
            one
            for one in people.workspaces_of(site.db, identity)
            if subscription.lower() in ("", one.subscription_id.lower())
            and group.lower() in ("", one.resource_group.lower())
        ]

    @routes.get("/subscriptions")
    def subscriptions(identity: person) -> dict[str, Any]:
        names = sorted({one.subscription_id for one in found(identity)})
        return {"value": [_subscription(one) for one in names]}

    @routes.get("/subscriptions/{subscription}")
    def one_subscription(identity: person, subscription: str) -> dict[str, Any]:
        for one in found(identity, subscription):
            return _subscription(one.subscription_id)
        raise NotFound(f"there is no subscription `{subscription}` here", _SEE_CONFIG)

    @routes.get("/subscriptions/{subscription}/resourcegroups")
    def groups(identity: person, subscription: str) -> dict[str, Any]:
        known = {one.resource_group: one for one in found(identity, subscription)}
        return {"value": [_group(known[name]) for name in sorted(known)]}

    @routes.get(_GROUP)
    def one_group(identity: person, subscription: str, group: str) -> dict[str, Any]:
        for one in found(identity, subscription, group):
            return _group(one)
        raise NotFound(
            f"there is no resource group `{group}` in subscription `{subscription}` here",
            _SEE_CONFIG,
        )

    # Where workspaces can be: what SDK v1 asks before it makes one.
    @routes.get(f"/subscriptions/{{subscription}}/providers/{PROVIDER.lower()}")
    def provider(identity: person, subscription: str) -> dict[str, Any]:
        raise NotServed(
            "SDK v1 can't create workspaces here", "`yard workspace create` does, and SDK v2"
        )

    @routes.get(f"/subscriptions/{{subscription}}/providers/{PROVIDER.lower()}/workspaces")
    def in_subscription(request: Request, identity: person, subscription: str) -> dict[str, Any]:
        base = base_url(request)
        return {"value": [site.shown(one, base) for one in found(identity, subscription)]}

    # SDK v1 lists the resources of a subscription, and wants of them only workspaces.
    @routes.get("/subscriptions/{subscription}/resources")
    def resources(request: Request, identity: person, subscription: str) -> dict[str, Any]:
        base = base_url(request)
        return {"value": [site.shown(one, base) for one in found(identity, subscription)]}

    @routes.get(f"{_GROUP}/providers/{PROVIDER.lower()}/workspaces")
    def in_group(
        request: Request, identity: person, subscription: str, group: str
    ) -> dict[str, Any]:
        base = base_url(request)
        return {"value": [site.shown(one, base) for one in found(identity, subscription, group)]}

    @routes.put(_DEPLOYMENT)
    def deploy(
        identity: administrator, subscription: str, group: str, name: str, document: Document
    ) -> JSONResponse:
        """The SDK creates a workspace by a template that makes its storage and vault, too; of
        these only the workspace is wanted.
        """
        given = _parameters(document)
        wanted = _wanted(given.get("workspaceName"), subscription, group, given)
        if _known(site.db, wanted["name"], subscription, group) is None:
            site.create(wanted)
        return JSONResponse(_deployment(subscription, group, name), 201)

    @routes.get(_DEPLOYMENT)
    def deployment(identity: person, subscription: str, group: str, name: str) -> dict[str, Any]:
        return _deployment(subscription, group, name)

    @routes.get(f"{_GROUP}/deployments/{{name}}/operations")
    def operations(identity: person, subscription: str, group: str, name: str) -> dict[str, Any]:
        return {"value": []}

    @routes.api_route("/subscriptions/{path:path}", methods=ALL_METHODS)
    def absent(request: Request, identity: person, path: str) -> JSONResponse:
        raise NotFound(
            f"torchyard does not answer {request.method} `/subscriptions/{path[:200]}`",
            "see docs/reference/azure-ml.md",
        )

    return routes


_SEE_CONFIG = "`yard workspace config` writes a right config.json; see `yard workspace list`"


def to_json(workspace: Workspace, base: str, server_id: str) -> dict[str, Any]:
    path = resource_id(workspace)
    group = path.partition("/providers/")[0]
    made_at = timestamp(workspace.created_at)
    return {
        "id": path,
        "name": workspace.name,
        "type": f"{PROVIDER}/workspaces",
        "location": workspace.location,
        "tags": {},
        "kind": "Default",
        "sku": {"name": "Basic", "tier": "Basic"},
        "identity": {"type": "SystemAssigned", "principalId": "", "tenantId": ""},
        "systemData": {"createdAt": made_at, "lastModifiedAt": made_at},
        "properties": {
            "friendlyName": workspace.name,
            "description": workspace.description,
            "workspaceId": workspace_guid(server_id, workspace.name),
            "creationTime": made_at,
            "storageAccount": f"{group}/providers/Microsoft.Storage/storageAccounts/"
            f"{account(workspace.name)}",
            # There are none; code of SDK v1 looks them up without asking.
            "keyVault": "",
            "applicationInsights": "",
            "containerRegistry": "",
            "discoveryUrl": f"{base}/discovery",
            "mlFlowTrackingUri": f"azureml://{base.partition('://')[2]}/mlflow/v1.0{path}",
            "provisioningState": "Succeeded",
            "publicNetworkAccess": "Enabled",
            "hbiWorkspace": False,
        },
    }


def _parameters(document: Any) -> dict[str, Any]:
    """The values of a template's parameters.

    Raises:
        InvalidInput: it is no template that makes a workspace.
    """
    try:
        given = document["properties"]["parameters"]
        found = {name: one.get("value") for name, one in given.items()}
    except (TypeError, KeyError, AttributeError):
        found = {}
    if not isinstance(found.get("workspaceName"), str):
        raise InvalidInput(
            "torchyard takes no templates but the SDK's own, which make a workspace",
            "use `ml_client.workspaces.begin_create`, or `yard workspace create`",
        )
    return found


def _wanted(name: Any, subscription: str, group: str, given: Any) -> dict[str, Any]:
    """A workspace's document, as workspaces/ reads it.

    Raises:
        InvalidInput: it is none.
        NotServed: it asks for something that is not a plain workspace.
    """
    if not isinstance(given, dict):
        raise InvalidInput("the workspace's body is no JSON object")
    kind = str(given.get("kind") or "").lower()
    if kind not in _KINDS:
        raise NotServed(
            f"torchyard has no workspaces of the kind `{kind[:30]}`", "leave `kind` out"
        )
    properties = given.get("properties")
    described = properties if isinstance(properties, dict) else given
    return {
        "name": name,
        "subscription_id": subscription,
        "resource_group": group,
        "location": given.get("location") or "",
        "description": described.get("description") or "",
    }


def _known(db: Database, name: str, subscription: str, group: str) -> Workspace | None:
    """
    Raises:
        Conflict: there is one of this name in another place.
    """
    for one in workspaces.list_all(db):
        if one.name.lower() != name.lower():
            continue
        there = (one.subscription_id.lower(), one.resource_group.lower())
        if subscription and there != (subscription.lower(), group.lower()):
            raise Conflict(
                f"workspace `{one.name}` is there already, in subscription "
                f"`{one.subscription_id}`, resource group `{one.resource_group}`",
                "a server's workspaces differ by name: choose another",
            )
        return one
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
    return {
        "id": f"/subscriptions/{workspace.subscription_id}/resourceGroups/"
        f"{workspace.resource_group}",
        "name": workspace.resource_group,
        "type": "Microsoft.Resources/resourceGroups",
        "location": workspace.location,
        "properties": {"provisioningState": "Succeeded"},
    }


def _deployment(subscription: str, group: str, name: str) -> dict[str, Any]:
    place = f"/subscriptions/{subscription}/resourceGroups/{group}"
    return {
        "id": f"{place}/providers/Microsoft.Resources/deployments/{name}",
        "name": name,
        "type": "Microsoft.Resources/deployments",
        "properties": {
            "provisioningState": "Succeeded",
            "mode": "Incremental",
            "duration": "PT1S",
            "correlationId": name,
        },
    }
