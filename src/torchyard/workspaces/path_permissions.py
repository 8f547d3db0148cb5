"""The permissions and body limits of protocol routes that do not declare their own yet.

Owns: the route class that looks a request up by its path.
Leaves: Azure ML's paths to azure_rights.py, declared permissions to guarded_routes.py.
Always: a path that is in no table needs `UNKNOWN`, which only the server's owners have.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request, Response

from torchyard.base import request_bodies
from torchyard.workspaces import audit, azure_rights
from torchyard.workspaces.guarded_routes import GuardedRoute, Handle, Needs, declared_needs
from torchyard.workspaces.permissions import Permission

TABLE = azure_rights.TABLE


@dataclass
class _Step:
    """What may follow in a path: literally, as a name, or as all the rest."""

    literal: dict[str, _Step] = field(default_factory=dict)
    name: _Step | None = None
    rest: dict[str, Permission] = field(default_factory=dict)
    permissions: dict[str, Permission] = field(default_factory=dict)


def _grown(table: str) -> _Step:
    root = _Step()
    for line in table.split("\n"):
        if not line:
            continue
        permission, method, path = line.split()
        step, parts = root, path.split("/")[1:]
        whole = parts[-1].endswith(":path}")
        for part in parts[:-1] if whole else parts:
            if part.startswith("{"):
                step.name = step.name or _Step()
                step = step.name
            else:
                step = step.literal.setdefault(part, _Step())
        (step.rest if whole else step.permissions)[method] = Permission[permission]
    return root


_ROOT = _grown(TABLE)


def of(method: str, path: str) -> Permission:
    """The permission that a request needs; `UNKNOWN` when nobody has written it into the table."""
    return _find(_ROOT, path.split("/")[1:], method) or Permission.UNKNOWN


def _find(step: _Step, parts: list[str], method: str) -> Permission | None:
    if not parts:
        return step.permissions.get(method)
    following = step.literal.get(parts[0])
    found = _find(following, parts[1:], method) if following is not None else None
    if found is None and step.name is not None and parts[0]:
        found = _find(step.name, parts[1:], method)
    return found or step.rest.get(method) or step.rest.get("*")


# Its requests are signed and carry no token; nothing of a body is read before the signature is.
_SIGNED = re.compile(r"/azureml-blob/.*", re.DOTALL)


class PathGuardedRoute(GuardedRoute):
    """A route whose endpoint may still leave its permission to the tables.

    Then the endpoint's own dependencies enforce it, after the body was read.
    """

    def _needs_of(self, path: str, endpoint: Callable[..., Any]) -> Needs | None:
        return declared_needs(endpoint)

    def guard(self, handle: Handle) -> Handle:
        if self.needs is not None:
            return super().guard(handle)

        async def guarded(request: Request) -> Response:
            path = request.scope["path"]
            audit.note_permission(request.scope, of(request.method, path))
            limit_bytes = _body_limit_bytes(request, path)
            return await handle(await request_bodies.with_body(request, limit_bytes))

        return guarded


def _body_limit_bytes(request: Request, path: str) -> int:
    if _SIGNED.fullmatch(path):
        return request_bodies.UNLIMITED
    if request.headers.get("authorization", "")[:7].lower() != "bearer ":
        return request_bodies.STRANGERS_LIMIT_BYTES
    return request_bodies.DEFAULT_LIMIT_BYTES
