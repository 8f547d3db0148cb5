"""One request as Azure ML's clients make it.

Owns: who asks, in which workspace, by which address; the JSON body; resource ids.
Leaves: what the body means to the adapters.
Always: the subscription and resource group of the path are the workspace's own, in any case.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from torchyard.azureml.common.paths import KEY, PROVIDER, Asked
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces.types import Identity, Workspace

Authenticate = Callable[[Request], Identity]
_METRICS = "/metric/runs/"


@dataclass(frozen=True)
class Call:
    """`base` is the server as the client reached it, `https://host:port`; `body` is the JSON of
    the request, None without one; `path` is ours (see paths.py).
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
            raise InvalidInput("the request's body is no JSON object")
        return self.body

    @property
    def properties(self) -> dict[str, Any]:
        """`properties` of the body: what an ARM resource says of itself.

        Raises:
            InvalidInput: there are none.
        """
        found = self.document.get("properties")
        if not isinstance(found, dict):
            raise InvalidInput("the request's `properties` is no JSON object", at=["properties"])
        return found


def resource_id(workspace: Workspace) -> str:
    return (
        f"/subscriptions/{workspace.subscription_id}/resourceGroups/{workspace.resource_group}"
        f"/providers/{PROVIDER}/workspaces/{workspace.name}"
    )


class Caller:
    """The FastAPI dependency that makes a `Call` of a request.

    Args:
        authenticate: from a request to who asks, when they have the right; reads `workspace` in
            `path_params`.
    """

    def __init__(self, db: Database, authenticate: Authenticate) -> None:
        self._db = db
        self._authenticate = authenticate

    async def __call__(self, request: Request) -> Call:
        body = await request.body()
        return await run_in_threadpool(self._call, request, body)

    def _call(self, request: Request, body: bytes) -> Call:
        identity = self._authenticate(request)
        workspace = workspaces.get(self._db, request.path_params["workspace"])
        _same_place(workspace, request.scope.get(KEY))
        return Call(
            workspace,
            identity,
            base_url(request),
            request.method,
            request.url.path,
            dict(request.query_params),
            None if _has_parts(request) else _json(body, request.url.path),
        )


def part(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A JSON object in a body; empty when it is not there.

    Raises:
        InvalidInput: it is something else.
    """
    found = holder.get(key)
    if found is not None and not isinstance(found, Mapping):
        raise InvalidInput(f"`{key}` is no JSON object", at=[key])
    return found or {}


def items(holder: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """A list of JSON objects in a body; empty when it is not there.

    Raises:
        InvalidInput: it is something else.
    """
    found = holder.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise InvalidInput(f"`{key}` is no list of JSON objects", at=[key])
    return found


def base_url(request: Request) -> str:
    """The server as the client named it."""
    return f"{request.url.scheme}://{request.headers.get('host', '')}"


def _same_place(workspace: Workspace, asked: Asked | None) -> None:
    if asked is None or not asked.subscription:
        return
    theirs = (asked.subscription.lower(), asked.resource_group.lower())
    own = (workspace.subscription_id.lower(), workspace.resource_group.lower())
    if theirs != own:
        raise NotFound(
            f"workspace `{workspace.name}` is not in subscription `{asked.subscription}`, resource "
            f"group `{asked.resource_group}`",
            f"it is in subscription `{workspace.subscription_id}`, resource group "
            f"`{workspace.resource_group}`: `yard workspace config` writes a right config.json",
        )


def _has_parts(request: Request) -> bool:
    """Files in a form: what is asked for so is refused, by those who know what it is."""
    return request.headers.get("content-type", "").startswith("multipart/")


def _json(body: bytes, path: str) -> Any:
    if not body.strip():
        return None
    try:
        # Only metrics may be what JSON has no numbers for; elsewhere no answer could tell it.
        if _METRICS in path:
            return json.loads(body)
        return json.loads(body, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("the request's body is no JSON") from error


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise InvalidInput(f"the request's body has the number `{text[:40]}`", "write it as a text")
    return found
