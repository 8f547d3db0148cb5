"""Azure Resource Manager's protocol, the same for every type of resource.

Owns: the routes of a type, the envelope of a resource, pages.
Leaves: what a resource is to its adapter, a few lines over another package's actions.
Always: every type has the same operations; a repeated create is answered like the first.

Source: https://github.com/Azure/azure-resource-manager-rpc/blob/master/v1.0/resource-api-reference.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from fastapi import Response
from fastapi.responses import JSONResponse

from torchyard.azureml.common.calls import AzureCall, Call
from torchyard.azureml.common.context import AzureContext, Context
from torchyard.azureml.common.paths import ARM, PROVIDER
from torchyard.azureml.common.routing import RouteTable
from torchyard.base.errors import InvalidInput
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_PAGE = 50
OPERATIONS = "operations"
"""The type of the changes that clients requested; all of them are complete."""
_OLD = "2021"
_MAX_PAGE = 1000


@dataclass(frozen=True)
class Resource:
    """One resource. `path` is types and names in turn, below its workspace; `extra` are keys
    beside `properties`, such as `location`. `properties` is None when another service has them.
    """

    path: tuple[str, ...]
    properties: Mapping[str, Any] | None
    created_at: datetime | None = None
    created_by: str = ""
    modified_at: datetime | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """Some of the resources; `next` requests those that follow, empty at the end."""

    value: Sequence[Resource]
    next: str = ""


@dataclass(frozen=True)
class PutResult:
    """What a PUT left; `new` when it did not exist before, `slow` when clients expect that it
    takes some time.
    """

    resource: Resource
    new: bool = True
    slow: bool = False


class Accepted:
    """What an action returns whose clients expect that it takes some time."""


@dataclass(frozen=True)
class PageRequest:
    """The page that a client requests: up to `limit` resources after an earlier page's `next`."""

    after: str = ""
    limit: int = _PAGE


Action = Callable[[Call, str], Any]
VersionAction = Callable[[Call, str, str], Any]


class Kind(Protocol):
    """A type of resource with names: jobs, computes, datastores.

    `actions` are what can be POSTed below a name, by their name in lower case; they return JSON,
    or None for an empty response.
    """

    @property
    def actions(self) -> Mapping[str, Action]: ...

    def list(self, call: Call, page: PageRequest) -> Page: ...

    def get(self, call: Call, name: str) -> Resource: ...

    def put(self, call: Call, name: str) -> PutResult: ...

    def delete(self, call: Call, name: str) -> None: ...


class VersionedKind(Protocol):
    """A type of resource with names and versions: data, environments, models, components, codes.

    A name's own resource is its container: it has the latest and the next version, and putting
    it archives all of them or none.
    """

    @property
    def actions(self) -> Mapping[str, VersionAction]: ...

    def list(self, call: Call, page: PageRequest) -> Page: ...

    def get(self, call: Call, name: str) -> Resource: ...

    def put_container(self, call: Call, name: str) -> Resource: ...

    def list_versions(self, call: Call, name: str, page: PageRequest) -> Page: ...

    def get_version(self, call: Call, name: str, version: str) -> Resource: ...

    def put(self, call: Call, name: str, version: str) -> PutResult: ...

    def delete(self, call: Call, name: str, version: str) -> None: ...


Adapter = Callable[[AzureContext], Kind]
VersionedAdapter = Callable[[AzureContext], VersionedKind]
AnyAdapter = Callable[[AzureContext], "Kind | VersionedKind"]


def path_of_type(type: str) -> str:
    """The path of a type's resources below the workspace."""
    return f"/{ARM}/{type.lower()}"


@dataclass(frozen=True)
class Permissions:
    """What changes to the resources of a type need; reading them needs `READ`.

    `actions` are by their name in lower case, as in a `Kind`.
    """

    put: Permission = Permission.WRITE
    patch: Permission = Permission.WRITE
    delete: Permission = Permission.WRITE
    actions: Mapping[str, Permission] = field(default_factory=dict)


@dataclass(frozen=True)
class ResourceType:
    """A type with names, and how its adapter is made."""

    type: str
    permissions: Permissions
    adapter: Adapter

    def routes(self) -> RouteTable:
        table, needed = RouteTable(), self.permissions
        collection = path_of_type(self.type)
        resource = f"{collection}/{{name}}"
        read = needs(Permission.READ)
        table.add(["GET"], collection, read(partial(_list, self.adapter)))
        table.add(["GET"], resource, read(partial(_get, self.adapter)))
        table.add(["PUT"], resource, needs(needed.put)(partial(_put, self.adapter)))
        table.add(["PATCH"], resource, needs(needed.patch)(partial(_put, self.adapter)))
        table.add(["DELETE"], resource, needs(needed.delete)(partial(_delete, self.adapter)))
        for action, permission in needed.actions.items():
            act = partial(_act, self.adapter, action)
            table.add(["POST"], f"{resource}/{action}", needs(permission)(act))
        return table


@dataclass(frozen=True)
class VersionedResourceType:
    """A type with names and versions, and how its adapter is made."""

    type: str
    permissions: Permissions
    adapter: VersionedAdapter

    def routes(self) -> RouteTable:
        table, needed = RouteTable(), self.permissions
        collection = path_of_type(self.type)
        container = f"{collection}/{{name}}"
        version = f"{container}/versions/{{version}}"
        read = needs(Permission.READ)
        table.add(["GET"], collection, read(partial(_list, self.adapter)))
        table.add(["GET"], container, read(partial(_get, self.adapter)))
        for method, permission in (("PUT", needed.put), ("PATCH", needed.patch)):
            put_container = needs(permission)(partial(_put_container, self.adapter))
            table.add([method], container, put_container)
            put = needs(permission)(partial(_put_version, self.adapter))
            table.add([method], version, put)
        table.add(["GET"], f"{container}/versions", read(partial(_list_versions, self.adapter)))
        table.add(["GET"], version, read(partial(_get_version, self.adapter)))
        delete = needs(needed.delete)(partial(_delete_version, self.adapter))
        table.add(["DELETE"], version, delete)
        for action, permission in needed.actions.items():
            act = partial(_act_on_version, self.adapter, action)
            table.add(["POST"], f"{version}/{action}", needs(permission)(act))
        return table


def to_json(call: Call, resource: Resource) -> dict[str, Any]:
    """A resource in ARM's envelope."""
    body: dict[str, Any] = {
        "id": call.id(*resource.path),
        "name": resource.path[-1],
        "type": "/".join((PROVIDER, "workspaces", *resource.path[::2])),
        "properties": None if resource.properties is None else dict(resource.properties),
        **resource.extra,
    }
    if resource.created_at is not None:
        changed = resource.modified_at or resource.created_at
        body["systemData"] = {
            "createdAt": timestamp(resource.created_at),
            "createdBy": resource.created_by,
            "createdByType": "User",
            "lastModifiedAt": timestamp(changed),
            "lastModifiedBy": resource.created_by,
            "lastModifiedByType": "User",
        }
    return body


def timestamp(moment: datetime) -> str:
    """A time as Azure writes it, with seven digits after the point."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f0Z")


def page_request(call: Call) -> PageRequest:
    """
    Raises:
        InvalidInput: `$top` is not a positive integer.
    """
    query = {key.lower().lstrip("$"): value for key, value in call.query.items()}
    top = query.get("top") or query.get("maxpagesize") or query.get("count") or ""
    if top and not (top.isascii() and top.isdecimal() and len(top) < 9 and int(top) > 0):
        raise InvalidInput(f"`$top` is `{top[:20]}`", "it must be a positive integer")
    limit = min(int(top), _MAX_PAGE) if top else _PAGE
    after = query.get("skiptoken") or query.get("skip") or query.get("continuationtoken") or ""
    return PageRequest(after, limit)


def continuation_id(token: str) -> int | None:
    """The id after which a page continues, from the page before; None for the first.

    Raises:
        InvalidInput: the token is not from a page.
    """
    if not token:
        return None
    if not (token.isascii() and token.isdecimal() and len(token) < 19):
        raise InvalidInput(
            f"`{token[:40]}` is not a continuation token",
            "start the list again, and follow its link",
        )
    return int(token)


def page_response(call: Call, page: Page) -> JSONResponse:
    """A page in ARM's envelope, with the address of the next."""
    body: dict[str, Any] = {"value": [to_json(call, resource) for resource in page.value]}
    if page.next:
        query = {k: v for k, v in call.query.items() if k.lower() not in ("$skiptoken", "$skip")}
        # What follows `/azureml/{workspace}/arm`.
        path = quote("/".join(call.path.split("/")[4:]))
        text = urlencode({**query, "$skipToken": page.next})
        body["nextLink"] = f"{call.base}{call.workspace_id}/{path}?{text}"
    return JSONResponse(body)


def put_response(call: Call, result: PutResult) -> JSONResponse:
    status = 201 if result.new else 200
    return JSONResponse(
        to_json(call, result.resource), status, operation_headers(call, result.slow)
    )


def operation_headers(call: Call, slow: bool = False) -> dict[str, str]:
    """Where a client asks for the state of its change before it reads the resource again.

    Unless the change is slow, only old clients need it: without it their library reads a response
    of a subtype twice, and spoils it.
    """
    if not slow and call.query.get("api-version", "9") >= _OLD:
        return {}
    return {
        "azure-asyncoperation": f"{call.base}{call.workspace_id}/{OPERATIONS}/done",
        "retry-after-ms": "20",
    }


def _list(adapter: AnyAdapter, call: AzureCall, context: Context) -> JSONResponse:
    return page_response(call, adapter(context).list(call, page_request(call)))


def _get(
    adapter: AnyAdapter,
    call: AzureCall,
    context: Context,
    name: str,
) -> JSONResponse:
    return JSONResponse(to_json(call, adapter(context).get(call, name)))


def _put(adapter: Adapter, call: AzureCall, context: Context, name: str) -> JSONResponse:
    return put_response(call, adapter(context).put(call, name))


def _delete(adapter: Adapter, call: AzureCall, context: Context, name: str) -> Response:
    adapter(context).delete(call, name)
    return Response(status_code=200, headers=operation_headers(call))


def _act(
    adapter: Adapter,
    action: str,
    call: AzureCall,
    context: Context,
    name: str,
) -> Response:
    body = adapter(context).actions[action](call, name)
    if isinstance(body, Accepted):
        return Response(status_code=202, headers=operation_headers(call))
    return _action_response(body)


def _put_container(
    adapter: VersionedAdapter, call: AzureCall, context: Context, name: str
) -> JSONResponse:
    return JSONResponse(to_json(call, adapter(context).put_container(call, name)))


def _list_versions(
    adapter: VersionedAdapter, call: AzureCall, context: Context, name: str
) -> JSONResponse:
    return page_response(call, adapter(context).list_versions(call, name, page_request(call)))


def _get_version(
    adapter: VersionedAdapter,
    call: AzureCall,
    context: Context,
    name: str,
    version: str,
) -> JSONResponse:
    return JSONResponse(to_json(call, adapter(context).get_version(call, name, version)))


def _put_version(
    adapter: VersionedAdapter,
    call: AzureCall,
    context: Context,
    name: str,
    version: str,
) -> JSONResponse:
    return put_response(call, adapter(context).put(call, name, version))


def _delete_version(
    adapter: VersionedAdapter,
    call: AzureCall,
    context: Context,
    name: str,
    version: str,
) -> Response:
    adapter(context).delete(call, name, version)
    return Response(status_code=200)


def _act_on_version(
    adapter: VersionedAdapter,
    action: str,
    call: AzureCall,
    context: Context,
    name: str,
    version: str,
) -> Response:
    return _action_response(adapter(context).actions[action](call, name, version))


def _action_response(body: Any) -> Response:
    return Response(status_code=200) if body is None else JSONResponse(body)
