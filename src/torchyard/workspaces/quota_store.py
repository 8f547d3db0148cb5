"""The tables of quotas and quota requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Integer,
    String,
    Table,
    Text,
    bindparam,
    delete,
    select,
    update,
)

from torchyard.assets.named_table import NamedTable
from torchyard.base.db import Instant, metadata
from torchyard.workspaces.types import Limit, QuotaRequest

_NUMBER = BigInteger().with_variant(Integer, "sqlite")

quotas = Table(
    "quotas",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("user", String(128), primary_key=True),
    Column("name", String(32), primary_key=True),
    Column("most", _NUMBER, nullable=False),
    Column("set_by", String(128), nullable=False),
    Column("set_at", Instant, nullable=False),
)

requests = Table(
    "quota_requests",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("workspace", String(64), nullable=False, index=True),
    Column("user", String(128), nullable=False),
    Column("name", String(32), nullable=False),
    Column("most", _NUMBER, nullable=False),
    Column("reason", Text, nullable=False),
    Column("asked_at", Instant, nullable=False),
    Column("state", String(16), nullable=False),
    Column("answered_by", String(128), nullable=False),
    Column("answered_at", Instant),
    Column("answer", Text, nullable=False),
)

# Read for each job that could start: built once.
_OF = select(quotas).where(quotas.c.workspace == bindparam("place"))


def limits(connection: Connection, workspace: str) -> list[Limit]:
    rows = connection.execute(_OF, {"place": workspace})
    in_workspace = [Limit(**row._mapping) for row in rows]
    return sorted(in_workspace, key=lambda limit: (limit.user, limit.name))


_limits = NamedTable(quotas, Limit)
put_limit, drop_limit = _limits.put, _limits.drop
_requests = NamedTable(requests, QuotaRequest)
add_request = _requests.add


def request(connection: Connection, workspace: str, request_id: str) -> QuotaRequest | None:
    row = connection.execute(
        select(requests).where(requests.c.workspace == workspace, requests.c.id == request_id)
    ).one_or_none()
    return None if row is None else QuotaRequest(**row._mapping)


def list_requests(connection: Connection, workspace: str) -> Sequence[QuotaRequest]:
    """Newest first."""
    rows = connection.execute(
        select(requests)
        .where(requests.c.workspace == workspace)
        .order_by(requests.c.asked_at.desc(), requests.c.id)
    )
    return [QuotaRequest(**row._mapping) for row in rows]


def change_request(connection: Connection, request_id: str, **values: Any) -> None:
    connection.execute(update(requests).where(requests.c.id == request_id).values(values))


def forget(connection: Connection, workspace: str) -> None:
    connection.execute(delete(quotas).where(quotas.c.workspace == workspace))
    connection.execute(delete(requests).where(requests.c.workspace == workspace))
