"""One request as Azure ML's clients make it.

Owns: the caller, the workspace, the server's address, the JSON body; resource ids.
Leaves: what the body means to the adapters.
Always: the subscription and resource group of the path are those of the workspace, in any case.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from torchyard.azureml.common.paths import PROVIDER, SCOPE_KEY, AzurePath
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, InvalidSpec, NotFound
from torchyard.shared.sdk_v1_records import BASE_HEADER
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces.guarded_routes import identity_of
from torchyard.workspaces.types import Identity, Workspace

_METRICS = "/metric/runs/"
_OF_RESOURCES = ("id", "name", "type", "systemData", "etag")


@dataclass(frozen=True)
class Call:
    """`base` is the server as the client reached it, `https://host:port`; `body` is the JSON of
    the request, None without one; `path` is the short one that paths.py makes.
    """

    workspace: Workspace
    identity: Identity
    base: str
    method: str
    path: str
    query: Mapping[str, str]
    body: Any = None

    @property
    def workspace_id(self) -> str:
        """The workspace's resource path."""
        return resource_id(self.workspace)

    def id(self, *parts: str) -> str:
        """A resource path in the workspace, of types and names in turn."""
        return "/".join((self.workspace_id, *parts))

    @property
    def document(self) -> dict[str, Any]:
        """The body, which must be a JSON object.

        Raises:
            InvalidInput: it is not.
        """
        if not isinstance(self.body, dict):
            raise InvalidInput("the request's body is not a JSON object")
        return self.body

    @property
    def properties(self) -> dict[str, Any]:
        """`properties` of the body: the content of an ARM resource.

        Raises:
            InvalidInput: there are none.
        """
        properties = self.document.get("properties")
        if not isinstance(properties, dict):
            raise InvalidInput("the request's `properties` is not a JSON object", at=["properties"])
        return properties


def resource_id(workspace: Workspace) -> str:
    return (
        f"/subscriptions/{workspace.subscription_id}/resourceGroups/{workspace.resource_group}"
        f"/providers/{PROVIDER}/workspaces/{workspace.name}"
    )


def tracking_uri(base: str, path: str) -> str:
    """Where azureml-mlflow logs to: the workspace's resource path at the server at `base`."""
    return f"azureml://{base.partition('://')[2]}/mlflow/v1.0{path}"


async def read_call(request: Request) -> Call:
    """The FastAPI dependency that makes a `Call` of a request; its route has read the body."""
    return await run_in_threadpool(_call, request, await request.body())


AzureCall = Annotated[Call, Depends(read_call)]


def _call(request: Request, body: bytes) -> Call:
    database: Database = request.app.state.db
    workspace = workspaces.get(database, request.path_params["workspace"])
    _check_location(workspace, request.scope.get(SCOPE_KEY))
    return Call(
        workspace,
        identity_of(request),
        base_url(request),
        request.method,
        request.url.path,
        dict(request.query_params),
        None if _is_form(request) else _json(body, request.url.path),
    )


def object_at(document: Mapping[str, Any], key: str, at: Sequence[str] = ()) -> Mapping[str, Any]:
    """A JSON object in a body; empty when it is not there.

    Args:
        at: where the document stands in the body.

    Raises:
        InvalidInput: it is something else.
    """
    value = document.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise InvalidInput(f"`{key}` is not a JSON object", at=[*at, key])
    return value or {}


def tags_at(document: Mapping[str, Any], key: str) -> dict[str, str]:
    """Texts by name; null, which `run.tag("x")` sends, is a tag without a value.

    Raises:
        InvalidInput: it is not a JSON object.
    """
    tags = object_at(document, key)
    return {str(name): "" if value is None else str(value) for name, value in tags.items()}


def refuse_others(
    document: Mapping[str, Any], keys: Collection[str], at: Sequence[str] = (), of: str = ""
) -> None:
    """
    Args:
        keys: what the document may have; others may be empty. Beside these, a resource has its own.
        at: where it stands in the body, as `("properties", "limits")`.
        of: what it describes, as ` of a job`.

    Raises:
        InvalidSpec: it has another key.
    """
    of_resources = () if at else _OF_RESOURCES
    for key, value in document.items():
        if key not in (*keys, *of_resources) and value not in (None, "", [], {}, False):
            path = ".".join((*at[1:], key[:80]))
            raise InvalidSpec(
                f"`{path}`{of} is not served", "leave it out", code="not_served", at=(*at, key)
            )


def objects_at(document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """A list of JSON objects in a body; empty when it is not there.

    Raises:
        InvalidInput: it is something else.
    """
    value = document.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise InvalidInput(f"`{key}` is not a list of JSON objects", at=[key])
    return value


def base_url(request: Request) -> str:
    """The server as the client named it, or as a job's relay says that its scripts reach it."""
    base = request.headers.get(BASE_HEADER, "")
    if base.startswith("https://"):
        return base
    return f"{request.url.scheme}://{request.headers.get('host', '')}"


def _check_location(workspace: Workspace, path: AzurePath | None) -> None:
    if path is None or not path.subscription:
        return
    requested = (path.subscription.lower(), path.resource_group.lower())
    actual = (workspace.subscription_id.lower(), workspace.resource_group.lower())
    if requested != actual:
        raise NotFound(
            f"workspace `{workspace.name}` is not in subscription `{path.subscription}`, resource "
            f"group `{path.resource_group}`",
            f"it is in subscription `{workspace.subscription_id}`, resource group "
            f"`{workspace.resource_group}`: `yard workspace config` writes a correct config.json",
        )


def _is_form(request: Request) -> bool:
    """Forms carry files; the route that expects one reads it, the others refuse it."""
    return request.headers.get("content-type", "").startswith("multipart/")


def _json(body: bytes, path: str) -> Any:
    if not body.strip():
        return None
    try:
        # Only metrics may be numbers that JSON lacks; elsewhere no response could contain them.
        if _METRICS in path:
            return json.loads(body)
        return json.loads(body, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("the request's body is not JSON") from error


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise InvalidInput(
            f"the request's body has the number `{text[:40]}`", "write it as a string"
        )
    return number
