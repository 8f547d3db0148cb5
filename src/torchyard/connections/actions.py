"""The connections of a workspace.

Owns: creating, changing, finding and deleting them; who gets their secrets to read.
Leaves: permissions to the routes, checks of values to documents.py, using a connection to the
scripts that read it: torchyard itself connects to none.
Always: a connection without its secrets is what everybody sees; a change without credentials keeps
those there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, InvalidSpec, NotFound, did_you_mean
from torchyard.connections import documents, store
from torchyard.connections.types import CREDENTIALS, WorkspaceConnection
from torchyard.workspaces import ownership


def put(
    db: Database,
    clock: Clock,
    workspace: str,
    name: str,
    user: str,
    properties: Mapping[str, Any],
) -> WorkspaceConnection:
    """Create a connection, or replace it; one that is replaced stays its owner's.

    Args:
        properties: as Azure's resource has them: `category`, `target`, `authType`, `credentials`,
            `metadata`, `isSharedToAll`.

    Raises:
        InvalidSpec: a value is wrong, or a new connection has no credentials.
        Forbidden: it is another's.
    """
    documents.checked_name(name)
    file = documents.read(properties)
    now = clock.now()
    written = WorkspaceConnection(
        workspace,
        name,
        file.category,
        file.target,
        file.authType,
        file.secrets(),
        file.metadata,
        file.isSharedToAll is not False,
        user,
        now,
        now,
    )
    with db.write() as connection:
        before = _find_by_name(store.list_in(connection, workspace), name)
        if before is not None:
            _refuse_foreign(connection, before, user)
        made = _over(before, written)
        store.put(connection, made)
    return made


def change(
    db: Database,
    clock: Clock,
    workspace: str,
    name: str,
    user: str,
    properties: Mapping[str, Any],
) -> WorkspaceConnection:
    """Replace those of its properties that are there.

    Raises:
        NotFound: the connection does not exist.
        InvalidSpec: a value is wrong.
    """
    before = get(db, workspace, name)
    document = {
        "category": before.category,
        "target": before.target,
        "authType": before.auth_type,
        "metadata": before.properties,
        "isSharedToAll": before.is_shared,
        **{key: value for key, value in properties.items() if value is not None},
    }
    return put(db, clock, workspace, before.name, user, document)


def list_in(db: Database, workspace: str) -> list[WorkspaceConnection]:
    """By name."""
    with db.read() as connection:
        return sorted(store.list_in(connection, workspace), key=lambda made: made.name)


def get(db: Database, workspace: str, name: str) -> WorkspaceConnection:
    """In any case of its letters, as Azure finds it.

    Raises:
        NotFound: with the nearest name.
    """
    made = list_in(db, workspace)
    connection = _find_by_name(made, name)
    if connection is not None:
        return connection
    raise NotFound(
        f"connection `{name[:80]}` does not exist in workspace `{workspace}`",
        did_you_mean(
            name, [each.name for each in made], "list what exists with `ml_client.connections.list`"
        ),
    )


def drop(db: Database, workspace: str, name: str, user: str) -> None:
    """
    Raises:
        NotFound: the connection does not exist.
        Forbidden: it is another's.
    """
    stored = get(db, workspace, name)
    with db.write() as connection:
        _refuse_foreign(connection, stored, user)
        store.drop(connection, workspace, stored.name)


def _refuse_foreign(connection: Connection, stored: WorkspaceConnection, user: str) -> None:
    """
    Raises:
        Forbidden: it is another's.
    """
    subject = f"connection `{stored.name}`"
    ownership.refuse(
        connection, ownership.CONNECTION, stored.workspace, user, stored.owner, subject
    )


def names_in(db: Database, workspace: str) -> list[str]:
    return [each.name for each in list_in(db, workspace)]


def refuse_left_out(made: WorkspaceConnection) -> None:
    """
    Raises:
        InvalidInput: the credentials are not here.
    """
    if made.credentials == store.LEFT_OUT:
        raise InvalidInput(
            f"connection `{made.name}` has no credentials: the backup that this server was "
            "restored from left them out",
            "give them again with `ml_client.connections.create_or_update`",
            code="credentials_missing",
        )


def _over(before: WorkspaceConnection | None, written: WorkspaceConnection) -> WorkspaceConnection:
    """What is stored when `written` replaces `before`."""
    required, optional = CREDENTIALS[written.auth_type]
    has_secrets = bool(required or optional) and written.auth_type != "ManagedIdentity"
    keeps = before is not None and not written.credentials and before.auth_type == written.auth_type
    if has_secrets and not written.credentials and not keeps:
        raise InvalidSpec(
            f"connection `{written.name}` has no credentials of type `{written.auth_type}`",
            f"they are {', '.join(f'`{key}`' for key in (*required, *optional))}",
            at=["credentials"],
        )
    if before is None:
        return written
    merged = replace(written, name=before.name, owner=before.owner, created_at=before.created_at)
    return replace(merged, credentials=before.credentials) if keeps else merged


def _find_by_name(made: list[WorkspaceConnection], name: str) -> WorkspaceConnection | None:
    return next((each for each in made if each.name.lower() == name.lower()), None)
