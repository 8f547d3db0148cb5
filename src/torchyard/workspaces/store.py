"""The tables of workspaces and tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    String,
    Table,
    Text,
    bindparam,
    delete,
    insert,
    select,
    update,
)

from torchyard.base.db import Instant, metadata
from torchyard.workspaces.types import Identity, TokenKind, Workspace

workspaces = Table(
    "workspaces",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("subscription_id", String(64), nullable=False),
    Column("resource_group", String(128), nullable=False),
    Column("location", String(64), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("description", Text, nullable=False),
    Column("retention_days", Integer, nullable=False, server_default="0"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("user", String(128), nullable=False),
    Column("workspace", String(64), nullable=False),
    Column("subject", String(256), nullable=False, index=True),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant),
)


def add_workspace(connection: Connection, workspace: Workspace) -> None:
    connection.execute(insert(workspaces).values(vars(workspace)))


def drop_workspace(connection: Connection, name: str) -> None:
    """Forget a workspace, and every token that is good for it only."""
    connection.execute(delete(tokens).where(tokens.c.workspace == name))
    connection.execute(delete(workspaces).where(workspaces.c.name == name))


def change_workspace(connection: Connection, name: str, **values: Any) -> None:
    connection.execute(update(workspaces).where(workspaces.c.name == name).values(values))


def get_workspace(connection: Connection, name: str) -> Workspace | None:
    row = connection.execute(select(workspaces).where(workspaces.c.name == name)).one_or_none()
    return None if row is None else Workspace(**row._mapping)


def list_workspaces(connection: Connection) -> list[Workspace]:
    rows = connection.execute(select(workspaces).order_by(workspaces.c.name))
    return [Workspace(**row._mapping) for row in rows]


def add_token(
    connection: Connection,
    token_hash: str,
    identity: Identity,
    now: datetime,
    expires_at: datetime | None,
) -> None:
    connection.execute(
        insert(tokens).values(
            hash=token_hash,
            kind=identity.kind.value,
            user=identity.user,
            workspace=identity.workspace,
            subject=identity.subject,
            created_at=now,
            expires_at=expires_at,
        )
    )


# Asked for at every request: built once, for SQLAlchemy takes longer to build it than to run it.
_BY_HASH = select(tokens).where(tokens.c.hash == bindparam("of"))


def find_token(connection: Connection, token_hash: str, now: datetime) -> Identity | None:
    row = connection.execute(_BY_HASH, {"of": token_hash}).one_or_none()
    if row is None or (row.expires_at is not None and row.expires_at <= now):
        return None
    return Identity(row.user, TokenKind(row.kind), row.workspace, row.subject)


def drop_tokens(connection: Connection, kind: TokenKind, subject: str) -> None:
    connection.execute(
        delete(tokens).where(tokens.c.kind == kind.value, tokens.c.subject == subject)
    )
