"""The tables of attempts and of the nodes that they run on.

Owns: SQL, and the way between rows and the types of this package.
Leaves: the jobs that they are tries of to store.py, what may happen when to
attempts/worker_reports.py.
Always: an attempt is written with all its nodes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    Row,
    String,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
    delete,
    false,
    func,
    insert,
    or_,
    select,
    update,
)

from torchyard.base.db import Instant, metadata
from torchyard.jobs.records.row_changes import AttemptColumns, NodeColumns
from torchyard.jobs.records.types import Attempt, AttemptNode, JobError, NodeState

if TYPE_CHECKING:
    from typing_extensions import Unpack

attempts = Table(
    "attempts",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("job_id", ForeignKey("jobs.id"), nullable=False, index=True),
    Column("workspace", String(64), nullable=False),
    Column("job_name", String(256), nullable=False),
    Column("number", Integer, nullable=False),
    Column("node_count", Integer, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("handle", JSON),
    Column("order", String(16), nullable=False),
    Column("order_reason", String(32), nullable=False),
    Column("ended_at", Instant, index=True),
    Column("clean", Boolean, nullable=False),
    Column("exit_code", Integer),
    Column("error", JSON),
    Column("server", String(32)),
    Column("engine", String(16), nullable=False, server_default="local"),
    Column("waiting_for", Text, nullable=False, server_default=""),
    UniqueConstraint("job_id", "number"),
    Index("ix_attempts_clean_ended_at", "clean", "ended_at"),
)

attempt_nodes = Table(
    "attempt_nodes",
    metadata,
    Column("attempt_id", ForeignKey("attempts.id"), primary_key=True),
    Column("node", Integer, primary_key=True),
    Column("next_seq", Integer, nullable=False),
    Column("seen_at", Instant, nullable=False),
    Column("state", String(16), nullable=False),
    Column("address", String(128), nullable=False),
    Column("port", Integer),
    Column("exit_code", Integer),
    Column("error", JSON),
    Column("failed_at", Instant),
    Column("preflight", JSON),
    Column("interactive", JSON),
    Column("ran_s", Float),
)


# Needed for every attempt and every report: built once.
_ADD, _ADD_NODES = insert(attempts), insert(attempt_nodes)
_BY_ID = select(attempts).where(attempts.c.id == bindparam("attempt"))
_WITH_IDS = select(attempts).where(attempts.c.id.in_(bindparam("ids", expanding=True)))
_OPEN = select(attempts).where(attempts.c.ended_at.is_(None)).order_by(attempts.c.created_at)
_UNCLEAN = select(attempts).where(attempts.c.ended_at.is_not(None), attempts.c.clean == false())
_CHANGE = update(attempts).where(attempts.c.id == bindparam("attempt"))
_CHANGE_NODE = update(attempt_nodes).where(
    attempt_nodes.c.attempt_id == bindparam("attempt"), attempt_nodes.c.node == bindparam("number")
)
_OF_JOB = select(attempts).where(attempts.c.job_id == bindparam("job")).order_by(attempts.c.number)
_NODES_OF = (
    select(attempt_nodes)
    .where(attempt_nodes.c.attempt_id == bindparam("attempt"))
    .order_by(attempt_nodes.c.node)
)


def add_attempt(connection: Connection, attempt: Attempt) -> None:
    connection.execute(_ADD, vars(attempt))
    rows = [
        {
            "attempt_id": attempt.id,
            "node": node,
            "next_seq": 0,
            "seen_at": attempt.created_at,
            "state": NodeState.LAUNCHED.value,
            "address": "",
        }
        for node in range(attempt.node_count)
    ]
    connection.execute(_ADD_NODES, rows)


def drop_attempt(connection: Connection, attempt_id: str) -> None:
    """One that was never started."""
    connection.execute(delete(attempt_nodes).where(attempt_nodes.c.attempt_id == attempt_id))
    connection.execute(delete(attempts).where(attempts.c.id == attempt_id))


def attempts_with(connection: Connection, ids: Collection[str]) -> list[Attempt]:
    rows = connection.execute(_WITH_IDS, {"ids": list(ids)})
    return [_attempt(row) for row in rows]


def attempt_by_id(connection: Connection, attempt_id: str) -> Attempt | None:
    row = connection.execute(_BY_ID, {"attempt": attempt_id}).one_or_none()
    return None if row is None else _attempt(row)


def attempts_of(connection: Connection, job_id: int) -> list[Attempt]:
    return [_attempt(row) for row in connection.execute(_OF_JOB, {"job": job_id})]


def open_attempts(connection: Connection) -> list[Attempt]:
    return [_attempt(row) for row in connection.execute(_OPEN)]


def unclean_attempts(connection: Connection) -> list[Attempt]:
    """Those that have ended and whose scratch folder is still to be removed."""
    return [_attempt(row) for row in connection.execute(_UNCLEAN)]


def unfinished_beside(connection: Connection, server: str) -> list[Attempt]:
    """Those that are still to be looked after, and that `server` does not."""
    rows = connection.execute(
        select(attempts)
        .where(or_(attempts.c.ended_at.is_(None), attempts.c.clean == false()))
        .where(or_(attempts.c.server.is_(None), attempts.c.server != server))
    )
    return [_attempt(row) for row in rows]


def hand_over(connection: Connection, attempt: Attempt, server: str) -> bool:
    """Whether it was still as it was read, and is now looked after by `server`."""
    changed = connection.execute(
        update(attempts)
        .where(attempts.c.id == attempt.id)
        .where(attempts.c.server.is_not_distinct_from(attempt.server))
        .values(server=server)
    )
    return changed.rowcount == 1


def _attempt(row: Row[Any]) -> Attempt:
    return Attempt(**{**row._mapping, "error": error_of(row.error)})


def change_attempt(
    connection: Connection, attempt_id: str, **values: Unpack[AttemptColumns]
) -> None:
    connection.execute(_CHANGE, {**values, "attempt": attempt_id})


def node_of(connection: Connection, attempt_id: str, number: int) -> AttemptNode | None:
    these = (attempt_nodes.c.attempt_id == attempt_id) & (attempt_nodes.c.node == number)
    row = connection.execute(select(attempt_nodes).where(these)).one_or_none()
    return None if row is None else _node(row)


def nodes_of(connection: Connection, attempt_id: str) -> list[AttemptNode]:
    rows = connection.execute(_NODES_OF, {"attempt": attempt_id})
    return [_node(row) for row in rows]


def _node(row: Row[Any]) -> AttemptNode:
    values = {**row._mapping, "state": NodeState(row.state), "error": error_of(row.error)}
    return AttemptNode(**values)


def change_node(
    connection: Connection, attempt_id: str, node: int, **values: Unpack[NodeColumns]
) -> None:
    connection.execute(_CHANGE_NODE, {**values, "attempt": attempt_id, "number": node})


def ran_s(connection: Connection, job_id: int) -> float | None:
    """How long a job's command ran in all attempts, as nodes measured it: of each attempt the one
    where it ran longest. None where no node has said.
    """
    of_attempts = (
        select(func.max(attempt_nodes.c.ran_s).label("ran_s"))
        .join(attempts, attempts.c.id == attempt_nodes.c.attempt_id)
        .where(attempts.c.job_id == job_id)
        .group_by(attempts.c.id)
        .subquery()
    )
    seconds: float | None = connection.execute(select(func.sum(of_attempts.c.ran_s))).scalar()
    return seconds


def error_of(body: dict[str, Any] | None) -> JobError | None:
    """As it is written in a row: of a job, an attempt or a node."""
    return None if body is None else JobError(**body)
