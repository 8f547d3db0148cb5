"""Who may pass: from an HTTP request to an identity.

Owns: reading the Authorization header, the kinds of token each door takes.
Leaves: roles and quotas to a later page of this room.
Always: without a good token nothing answers but what is listed as open in server.py.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Forbidden, NotAuthenticated
from torchyard.workspaces import actions
from torchyard.workspaces.failures import Failures
from torchyard.workspaces.types import Identity, TokenKind


class Access:
    """The doors; the server keeps one as `app.state.access`."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock
        self._failures = Failures()

    def person(self, request: Request) -> Identity:
        """A person, or a running job on its owner's behalf, in the workspace of the path."""
        identity = self._identity(request)
        if identity.kind is TokenKind.ATTEMPT:
            raise Forbidden("a worker's token is good for its attempt only")
        workspace = request.path_params.get("workspace", "")
        if identity.workspace and workspace and identity.workspace != workspace:
            raise Forbidden(
                f"this token is good for workspace `{identity.workspace}` only, "
                f"not for `{workspace}`"
            )
        if workspace:
            actions.get(self._db, workspace)
        return identity

    def attempt(self, request: Request) -> Identity:
        """The worker of the attempt of the path, and no other."""
        identity = self._identity(request)
        wanted = request.path_params["attempt_id"]
        if identity.kind is not TokenKind.ATTEMPT or identity.subject != wanted:
            raise NotAuthenticated("this token is not the attempt's")
        return identity

    def _identity(self, request: Request) -> Identity:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token:
            raise NotAuthenticated(
                "the request carries no token", "send `Authorization: Bearer <token>`"
            )
        address = request.client.host if request.client else ""
        with self._failures.watched(address, token, self._clock.now()):
            return actions.authenticate(self._db, self._clock, token.strip())


def person(request: Request) -> Identity:
    """The FastAPI dependency for people's routes."""
    access: Access = request.app.state.access
    return access.person(request)


def attempt_worker(request: Request) -> Identity:
    """The FastAPI dependency for workers' routes."""
    access: Access = request.app.state.access
    return access.attempt(request)


Person = Annotated[Identity, Depends(person)]
AttemptWorker = Annotated[Identity, Depends(attempt_worker)]
