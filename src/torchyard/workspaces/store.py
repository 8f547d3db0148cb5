"""The tables of workspaces, tokens and roles."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Connection,
    Integer,
    String,
    Table,
    Text,
    bindparam,
    delete,
    false,
    insert,
    select,
    update,
)

from torchyard.base.db import Instant, afterwards, metadata
from torchyard.base.sealed_columns import SealedJson
from torchyard.workspaces import notifications
from torchyard.workspaces.types import Identity, Role, TokenKind, Workspace

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
    Column("rehearse_on_cpu", Boolean, nullable=False, server_default=false()),
    Column("allow_substitutes", Boolean),
    Column("max_processes", Integer, nullable=False, server_default="0"),
    Column("disk_quota_mb", Integer, nullable=False, server_default="0"),
    Column("network", String(16), nullable=False, server_default="open"),
    Column("auto_compute", Boolean, nullable=False, server_default=false()),
    Column("display_name", String(256), nullable=False, server_default=""),
    Column("tags", JSON, nullable=False, server_default="{}"),
    Column("azure_keys", JSON, nullable=False, server_default="{}"),
    Column(
        "notifications",
        SealedJson(notifications.without_secrets, "secrets of the webhooks of workspace `{name}`"),
        nullable=False,
        server_default="{}",
    ),
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
    # Of a person's token: its name, and about when it was used last; of a machine's or an
    # invitation, what the machine may take.
    Column("name", String(64), nullable=False, server_default=""),
    Column("last_used_at", Instant),
    # Of a session of the web page: the hash of the token that it was begun with, and ends with.
    Column("source", String(64), index=True),
)

# Each begins one session of the web page; see sessions.py.
sign_in_codes = Table(
    "sign_in_codes",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("source", String(64), nullable=False),
    Column("expires_at", Instant, nullable=False),
)

roles = Table(
    "roles",
    metadata,
    Column("user", String(128), primary_key=True),
    # Empty for every workspace.
    Column("workspace", String(64), primary_key=True),
    Column("role", String(32), nullable=False),
    Column("granted_by", String(128), nullable=False),
    Column("granted_at", Instant, nullable=False),
)


class Changes:
    """Counts changes of tokens, roles and workspaces in this process: they end cached lookups."""

    count = 0


_counting = threading.Lock()


def changed(connection: Connection) -> None:
    """Count now, and again after the commit: a lookup in between sees the old state."""
    _count()
    afterwards(connection, _count)


def _count() -> None:
    with _counting:
        Changes.count += 1


@dataclass(frozen=True)
class StoredToken:
    """A token's row, with its holder's role."""

    identity: Identity
    last_used_at: datetime | None


def add_workspace(connection: Connection, workspace: Workspace) -> None:
    connection.execute(insert(workspaces).values(vars(workspace)))


def drop_workspace(connection: Connection, name: str) -> None:
    """Delete a workspace, the roles in it, and every token that is valid only for it."""
    changed(connection)
    connection.execute(delete(tokens).where(tokens.c.workspace == name))
    connection.execute(delete(roles).where(roles.c.workspace == name))
    connection.execute(delete(workspaces).where(workspaces.c.name == name))


def change_workspace(connection: Connection, name: str, **values: Any) -> None:
    connection.execute(update(workspaces).where(workspaces.c.name == name).values(values))


_WORKSPACE = select(workspaces).where(workspaces.c.name == bindparam("called"))


def get_workspace(connection: Connection, name: str) -> Workspace | None:
    row = connection.execute(_WORKSPACE, {"called": name}).one_or_none()
    return None if row is None else Workspace(**row._mapping)


def list_workspaces(connection: Connection) -> list[Workspace]:
    rows = connection.execute(select(workspaces).order_by(workspaces.c.name))
    return [Workspace(**row._mapping) for row in rows]


_ADD_TOKEN = insert(tokens)


def add_token(
    connection: Connection,
    token_hash: str,
    identity: Identity,
    now: datetime,
    expires_at: datetime | None,
) -> None:
    values = {
        "hash": token_hash,
        "kind": identity.kind.value,
        "user": identity.user,
        "workspace": identity.workspace,
        "subject": identity.subject,
        "created_at": now,
        "expires_at": expires_at,
        "name": identity.token,
    }
    connection.execute(_ADD_TOKEN, values)


# Run for every request: built once, as SQLAlchemy takes longer to build it than to run it.
_BY_HASH = (
    select(tokens, roles.c.role)
    .outerjoin(
        roles,
        (roles.c.user == tokens.c.user)
        & (
            (roles.c.workspace == "")
            | (roles.c.workspace == bindparam("place"))
            # A job's token acts in its own workspace only, whatever is asked.
            | ((tokens.c.kind == TokenKind.RUN.value) & (roles.c.workspace == tokens.c.workspace))
        ),
    )
    .where(tokens.c.hash == bindparam("of"))
)


def find_token(connection: Connection, token_hash: str, workspace: str) -> StoredToken | None:
    """The token with this hash, valid or expired, and the holder's highest role.

    Args:
        workspace: the request's; empty for the server as a whole.
    """
    rows = connection.execute(_BY_HASH, {"of": token_hash, "place": workspace}).all()
    if not rows:
        return None
    row = rows[0]
    roles = [Role(each.role) for each in rows if each.role is not None]
    identity = Identity(
        row.user,
        TokenKind(row.kind),
        row.workspace,
        row.subject,
        max(roles, key=lambda role: role.rank, default=None),
        row.name,
        row.expires_at,
        token_hash=token_hash,
    )
    return StoredToken(identity, row.last_used_at)


def add_session(
    connection: Connection,
    token_hash: str,
    identity: Identity,
    now: datetime,
    expires_at: datetime,
    source: str,
) -> None:
    """Store a person's token that ends with the token whose hash is `source`."""
    connection.execute(
        insert(tokens).values(
            hash=token_hash,
            kind=TokenKind.PERSON.value,
            user=identity.user,
            workspace="",
            subject="",
            created_at=now,
            expires_at=expires_at,
            name=identity.token,
            source=source,
        )
    )


def drop_hash(connection: Connection, token_hash: str) -> bool:
    """Revoke one token; whether there was one: of two who do so at once, one is told that."""
    changed(connection)
    return connection.execute(delete(tokens).where(tokens.c.hash == token_hash)).rowcount == 1


def drop_expired(connection: Connection, kind: TokenKind, now: datetime) -> None:
    changed(connection)
    is_over = (tokens.c.kind == kind.value) & (tokens.c.expires_at <= now)
    connection.execute(delete(tokens).where(is_over))


def add_code(connection: Connection, code_hash: str, source: str, expires_at: datetime) -> None:
    connection.execute(
        insert(sign_in_codes).values(hash=code_hash, source=source, expires_at=expires_at)
    )


def take_code(connection: Connection, code_hash: str, now: datetime) -> str | None:
    """The source of a code that is still good; the code can't be taken again.

    Codes that have expired are deleted, too.
    """
    codes = sign_in_codes
    query = select(codes.c.source).where(codes.c.hash == code_hash, codes.c.expires_at > now)
    source: str | None = connection.execute(query).scalar()
    taken = connection.execute(delete(codes).where(codes.c.hash == code_hash)).rowcount
    connection.execute(delete(codes).where(codes.c.expires_at <= now))
    # Of two servers that share the home, one deletes the row.
    return source if taken == 1 else None


def record_use(connection: Connection, token_hash: str, now: datetime) -> None:
    connection.execute(update(tokens).where(tokens.c.hash == token_hash).values(last_used_at=now))


_DROP_TOKENS = delete(tokens).where(
    tokens.c.kind == bindparam("the_kind"), tokens.c.subject == bindparam("the_subject")
)


def drop_machine_tokens(connection: Connection, subject: str) -> None:
    """Those of a machine, or of a whole cluster when the subject ends with a slash; invitations,
    too.
    """
    changed(connection)
    is_meant = tokens.c.subject == subject
    if subject.endswith("/"):
        is_meant = tokens.c.subject.startswith(subject, autoescape=True)
    kinds = (TokenKind.MACHINE.value, TokenKind.INVITATION.value)
    connection.execute(delete(tokens).where(tokens.c.kind.in_(kinds), is_meant))


def drop_tokens(connection: Connection, kind: TokenKind, subject: str) -> None:
    changed(connection)
    connection.execute(_DROP_TOKENS, {"the_kind": kind.value, "the_subject": subject})
