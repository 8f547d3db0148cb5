"""Azure Resource Manager's one way of asking, for every type of resource.

Owns: the routes of a type, the envelope of a resource, pages.
Leaves: what a resource is to its adapter, a few lines over a room's actions.
Always: a type has the same verbs as any other; a create that is repeated answers as the first did.

Source: https://github.com/Azure/azure-resource-manager-rpc/blob/master/v1.0/resource-api-reference.md
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Annotated, Any, Protocol
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Response
from fastapi.responses import JSONResponse

from torchyard.azureml.common.calls import Call
from torchyard.azureml.common.paths import ARM, PROVIDER
from torchyard.base.errors import InvalidInput

_PAGE = 50
OPERATIONS = "operations"
"""A type whose resources are changes that were asked for; whatever was answered is done."""
_OLD = "2021"
_MOST = 1000


@dataclass(frozen=True)
class Resource:
    """One resource. `path` is types and names in turn, below its workspace; `extra` are keys
    beside `properties`, such as `location`. `properties` is None for what another service tells.
    """

    path: tuple[str, ...]
    properties: Mapping[str, Any] | None
    created_at: datetime | None = None
    created_by: str = ""
    modified_at: datetime | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """Some of what there is; `next` goes on after it, empty at the end."""

    value: Sequence[Resource]
    next: str = ""


@dataclass(frozen=True)
class Made:
    """What a PUT left; `new` when it was not there before, `slow` when clients expect that it
    takes its time.
    """

    resource: Resource
    new: bool = True
    slow: bool = False


@dataclass(frozen=True)
class Ask:
    """Which page is asked for: so many, after what an earlier page's `next` said."""

    after: str = ""
    most: int = _PAGE


Verb = Callable[[Call, str], Any]
VersionVerb = Callable[[Call, str, str], Any]


class Kind(Protocol):
    """A type of resource with names: jobs, computes, datastores.

    `verbs` are what can be POSTed below a name, by their word in lower case; they answer JSON,
    or None for an empty answer.
    """

    @property
    def type(self) -> str: ...

    @property
    def verbs(self) -> Mapping[str, Verb]: ...

    def list(self, call: Call, ask: Ask) -> Page: ...

    def get(self, call: Call, name: str) -> Resource: ...

    def put(self, call: Call, name: str) -> Made: ...

    def delete(self, call: Call, name: str) -> None: ...


class VersionedKind(Protocol):
    """A type of resource with names and versions: data, environments, models, components, codes.

    A name's own resource is its container: it tells the latest and the next version, and putting
    it archives all of them or none.
    """

    @property
    def type(self) -> str: ...

    @property
    def verbs(self) -> Mapping[str, VersionVerb]: ...

    def list(self, call: Call, ask: Ask) -> Page: ...

    def get(self, call: Call, name: str) -> Resource: ...

    def put_container(self, call: Call, name: str) -> Resource: ...

    def versions(self, call: Call, name: str, ask: Ask) -> Page: ...

    def version(self, call: Call, name: str, version: str) -> Resource: ...

    def put(self, call: Call, name: str, version: str) -> Made: ...

    def delete(self, call: Call, name: str, version: str) -> None: ...


def path_of(type: str) -> str:
    """Where the resources of a type are, below the workspace's path."""
    return f"/{ARM}/{type.lower()}"


def mount(routes: APIRouter, kind: Kind, caller: Callable[..., Any]) -> None:
    """The routes of a type with names."""
    the_call = Annotated[Call, Depends(caller)]
    top = path_of(kind.type)

    @routes.get(top)
    def list_all(call: the_call) -> JSONResponse:
        return _page(call, kind.list(call, ask_of(call)))

    @routes.get(f"{top}/{{name}}")
    def get(call: the_call, name: str) -> JSONResponse:
        return JSONResponse(to_json(call, kind.get(call, name)))

    @routes.put(f"{top}/{{name}}")
    @routes.patch(f"{top}/{{name}}")
    def put(call: the_call, name: str) -> JSONResponse:
        return _made(call, kind.put(call, name))

    @routes.delete(f"{top}/{{name}}")
    def delete(call: the_call, name: str) -> Response:
        kind.delete(call, name)
        return Response(status_code=200, headers=_operation(call))

    for word, verb in kind.verbs.items():
        routes.add_api_route(f"{top}/{{name}}/{word}", _named(verb, caller), methods=["POST"])


def mount_versioned(routes: APIRouter, kind: VersionedKind, caller: Callable[..., Any]) -> None:
    """The routes of a type with names and versions."""
    the_call = Annotated[Call, Depends(caller)]
    top = path_of(kind.type)
    one = f"{top}/{{name}}/versions/{{version}}"

    @routes.get(top)
    def list_all(call: the_call) -> JSONResponse:
        return _page(call, kind.list(call, ask_of(call)))

    @routes.get(f"{top}/{{name}}")
    def get(call: the_call, name: str) -> JSONResponse:
        return JSONResponse(to_json(call, kind.get(call, name)))

    @routes.put(f"{top}/{{name}}")
    @routes.patch(f"{top}/{{name}}")
    def put_container(call: the_call, name: str) -> JSONResponse:
        return JSONResponse(to_json(call, kind.put_container(call, name)))

    @routes.get(f"{top}/{{name}}/versions")
    def versions(call: the_call, name: str) -> JSONResponse:
        return _page(call, kind.versions(call, name, ask_of(call)))

    @routes.get(one)
    def version_of(call: the_call, name: str, version: str) -> JSONResponse:
        return JSONResponse(to_json(call, kind.version(call, name, version)))

    @routes.put(one)
    @routes.patch(one)
    def put(call: the_call, name: str, version: str) -> JSONResponse:
        return _made(call, kind.put(call, name, version))

    @routes.delete(one)
    def delete(call: the_call, name: str, version: str) -> Response:
        kind.delete(call, name, version)
        return Response(status_code=200)

    for word, verb in kind.verbs.items():
        routes.add_api_route(f"{one}/{word}", _versioned(verb, caller), methods=["POST"])


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


def ask_of(call: Call) -> Ask:
    """
    Raises:
        InvalidInput: `$top` is no number from 1 up.
    """
    given = {key.lower().lstrip("$"): value for key, value in call.query.items()}
    top = given.get("top") or given.get("maxpagesize") or given.get("count") or ""
    if top and not (top.isascii() and top.isdecimal() and len(top) < 9 and int(top) > 0):
        raise InvalidInput(f"`$top` is `{top[:20]}`", "a number from 1 up")
    most = min(int(top), _MOST) if top else _PAGE
    after = given.get("skiptoken") or given.get("skip") or given.get("continuationtoken") or ""
    return Ask(after, most)


def mark_of(after: str) -> int | None:
    """The id behind which a page goes on, as the page before told it; None for the first.

    Raises:
        InvalidInput: no page told it.
    """
    if not after:
        return None
    if not (after.isascii() and after.isdecimal() and len(after) < 19):
        raise InvalidInput(
            f"`{after[:40]}` is no place to go on from", "begin the list again, and follow its link"
        )
    return int(after)


def _page(call: Call, page: Page) -> JSONResponse:
    body: dict[str, Any] = {"value": [to_json(call, one) for one in page.value]}
    if page.next:
        kept = {k: v for k, v in call.query.items() if k.lower() not in ("$skiptoken", "$skip")}
        # Behind `/azureml/{workspace}/arm`.
        path = quote("/".join(call.path.split("/")[4:]))
        query = urlencode({**kept, "$skipToken": page.next})
        body["nextLink"] = f"{call.base}{call.workspace_id}/{path}?{query}"
    return JSONResponse(body)


def _made(call: Call, made: Made) -> JSONResponse:
    status = 201 if made.new else 200
    return JSONResponse(to_json(call, made.resource), status, _operation(call, made.slow))


def _operation(call: Call, slow: bool = False) -> dict[str, str]:
    """Where a client asks how its change went, before it reads the resource anew.

    Of what is not slow only old ones ask. The client's library spoils an answer of subtypes when it
    reads it twice, as it does without this.
    """
    if not slow and call.query.get("api-version", "9") >= _OLD:
        return {}
    return {
        "azure-asyncoperation": f"{call.base}{call.workspace_id}/{OPERATIONS}/done",
        "retry-after-ms": "20",
    }


def _named(verb: Verb, caller: Callable[..., Any]) -> Callable[..., Response]:
    def post(call: Annotated[Call, Depends(caller)], name: str) -> Response:
        return _said(verb(call, name))

    return post


def _versioned(verb: VersionVerb, caller: Callable[..., Any]) -> Callable[..., Response]:
    def post(call: Annotated[Call, Depends(caller)], name: str, version: str) -> Response:
        return _said(verb(call, name, version))

    return post


def _said(found: Any) -> Response:
    return Response(status_code=200) if found is None else JSONResponse(found)
