"""What can be done with workspaces and tokens.

Owns: the workspaces' names, who a token stands for.
Leaves: what an identity may do to the rooms that are asked.
Always: a token itself is never stored, only its sha256.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidSpec, NotAuthenticated, NotFound, nearest
from torchyard.base.settings import DEFAULT_WORKSPACE
from torchyard.workspaces import store
from torchyard.workspaces.types import Identity, TokenKind, Workspace

_NAME = re.compile(r"[a-zA-Z0-9][\w-]{2,32}", re.ASCII)
_PART = re.compile(r"[\w.()-]{1,64}", re.ASCII)
_CHANGES = ("description", "retention_days")
_LONGEST_DAYS = 36_500
_KEYS = ("name", "subscription_id", "resource_group", "location", "description", "$schema")


def ensure_default(db: Database, clock: Clock) -> Workspace:
    """The workspace that is there from the start."""
    with db.write() as connection:
        found = store.get_workspace(connection, DEFAULT_WORKSPACE)
        if found is not None:
            return found
        made = Workspace(DEFAULT_WORKSPACE, "local", "torchyard", "local", clock.now())
        store.add_workspace(connection, made)
        return made


def create(db: Database, clock: Clock, document: Mapping[str, Any]) -> Workspace:
    """A new, empty workspace.

    Raises:
        InvalidSpec: a key or value is wrong.
        Conflict: there is one of this name, in whatever case.
    """
    made = read_document(document, clock.now())
    with db.write() as connection:
        for known in store.list_workspaces(connection):
            # Their folders would be one on a disk that ignores case.
            if known.name.lower() == made.name.lower():
                raise Conflict(
                    f"workspace `{known.name}` exists already", "choose another name", at=["name"]
                )
        store.add_workspace(connection, made)
    return made


def read_document(document: Mapping[str, Any], now: datetime) -> Workspace:
    """A workspace from its YAML document."""
    for key in document:
        if key not in _KEYS:
            near = nearest(str(key), _KEYS)
            hint = f"did you mean `{near}`?" if near else f"known keys: {', '.join(_KEYS[:-1])}"
            raise InvalidSpec(f"unknown key `{key}`", hint, at=[str(key)])
    for key in _KEYS:
        if not isinstance(document.get(key) or "", str):
            raise InvalidSpec(f"`{key}` must be text", at=[key])
    name = document.get("name") or ""
    if not _NAME.fullmatch(name):
        raise InvalidSpec(
            f"`{name[:80]}` is no name for a workspace" if name else "the workspace has no `name`",
            "3 to 33 letters, digits, `_` and `-`, beginning with a letter or digit",
            at=["name"],
        )
    for key in ("subscription_id", "resource_group", "location"):
        if document.get(key) and not _PART.fullmatch(document[key]):
            raise InvalidSpec(
                f"`{document[key][:80]}` is no `{key}`",
                "up to 64 letters, digits, `_`, `-`, `.`, `(` and `)`",
                at=[key],
            )
    return Workspace(
        name,
        document.get("subscription_id") or "local",
        document.get("resource_group") or "torchyard",
        document.get("location") or "local",
        now,
        document.get("description") or "",
    )


def update(db: Database, name: str, changes: Mapping[str, Any]) -> Workspace:
    """Change `description` or `retention_days`.

    Raises:
        InvalidSpec: another key, or a value of the wrong kind.
        NotFound: no such workspace.
    """
    for key in changes:
        if key not in _CHANGES:
            near = nearest(str(key), _CHANGES)
            raise InvalidSpec(
                f"`{key}` of a workspace can't be changed",
                f"did you mean `{near}`?" if near else f"what can be: {', '.join(_CHANGES)}",
                at=[str(key)],
            )
    if not isinstance(changes.get("description", ""), str):
        raise InvalidSpec("`description` must be text", at=["description"])
    days = changes.get("retention_days", 0)
    if type(days) is not int or not 0 <= days <= _LONGEST_DAYS:
        raise InvalidSpec(
            f"`retention_days` is `{str(days)[:50]}`",
            "a whole number of days; 0 keeps jobs for ever",
            at=["retention_days"],
        )
    get(db, name)
    if changes:
        with db.write() as connection:
            store.change_workspace(connection, name, **changes)
    return get(db, name)


def forget(connection: Connection, name: str) -> None:
    """Delete the workspace's row and tokens; what was in it is the business of the rooms above."""
    store.drop_workspace(connection, name)


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
