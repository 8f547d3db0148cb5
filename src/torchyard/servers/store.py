"""The table of servers.

Owns: SQL, and the time at the database.
Leaves: what a row means to lease.py.
Always: a row is dropped only as it was read: a lease that was renewed meanwhile stays.
"""

from __future__ import annotations

from datetime import datetime, timezone

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Integer,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
    text,
    update,
)

from torchyard.base.db import Instant, metadata
from torchyard.servers.types import Server

servers = Table(
    "servers",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("url", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("start_time", BigInteger, nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("seen_at", Instant, nullable=False),
)


def now(connection: Connection) -> datetime:
    """By the one clock that all servers share."""
    if connection.dialect.name != "postgresql":
        return datetime.now(timezone.utc)
    now: datetime = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
    return now.astimezone(timezone.utc)


def all_of(connection: Connection) -> list[Server]:
    rows = connection.execute(select(servers).order_by(servers.c.started_at, servers.c.id))
    return [Server(**row._mapping) for row in rows]


def add(connection: Connection, server: Server) -> None:
    connection.execute(insert(servers).values(vars(server)))


def is_there(connection: Connection, id: str) -> bool:
    row = connection.execute(select(servers.c.id).where(servers.c.id == id)).one_or_none()
    return row is not None


def renew(connection: Connection, id: str, seen_at: datetime) -> bool:
    """Whether the server was still there."""
    changed = connection.execute(update(servers).where(servers.c.id == id).values(seen_at=seen_at))
    return changed.rowcount == 1


def drop(connection: Connection, server: Server) -> bool:
    """Whether it was dropped: not if it renewed its lease since `server` was read."""
    same = servers.c.id == server.id, servers.c.seen_at == server.seen_at
    return connection.execute(delete(servers).where(*same)).rowcount == 1


def drop_named(connection: Connection, id: str) -> None:
    connection.execute(delete(servers).where(servers.c.id == id))


def drop_all(connection: Connection) -> None:
    connection.execute(delete(servers))
