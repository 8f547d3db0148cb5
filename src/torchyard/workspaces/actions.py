"""What can be done with workspaces and tokens.

Owns: the workspaces' names, who a token stands for.
Leaves: what an identity may do to the rooms that are asked.
Always: a token itself is never stored, only its sha256.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime

from sqlalchemy import Connection

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import NotAuthenticated, NotFound, nearest
from torchyard.base.settings import DEFAULT_WORKSPACE
from torchyard.workspaces import store
from torchyard.workspaces.types import Identity, TokenKind, Workspace


def ensure_default(db: Database, clock: Clock) -> Workspace:
    """The workspace that is there from the start."""
    with db.write() as connection:
        found = store.get_workspace(connection, DEFAULT_WORKSPACE)
        if found is not None:
            return found
        made = Workspace(DEFAULT_WORKSPACE, "local", "torchyard", "local", clock.now())
        store.add_workspace(connection, made)
        return made


def get(db: Database, name: str) -> Workspace:
    """
    Raises:
        NotFound: with the nearest name there is.
    """
    with db.read() as connection:
        found = store.get_workspace(connection, name)
        if found is not None:
            return found
        near = nearest(name, [workspace.name for workspace in store.list_workspaces(connection)])
    hint = f"did you mean `{near}`?" if near else "list what exists with `yard workspace list`"
    raise NotFound(f"workspace `{name}` does not exist", hint)


def list_all(db: Database) -> list[Workspace]:
    with db.read() as connection:
        return store.list_workspaces(connection)


def new_token(kind: TokenKind) -> str:
    return kind.value + secrets.token_urlsafe(32)


def keep_token(
    connection: Connection,
    token: str,
    identity: Identity,
    now: datetime,
    expires_at: datetime | None = None,
) -> None:
    """Make `token` good for `identity`."""
    store.add_token(connection, _hash(token), identity, now, expires_at)


def drop_tokens(connection: Connection, kind: TokenKind, subject: str) -> None:
    """Make the tokens of one attempt or run worthless."""
    store.drop_tokens(connection, kind, subject)


def is_known(db: Database, clock: Clock, token: str) -> bool:
    with db.read() as connection:
        return store.find_token(connection, _hash(token), clock.now()) is not None


def authenticate(db: Database, clock: Clock, token: str) -> Identity:
    """
    Raises:
        NotAuthenticated: the token is unknown or its time is over.
    """
    with db.read() as connection:
        identity = store.find_token(connection, _hash(token), clock.now())
    if identity is None:
        raise NotAuthenticated(
            "the token is not known to this server, or its time is over",
            "on the server's own machine leave TORCHYARD_TOKEN unset; elsewhere ask its owner",
        )
    return identity


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
